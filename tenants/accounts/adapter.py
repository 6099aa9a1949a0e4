"""Decides what allauth may do here: no sign-up, no mail, our guard, our look-up, our audit events.

Named in settings. allauth brings the flows (stages of a log-in, TOTP, passkeys, OpenID Connect); who somebody is stays
with `tenants.authentication`, what is counted with `tenants.accounts.guard`.
"""

import os
import time
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings
from django.contrib.auth import authenticate
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import NoReverseMatch, reverse
from django.utils.http import urlencode

from kvconsole.infra import outage
from kvconsole.infra.access import principal_of, system, tenant_context
from kvconsole.infra.addresses import client_address
from kvconsole.infra.rest import private
from tenants import services
from tenants.accounts import guard
from tenants.authentication import BEGUN, SEEN, LoginBackend, session_proof, user_principal

BACKEND = f"{LoginBackend.__module__}.{LoginBackend.__qualname__}"


class Accounts(DefaultAccountAdapter):  # type: ignore[misc]
    """Local accounts."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Nobody signs up: people are invited."""
        return False

    def authenticate(self, request: HttpRequest, **credentials: Any) -> Any:
        """The person whose name and password these are, or None.

        Raises:
            Problem: too-many-attempts; nothing was looked at.
        """
        username, password = credentials.get("username", ""), credentials.get("password", "")
        address = client_address(request)
        try:
            attempt = guard.begin(account=username, address=address)
            user = authenticate(request, username=username, password=password)
        except DatabaseError as why:
            if outage.is_absence(why):  # nobody can log in; that somebody tried is told when PostgreSQL is back
                services.login_refused(username=username, now=time.monotonic(), reason="unavailable", address=address)
            raise
        if user is not None:
            attempt.passed()
        return user

    def reauthenticate(self, user: Any, password: str) -> bool:
        """Whether it is the person's password."""
        found = self.authenticate(self.request, username=user.username, password=password)
        return found is not None and found.pk == user.pk

    def login(self, request: HttpRequest, user: Any) -> None:
        """The session is the person's, and the trail says so; without its event there is no session."""
        known = LoginBackend().get_user(user.pk)
        if known is None:  # suspended between two steps of the log-in
            raise ImmediateHttpResponse(HttpResponseRedirect(reverse("account_login")))
        known.backend = BACKEND
        _, methods = session_proof(request.session)
        with tenant_context(system("web")):
            services.logged_in(who=user_principal(known), method="+".join(sorted(methods)) or "password")
            super().login(request, known)
        request.session[BEGUN] = request.session[SEEN] = time.time()

    def post_login(self, request: HttpRequest, user: Any, **kwargs: Any) -> HttpResponse:
        """Where the person wanted to go; first to a password of their own, where somebody else made it."""
        if user.password_initial:
            return HttpResponseRedirect(reverse("page-password"))
        response: HttpResponse = super().post_login(request, user, **kwargs)
        return response

    def get_login_redirect_url(self, request: HttpRequest) -> str:
        """The overview; a tenant's people start in their tenant's portal, where there is one."""
        known = getattr(request.user, "known", None)
        try:
            return reverse("page-portal", args=[known.tenant_slug]) if known and known.tenant_slug else "/"
        except NoReverseMatch:
            return "/"

    def get_login_stages(self) -> list[str]:
        """After name and password: the second factor, where there is one."""
        return ["allauth.mfa.stages.AuthenticateStage"]

    def respond_user_inactive(self, request: HttpRequest, user: Any) -> HttpResponse:
        """As for whom nobody knows."""
        return HttpResponseRedirect(reverse("account_login"))

    def is_reauthentication_required(self, *, app: str, **kwargs: Any) -> bool:
        """Never by allauth: the registry of routes asks for a fresh proof where one is needed."""
        return False

    def add_message(self, *args: Any, **kwargs: Any) -> None:
        """Pages say themselves what happened."""

    def send_mail(self, *args: Any, **kwargs: Any) -> None:
        """The console sends no mail."""

    def send_notification_mail(self, *args: Any, **kwargs: Any) -> None:
        """The console sends no mail."""

    def get_client_ip(self, request: HttpRequest) -> str:
        """The address that calls."""
        return client_address(request)


class Factors(DefaultMFAAdapter):  # type: ignore[misc]
    """Second factors: their secrets are sealed under the site's secret, not readable in the database."""

    def get_totp_issuer(self) -> str:
        """What an authenticator shows: the console and its host."""
        return f"{settings.MFA_TOTP_ISSUER} {self._host()}"

    def get_public_key_credential_rp_entity(self) -> dict[str, str]:
        """Passkeys are bound to the console's host, whatever a Host header says."""
        return {"id": self._host(), "name": settings.MFA_TOTP_ISSUER}

    def _get_user_identifier(self, user: Any) -> str:
        return str(user.username)

    def _host(self) -> str:
        request = self.request
        return request.get_host().rpartition(":")[0] or request.get_host() if request is not None else "kv-console"

    def encrypt(self, text: str) -> str:
        """Sealed; a copy of the database alone opens no account."""
        nonce = os.urandom(12)
        return (nonce + AESGCM(private("mfa")).encrypt(nonce, text.encode(), None)).hex()

    def decrypt(self, encrypted_text: str) -> str:
        """Opened; "" where the site's secret is another one, which no code fits."""
        blob = bytes.fromhex(encrypted_text)
        try:
            return AESGCM(private("mfa")).decrypt(blob[:12], blob[12:], None).decode()
        except InvalidTag:
            return ""


class Linked(DefaultSocialAccountAdapter):  # type: ignore[misc]
    """Identities of an OpenID provider: they log in whom they are linked to, and nobody else."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        """Nobody signs up."""
        return False

    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        """Somebody who is logged in links the identity; else it must be linked, or is now, by its name.

        Raises:
            ImmediateHttpResponse: it was linked by its person, or cannot be.
        """
        if sociallogin.state.get("process") == "connect":
            raise ImmediateHttpResponse(self._link_own(request, sociallogin))
        if sociallogin.is_existing:
            return
        name = str(sociallogin.user.username) if sociallogin.user else ""
        user = LoginBackend().named(name) if settings.OIDC_LINK_BY_NAME and name else None
        if user is None:
            services.login_refused(username=name, now=time.monotonic(), reason="oidc")
        else:
            self._link(sociallogin, user)

    def _link_own(self, request: HttpRequest, sociallogin: Any) -> HttpResponse:
        who = principal_of(request)
        known = who is not None and who.kind == "user" and who.owes != "own-password-needed"
        if who is None or not known or (sociallogin.is_existing and sociallogin.user != request.user):
            return HttpResponseRedirect(reverse("socialaccount_login_error"))
        if not who.stepped_up(time.time()):
            return HttpResponseRedirect(f"{settings.STEP_UP_URL}?{urlencode({'next': reverse('page-account')})}")
        if not sociallogin.is_existing:
            self._link(sociallogin, request.user)
        return HttpResponseRedirect(reverse("page-account"))

    def _link(self, sociallogin: Any, user: Any) -> None:
        """Kept is who it is at the provider, and nothing else that the provider tells."""
        with tenant_context(system("web")):
            sociallogin.user = sociallogin.account.user = user
            sociallogin.account.extra_data = {}
            sociallogin.account.save()
            services.factor_changed(who=user_principal(user), changed="oidc")
