"""Decides how much one token, one tenant and one address may ask of the API, and tells them how much is left.

Token buckets in the memory of each `web` process: a limit costs a microsecond and needs nobody else to be up. Each of
the site's processes gives its part of a quota, so together they give no more (docs/decisions/0016). An address is
charged, and refused, only for calls of nobody that is known: what others send from a shared address (an office's, a
proxy's) keeps no gateway and no person there from working.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from kvconsole.infra import access, rest

REMEMBERED = 100_000
"""Buckets that are kept; of those beyond, the longest unused one is full again."""


@dataclass(frozen=True)
class Policy:
    """`quota` calls in `window` seconds, evenly refilled; all of them may come at once."""

    name: str
    quota: int
    window: int

    @classmethod
    def read(cls, name: str, text: str, *, processes: int = 1) -> "Policy":
        """One process's part of a policy as settings write it: `quota/window`. A part of less than one call is one."""
        quota, _, window = text.partition("/")
        return cls(name, max(int(quota) // processes, min(int(quota), 1)), int(window or 1))


@dataclass(frozen=True)
class Verdict:
    """What a bucket answered: `left` calls now, full again in `reset` seconds; `wait` seconds if refused, else 0."""

    policy: Policy
    left: int
    reset: int
    wait: float = 0.0


class Buckets:
    """How far each key is ahead of its refill (GCRA: one number per key)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due: OrderedDict[tuple[str, str], float] = OrderedDict()

    def take(self, policy: Policy, key: str, *, now: float, cost: int = 1) -> Verdict:
        """One call is charged, unless the bucket is empty. `cost=0` only asks.

        Args:
            policy: of the bucket.
            key: whose bucket.
            now: seconds of any steady clock.
        """
        step, place = policy.window / policy.quota, (policy.name, key)
        with self._lock:
            due = max(self._due.get(place, now), now)
            ahead = due + max(cost, 1) * step - now
            if ahead > policy.window + 1e-9:
                return Verdict(policy, 0, round(due - now), ahead - policy.window)
            if cost:
                due += cost * step
                self._due[place] = due
                self._due.move_to_end(place)
                if len(self._due) > REMEMBERED:
                    self._due.popitem(last=False)
        return Verdict(policy, int((policy.window - (due - now)) / step + 1e-6), round(due - now))

    def clear(self) -> None:
        """Every bucket is full."""
        with self._lock:
            self._due.clear()


buckets = Buckets()


def policies() -> dict[str, Policy]:
    """This process's part of the site's policies, by name."""
    found = settings.RATE_LIMITS.items()
    return {name: Policy.read(name, text, processes=settings.WEB_PROCESSES) for name, text in found}


class RateMiddleware:
    """Calls of the API are charged to who makes them; who has nothing left gets 429 and is told when to come back."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response, self.policies = get_response, policies()

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """The answer, with what is left."""
        if not request.path.startswith("/api/"):
            return self.get_response(request)
        address, policy, now = access.client_address(request), self.policies["address"], time.monotonic()
        verdicts = [buckets.take(policy, address, now=now, cost=0)] if policy.quota else []
        empty = next((v for v in verdicts if v.wait), None)
        if empty and not _says_who(request):
            return _say(_refusal(empty), verdicts)
        request.rate_empty = empty  # type: ignore[attr-defined]
        response = self.get_response(request)
        if access.principal_of(request) is not None:
            return _say(response, getattr(request, "rate_verdicts", []))
        if empty:
            return _say(_refusal(empty), verdicts)
        return _say(response, [buckets.take(policy, address, now=now)] if verdicts else [])

    def process_view(self, request: HttpRequest, view: object, args: object, kwargs: object) -> HttpResponseBase | None:
        """None, or the refusal: of who is known for the own calls, of who turned out to be nobody for the address's."""
        principal = access.principal_of(request)
        if not request.path.startswith("/api/"):
            return None
        if principal is None:
            empty = getattr(request, "rate_empty", None)
            return _refusal(empty) if empty else None
        verdicts = charge(principal, self.policies, now=time.monotonic())
        request.rate_verdicts = verdicts  # type: ignore[attr-defined]
        refused = next((v for v in verdicts if v.wait), None)
        return _refusal(refused) if refused else None


def _says_who(request: HttpRequest) -> bool:
    """Whether there is anything to look up: who says nothing is nobody, and that costs no query."""
    return bool(request.headers.get("Authorization")) or settings.SESSION_COOKIE_NAME in request.COOKIES


def _refusal(verdict: Verdict) -> HttpResponseBase:
    p = verdict.policy
    detail = f"More than {p.quota} calls in {p.window} s by one {p.name}."
    return rest.problem_response(rest.Problem("rate-limited", detail, retry_after_seconds=int(verdict.wait) + 1))


def charge(principal: access.Principal, known: dict[str, Policy], *, now: float) -> list[Verdict]:
    """One call is charged to who is known, by token and by tenant."""
    keys = {"token": principal.id, "tenant": str(principal.tenant_id or "")}
    return [buckets.take(known[n], key, now=now) for n, key in keys.items() if key and known[n].quota]


def told(verdicts: list[Verdict]) -> dict[str, str]:
    """The fields of draft-ietf-httpapi-ratelimit-headers."""
    if not verdicts:
        return {}
    given = ", ".join(f'"{v.policy.name}";q={v.policy.quota};w={v.policy.window}' for v in verdicts)
    left = ", ".join(f'"{v.policy.name}";r={v.left};t={v.reset}' for v in verdicts)
    return {"RateLimit-Policy": given, "RateLimit": left}


def _say(response: HttpResponseBase, verdicts: list[Verdict]) -> HttpResponseBase:
    for name, value in told(verdicts).items():
        response.headers[name] = value
    return response
