"""Decides where a person's language, theme and single keys are kept: in cookies of this browser, and with the person.

Cookies are read on every page; they carry no secret. After a log-in on another browser they are written anew from
what the person had chosen. Called by `views` and `context`.
"""

from typing import Any
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from frontend.wording import THEMES
from kvconsole.infra.access import Principal
from tenants.services import user_prefer

THEME, KEYS = "kvc_theme", "kvc_keys"
YEAR = 365 * 86_400
LANGUAGES = frozenset(code for code, _name in settings.LANGUAGES)


def _cookie(response: HttpResponse, name: str, value: str) -> None:
    response.set_cookie(name, value, max_age=YEAR, secure=settings.SESSION_COOKIE_SECURE, httponly=True, samesite="Lax")


def valid(given: dict[str, str]) -> dict[str, str]:
    """Those of the given preferences that exist."""
    allowed: dict[str, Any] = {"theme": THEMES, "language": LANGUAGES, "keys": ("on", "off")}
    return {name: given[name] for name, values in allowed.items() if given.get(name) in values}


def store(response: HttpResponse, principal: Principal | None, given: dict[str, str]) -> None:
    """What is valid of the given preferences is kept in cookies, and with the person who is logged in."""
    chosen = valid(given)
    names = {"theme": THEME, "language": settings.LANGUAGE_COOKIE_NAME, "keys": KEYS}
    for name, value in chosen.items():
        _cookie(response, names[name], value)
    lasting = {name: chosen[name] for name in ("theme", "language") if name in chosen}
    if principal and principal.user_id and lasting:
        user_prefer(user_id=UUID(principal.user_id), **lasting)


def restore(response: HttpResponse, user: Any) -> None:
    """The cookies say what the person had chosen."""
    if user.language in LANGUAGES:
        _cookie(response, settings.LANGUAGE_COOKIE_NAME, user.language)
    if user.theme in THEMES:
        _cookie(response, THEME, user.theme)


def theme(request: HttpRequest) -> str:
    """system, light or dark."""
    chosen = request.COOKIES.get(THEME, "system")
    return chosen if chosen in THEMES else "system"


def keys(request: HttpRequest) -> bool:
    """Whether single keys do something."""
    return request.COOKIES.get(KEYS) != "off"
