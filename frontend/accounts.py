"""Answers the pages of one's own account: log-in in its steps, invitation, fresh proof, password and second factors.

The flows are allauth's, the rules `tenants.accounts`'; every address is registered in `urls`. What one page changes is
one transaction with its audit event, on the fleet's plane, where the tables of accounts are.
"""

import time
from typing import Any

from allauth.account.adapter import get_adapter
from allauth.account.internal.flows.login import perform_login, perform_password_login, record_authentication
from allauth.account.models import Login
from allauth.mfa.base.views import AuthenticateView
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.flows import generate_recovery_codes, view_recovery_codes
from allauth.mfa.totp.internal.flows import activate_totp, deactivate_totp
from allauth.mfa.totp.views import ActivateTOTPView
from allauth.mfa.webauthn.internal import auth as webauthn
from allauth.mfa.webauthn.internal import flows as passkeys
from allauth.mfa.webauthn.views import LoginWebAuthnView
from allauth.socialaccount.models import SocialAccount
from allauth.socialaccount.providers.openid_connect import views as openid
from django.conf import settings
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth import views as auth_views
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.generic import FormView, TemplateView, View

from frontend import preference
from frontend.context import landing
from frontend.views import refusal
from kvconsole.infra import rest
from kvconsole.infra.access import principal_of, system, tenant_context
from kvconsole.infra.addresses import client_address
from tenants import services
from tenants.accounts import forms
from tenants.accounts.selectors import factors
from tenants.authentication import LoginBackend, user_principal
from tenants.tokens import Parsed, parse

INVITATION = "kvc.invitation"


def target(request: HttpRequest, default: str = "") -> str:
    """Where `next` leads, if that is a page of ours."""
    given = str(request.POST.get("next") or request.GET.get("next") or "")
    ours = url_has_allowed_host_and_scheme(given, {request.get_host()}, require_https=request.is_secure())
    return given if ours else default


@method_decorator([never_cache, sensitive_post_parameters()], name="dispatch")
class Door(View):
    """What all these pages share: a refusal of the guard is a page too."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """The page, or the refusal."""
        try:
            response = super().dispatch(request, *args, **kwargs)
            if request.method == "POST" and response.status_code == 200:  # the form again: nothing was done
                response.problem_code = "validation-failed"  # type: ignore[attr-defined]
            return response
        except rest.Problem as problem:
            if "text/html" not in request.headers.get("Accept", "text/html"):
                return rest.problem_response(problem)
            response = refusal(request, problem.code, problem.status_code)
            response.problem_code = problem.code  # type: ignore[attr-defined]
            if problem.retry_after_seconds is not None:
                response.headers["Retry-After"] = str(problem.retry_after_seconds)
            return response


class Own(Door):
    """A page of somebody who is logged in as a person; a token has no account of its own."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """The page, in one transaction on the fleet's plane."""
        who = principal_of(request)
        if who is None or who.kind != "user":
            return refusal(request, "forbidden", 403)
        with tenant_context(system("web")):
            response = super().dispatch(request, *args, **kwargs)
            return response.render() if hasattr(response, "render") else response

    @property
    def user(self) -> Any:
        """Who is logged in."""
        return self.request.user

    def changed(self, what: str) -> None:
        """The trail says which of the person's own means changed."""
        services.factor_changed(who=user_principal(self.user), changed=what)


# --- the log-in -----------------------------------------------------------------------------------------------------


class LogIn(Door, FormView):  # type: ignore[type-arg]
    """Name and password; whoever comes logged in goes on."""

    template_name = "frontend/login.html"
    form_class = forms.LogInForm

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """The page, or on."""
        if (who := principal_of(request)) is not None:
            return HttpResponseRedirect(landing(who, target(request)))
        return super().dispatch(request, *args, **kwargs)

    def get_form_kwargs(self) -> dict[str, Any]:
        """The form asks the guard, which asks for the address."""
        return {**super().get_form_kwargs(), "request": self.request}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Where it goes on, and what else is offered."""
        offered = settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"]
        return super().get_context_data(**kwargs) | {"next": target(self.request), "providers": offered}

    def form_valid(self, form: Any) -> HttpResponse:
        """The next step, or logged in with the language and theme the person chose before."""
        login = Login(user=form.user, redirect_url=landing(user_principal(form.user), target(self.request)))
        response: HttpResponse = perform_password_login(self.request, {"username": form.user.username}, login)
        preference.restore(response, form.user)
        return response

    def form_invalid(self, form: Any) -> HttpResponse:
        """Asked again."""
        address = client_address(self.request)
        services.login_refused(username=form.data.get("username", ""), now=time.monotonic(), address=address)
        return super().form_invalid(form)


class LogOut(auth_views.LogoutView):
    """The session ends."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Logged out."""
        if who := principal_of(request):
            services.logged_out(who=who)
        return super().post(request, *args, **kwargs)


