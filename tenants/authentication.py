"""Decides who calls: a browser's session or a bearer token becomes a `Principal`.

Both, and the log-in, go through the one SECURITY DEFINER function `tenants_lookup` (`sql/lookup.sql`), because before
a tenant is known row-level security shows nothing. Named by dotted string in settings, so `infra` knows none of it.
"""

import time
from datetime import datetime
from typing import Any

from allauth.account.authentication import AUTHENTICATION_METHODS_SESSION_KEY
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.backends import BaseBackend
from django.contrib.auth.hashers import check_password, is_password_usable, make_password
from django.contrib.sessions.models import Session
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import CsrfViewMiddleware
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from kvconsole.infra import access
from kvconsole.infra.access import Principal
from kvconsole.infra.addresses import client_address, within
from kvconsole.infra.rest import Problem
from tenants.lookalikes import normal
from tenants.models import User
from tenants.selectors import Known, as_principal, known_token, known_user, known_username

BEGUN, SEEN = "kvc.begun", "kvc.seen"
"""Keys of a session: when it began and when it was last used, in seconds since 1970."""
PROOFS = ("password", "mfa", "socialaccount")
"""Records of a session that prove who is there; the OpenID provider is told to ask its user anew."""


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
        if known is None or (known.cidr and not within(client_address(request), [known.cidr])):
            raise Problem("token-invalid")
        return as_principal(known)
    if SESSION_KEY not in request.session or not session_alive(request.session, time.time(), touch=True):
        return None
    return user_principal(request.user, request.session) if request.user.is_authenticated else None


def session_alive(session: Any, now: float, *, touch: bool = False) -> bool:
    """Whether the session is neither too old nor idle for too long; one that is over keeps nothing.

    Args:
        session: of somebody who is logged in.
        now: seconds since 1970.
        touch: a request uses it. That is written at most 30 times within the time it may be idle.
    """
    begun, seen = session.get(BEGUN), session.get(SEEN)
    if begun is None or seen is None:
        session[BEGUN] = session[SEEN] = begun = seen = now
    if now - begun > settings.SESSION_COOKIE_AGE or now - seen > settings.SESSION_IDLE_SECONDS:
        if touch:
            session.flush()
        return False
    if touch and now - seen > settings.SESSION_IDLE_SECONDS / 30:
        session[SEEN] = now
    return True


def sessions_sweep(*, now: datetime, most: int = 5000) -> int:
    """Rows of sessions that have expired are gone, at most so many; answers how many. Of no right, so not audited."""
    over = Session.objects.filter(expire_date__lt=now).order_by("expire_date").values("session_key")[:most]
    return Session.objects.filter(session_key__in=list(over.values_list("session_key", flat=True))).delete()[0]


def session_proof(session: Any) -> tuple[float, frozenset[str]]:
    """When somebody last proved themselves in the session, and by what."""
    records = session.get(AUTHENTICATION_METHODS_SESSION_KEY) or []
    at = max((float(r["at"]) for r in records if r.get("method") in PROOFS), default=0.0)
    return at, frozenset(str(r.get("type") or r["method"]) for r in records)


def user_principal(user: Any, session: Any = None) -> Principal:
    """The principal of a person that `LoginBackend` knows, with what the session says of proofs."""
    at, methods = session_proof(session) if session is not None else (0.0, frozenset())
    return as_principal(user.known, proved_at=at, methods=methods, owes=owed(user.known))


def owed(known: Known) -> str:
    """What the person has to do before anything else, as the code of the refusal until then; "" = nothing."""
    if known.password_initial:
        return "own-password-needed"
    asked = settings.REQUIRE_SECOND_FACTOR if known.tenant_id is None else settings.REQUIRE_TENANTS_SECOND_FACTOR
    return "second-factor-needed" if asked and known.roles and not known.second_factor else ""


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
        password_initial=known.password_initial,
    )
    user._state.adding, user._state.db = False, access.FLEET_PLANE
    user.known = known  # type: ignore[attr-defined]
    return user


class LoginBackend(BaseBackend):
    """Django's log-in over the look-up. An unknown name costs the time of a wrong password."""

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> User | None:
        """The person, or None. Names are matched exactly, but for full-width and other compatibility forms."""
        if not username or not password or "\0" in username:
            return None
        known = known_username(normal(username))
        if known is None or not is_password_usable(known.password):
            make_password(password)
            return None
        return _as_user(known) if check_password(password, known.password) else None

    def named(self, username: str) -> User | None:
        """The active person of this name, for whom somebody else vouches."""
        known = known_username(normal(username)) if "\0" not in username else None
        return _as_user(known) if known else None

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
