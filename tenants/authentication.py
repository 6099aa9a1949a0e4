"""Decides who calls: a browser's session or a bearer token becomes a `Principal`.

Both, and the log-in, go through the one SECURITY DEFINER function `tenants_lookup` (`sql/lookup.sql`), because before
a tenant is known row-level security shows nothing. Named by dotted string in settings, so `infra` knows none of it.
"""

import ipaddress
from typing import Any

from django.contrib.auth import SESSION_KEY
from django.contrib.auth.backends import BaseBackend
from django.contrib.auth.hashers import check_password, make_password
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import CsrfViewMiddleware
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from kvconsole.infra import access
from kvconsole.infra.access import Principal
from kvconsole.infra.rest import Problem
from tenants.models import User
from tenants.selectors import Known, as_principal, known_token, known_user, known_username


def principal_of(request: HttpRequest) -> Principal | None:
    """Who calls, or None: nobody that says so.

    A bearer token counts before a session, and only in the Authorization header.

    Raises:
        Problem: token-invalid: a token of ours was given and is not good. Which of the reasons it was, is not told.
    """
    given = request.headers.get("Authorization", "")
    if given:
        scheme, _, plaintext = given.partition(" ")
        if not plaintext.strip().startswith("kvc_"):
            return None  # another kind of bearer, which the route may know (`/metrics`)
        known = known_token(plaintext.strip()) if scheme.lower() == "bearer" else None
        if known is None or not _from_allowed_address(known.cidr, request.META.get("REMOTE_ADDR", "")):
            raise Problem("token-invalid")
        return as_principal(known)
    if SESSION_KEY not in request.session or not request.user.is_authenticated:
        return None
    return user_principal(request.user)


def user_principal(user: Any) -> Principal:
    """The principal of a person that `LoginBackend` knows."""
    return as_principal(user.known)


def _from_allowed_address(cidr: str, address: str) -> bool:
    if not cidr:
        return True
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(cidr, strict=False)
    except ValueError:
        return False


def _as_user(known: Known) -> User:
    user = User(
        id=known.user_id,
        username=known.username,
        password=known.password,
        email=known.email,
        tenant_id=known.tenant_id,
        roles=known.roles,
        language=known.language,
        theme=known.theme,
    )
    user._state.adding, user._state.db = False, access.FLEET_PLANE
    user.known = known  # type: ignore[attr-defined]
    return user


class LoginBackend(BaseBackend):
    """Django's log-in over the look-up. An unknown name costs the time of a wrong password."""

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> User | None:
        """The person, or None. Names are matched exactly."""
        if not username or not password or "\0" in username:
            return None
        known = known_username(username)
        if known is None or not known.password:
            make_password(password)
            return None
        return _as_user(known) if check_password(password, known.password) else None

    def get_user(self, user_id: Any) -> User | None:
        """The person of a session, if still active; roles are those of now."""
        known = known_user(str(user_id))
        return _as_user(known) if known else None


class ConsoleAuthentication(BaseAuthentication):
    """DRF's view of what the middleware found. A session, unlike a token, must prove that its own page called."""

    def authenticate(self, request: Request) -> tuple[Any, Any] | None:
        """(who, how), or None: nobody that is known.

        Raises:
            Problem: csrf-failed.
        """
        principal = access.principal_of(request)
        if principal is None:
            return None
        if request.headers.get("Authorization"):
            return principal, "bearer"
        check = _CsrfCheck(_no_response)
        check.process_request(request._request)
        if check.process_view(request._request, _no_response, (), {}) is not None:
            raise Problem("csrf-failed")
        return request._request.user, "session"

    def authenticate_header(self, request: Request) -> str:
        """The challenge of a 401."""
        return 'Bearer realm="kv-console"'


def _no_response(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


class _CsrfCheck(CsrfViewMiddleware):
    def _reject(self, request: HttpRequest, reason: str) -> Any:
        return reason