class SecondFactor(Door, AuthenticateView):  # type: ignore[misc]
    """The second step of a log-in: a code, or a passkey."""

    template_name = "frontend/account/factor.html"
    form_class = forms.FactorForm
    webauthn_form_class = forms.PasskeyFactorForm

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """What the person has."""
        context: dict[str, Any] = super().get_context_data(**kwargs)
        kept = factors(self.stage.login.user.pk)
        return context | {"factors": kept, "options": context["js_data"]["request_options"]}


class PasskeyLogIn(Door, LoginWebAuthnView):  # type: ignore[misc]
    """A passkey is name, password and second factor in one."""

    form_class = forms.PasskeyLogInForm

    def form_invalid(self, form: Any) -> HttpResponse:
        """Asked again."""
        services.login_refused(username="", now=time.monotonic(), reason="passkey")
        return HttpResponseRedirect(f"{reverse('page-login')}?passkey=refused")


def provider_back(request: HttpRequest, provider_id: str) -> HttpResponseBase:
    """The OpenID provider has said who it is: linking them and their log-in are one act, and one event."""
    with tenant_context(system("web")):
        response: HttpResponseBase = openid.callback(request, provider_id)
    return response


def provider_refused(request: HttpRequest) -> HttpResponse:
    """The OpenID provider did not say who it is, or nobody here is linked to them."""
    return refusal(request, "provider-refused", 403)


class Invitation(Door, FormView):  # type: ignore[type-arg]
    """Whoever is invited chooses a password.

    The secret is in the link's fragment, which browsers do not send: a script posts it, so that it is in no address
    and no log. The session keeps the digest of one that is good, and nothing of any other.
    """

    template_name = "frontend/account/invitation.html"
    form_class = forms.NewPassword

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """The page that takes the secret, the one that asks for a password, or the refusal."""
        if request.method == "POST" and "token" in request.POST:
            return self.opened(request)
        kept = self.kept(request)
        if kept is None and request.method == "GET":
            return render(request, "frontend/account/invitation_open.html")
        found = services.invited(invitation=kept, now=timezone.now()) if kept else None
        if kept is None or found is None:
            request.session.pop(INVITATION, None)
            return refusal(request, "invitation-invalid", 410)
        self.invitation, self.person = kept, found
        return super().dispatch(request, *args, **kwargs)

    def opened(self, request: HttpRequest) -> HttpResponseBase:
        """The invitation is that of this browser from now on; of what is none, nothing is kept."""
        given = parse(request.POST["token"].rpartition("#")[2].strip())
        if given is None or services.invited(invitation=given, now=timezone.now()) is None:
            return refusal(request, "invitation-invalid", 410)
        request.session[INVITATION] = [given.id, given.secret_hash.hex()]
        return HttpResponseRedirect(reverse("page-invitation"))

    def kept(self, request: HttpRequest) -> Parsed | None:
        """What the session knows of an invitation."""
        found = request.session.get(INVITATION)
        return Parsed("invite", found[0], bytes.fromhex(found[1])) if isinstance(found, list) else None

    def get_form_kwargs(self) -> dict[str, Any]:
        """The password must not be like the name."""
        return {**super().get_form_kwargs(), "user": self.person}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Whom the page speaks to."""
        return super().get_context_data(**kwargs) | {"person": self.person}

    def form_valid(self, form: Any) -> HttpResponse:
        """The invitation is used up, and the person logged in, or asked for the second factor."""
        self.request.session.pop(INVITATION, None)
        password, now = form.cleaned_data["password1"], timezone.now()
        with tenant_context(system("web")):  # one act, and one event
            user = services.invitation_accept(invitation=self.invitation, password=password, now=now)
            known = LoginBackend().get_user(user.pk)
            record_authentication(self.request, known, "password")
            response: HttpResponse = perform_login(self.request, Login(user=known))
        return response


# --- one's own account ----------------------------------------------------------------------------------------------


class Account(Own, TemplateView):
    """By what one can log in."""

    template_name = "frontend/account/account.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """The factors of the person."""
        offered = settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"]
        owes = user_principal(self.user).owes
        return super().get_context_data(**kwargs) | {
            "factors": factors(self.user.pk), "providers": offered, "owes": owes
        }  # fmt: skip


class Confirm(Own, TemplateView):
    """A fresh proof, before something that cannot be taken back: password, code or passkey."""

    template_name = "frontend/account/confirm.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """What the person has."""
        kept = factors(self.user.pk)
        options = webauthn.begin_authentication(self.user) if kept.passkeys else None
        more = {"factors": kept, "options": options, "next": target(self.request)}
        return super().get_context_data(**kwargs) | more | {"minutes": settings.STEP_UP_SECONDS // 60}

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Back to where it was needed, or asked again."""
        method = self.proved(request)
        if method is None:
            return self.render_to_response(self.get_context_data(wrong=True))
        services.stepped_up(who=user_principal(self.user), method=method)
        return HttpResponseRedirect(target(request, reverse("page-account")))

    def proved(self, request: HttpRequest) -> str | None:
        """How the person has proved themselves now."""
        if "password" in request.POST:
            if not get_adapter().reauthenticate(self.user, request.POST["password"][:256]):
                return None
            record_authentication(request, self.user, "password", reauthenticated=True)
            return "password"
        kind = forms.ConfirmForm if "code" in request.POST else forms.PasskeyConfirmForm
        form = kind(request.POST, user=self.user)
        if not form.is_valid():
            return None
        form.save()
        return "webauthn" if isinstance(form, forms.PasskeyConfirmForm) else str(form.authenticator.type)


class Password(Own, FormView):  # type: ignore[type-arg]
    """A new password; other sessions of the person are over."""

    template_name = "frontend/account/password.html"
    form_class = forms.NewPassword

    def get_form_kwargs(self) -> dict[str, Any]:
        """The password must not be like the name."""
        return {**super().get_form_kwargs(), "user": self.user}

    def form_valid(self, form: Any) -> HttpResponse:
        """Changed; this session goes on."""
        who, password = user_principal(self.user), form.cleaned_data["password1"]
        services.user_password_set(user_id=self.user.pk, password=password, actor=who)
        update_session_auth_hash(self.request, LoginBackend().get_user(self.user.pk))  # type: ignore[arg-type]
        return HttpResponseRedirect(reverse("page-account"))


class Totp(Own, ActivateTOTPView):  # type: ignore[misc]
    """An authenticator is taken into use."""

    template_name = "frontend/account/totp.html"
    form_class = forms.TotpForm

    def form_valid(self, form: Any) -> HttpResponse:
        """Asked for at each log-in from now on; the recovery codes are shown."""
        activate_totp(self.request, form)
        self.changed("totp")
        return HttpResponseRedirect(reverse("mfa_view_recovery_codes"))


class Passkeys(Own, FormView):  # type: ignore[type-arg]
    """A passkey is taken into use: one that can be found without a name, and checks who uses it."""

    template_name = "frontend/account/passkey.html"
    form_class = forms.PasskeyForm

    def get_form_kwargs(self) -> dict[str, Any]:
        """Whose it is."""
        return {**super().get_form_kwargs(), "user": self.user}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """What the browser is asked for."""
        return super().get_context_data(**kwargs) | {"options": webauthn.begin_registration(self.user, True)}

    def form_valid(self, form: Any) -> HttpResponse:
        """It logs in from now on."""
        name, credential = form.cleaned_data["name"][:100], form.cleaned_data["credential"]
        _, codes = passkeys.add_authenticator(self.request, name=name, credential=credential)
        self.changed("webauthn")
        return HttpResponseRedirect(reverse("mfa_view_recovery_codes" if codes else "page-account"))


class FactorRemove(Own):
    """A second factor is of no use any more; without any, the recovery codes go too."""

    def post(self, request: HttpRequest, pk: int | None = None) -> HttpResponse:
        """Removed: the passkey of this number, else the authenticator."""
        kind = Authenticator.Type.TOTP if pk is None else Authenticator.Type.WEBAUTHN
        mine = Authenticator.objects.filter(user_id=self.user.pk, type=kind)
        found = (mine if pk is None else mine.filter(pk=pk)).first()
        if found is None:
            raise Http404
        if pk is None:
            deactivate_totp(request, found)
        else:
            passkeys.remove_authenticators(request, [found])
        self.changed(str(kind.value))
        return HttpResponseRedirect(reverse("page-account"))


class RecoveryCodes(Own, TemplateView):
    """The codes for the day the factor is lost, as long as they are not used."""

    template_name = "frontend/account/codes.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """The codes."""
        codes, _ = view_recovery_codes(self.request)
        if codes is None:
            raise Http404
        return super().get_context_data(**kwargs) | {"codes": codes.get_unused_codes()}

    def post(self, request: HttpRequest) -> HttpResponse:
        """New codes; the old ones are of no use."""
        if not Authenticator.objects.filter(user_id=self.user.pk, type="recovery_codes").exists():
            raise Http404
        generate_recovery_codes(request)
        self.changed("recovery_codes")
        return HttpResponseRedirect(reverse("mfa_view_recovery_codes"))


class Unlink(Own):
    """The identity of an OpenID provider logs nobody in any more."""

    def post(self, request: HttpRequest) -> HttpResponse:
        """Unlinked."""
        if SocialAccount.objects.filter(user_id=self.user.pk).delete()[0]:
            self.changed("oidc")
        return HttpResponseRedirect(reverse("page-account"))
