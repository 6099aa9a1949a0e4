"""Decides whether a tenant may make one more request this second, or one more deletion this hour.

PostgreSQL counts, so all processes together keep the limit; a process takes requests in small lots and hands them out
itself. Called by `TenantRates` for everything a tenant's people and tokens ask of the API, and by deletions.
"""

import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connections
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from catalog.models import RateQuota, RateUse
from kvconsole.infra.access import FLEET_PLANE, principal_of
from kvconsole.infra.rest import Problem, add_codes, refuse

add_codes(
    {
        "requests-quota-exceeded": (429, "The tenant's requests per second are used up"),
        "deletions-quota-exceeded": (429, "The tenant's deletions per hour are used up"),
    }
)
REQUESTS, DELETIONS = "requests", "deletions"
SECONDS = {REQUESTS: 1, DELETIONS: 3600}
LOTS = 16
"""A process takes this part of a second's requests at once."""
KEPT_SECONDS, KEPT_MOST = 1.0, 10_000
_TAKE = """
INSERT INTO catalog_rateuse AS u (tenant_id, kind, "window", taken) VALUES (%(tenant)s, %(kind)s, %(window)s, %(lot)s)
ON CONFLICT (tenant_id, kind) DO UPDATE SET "window" = excluded."window",
    taken = CASE WHEN u."window" = excluded."window" THEN u.taken + excluded.taken ELSE excluded.taken END
WHERE u."window" < excluded."window" OR (u."window" = excluded."window" AND u.taken + excluded.taken <= %(limit)s)
RETURNING 1"""


class Limits(NamedTuple):
    """What a tenant may do; None = as often as it likes."""

    requests_per_second: int | None
    deletions_per_hour: int | None


class Left(NamedTuple):
    """What is left of the limits now; None = there is no limit."""

    requests: int | None
    deletions: int | None


class _Lot(NamedTuple):
    window: int
    left: int


_lock = threading.Lock()
_limits: dict[UUID, tuple[float, Limits]] = {}
_lots: dict[UUID, _Lot] = {}


def forget() -> None:
    """What this process remembers of limits and lots is read again."""
    with _lock:
        _limits.clear()
        _lots.clear()


def limits(tenant_id: UUID) -> Limits:
    """The tenant's limits, at most a second old."""
    now = time.monotonic()
    at, known = _limits.get(tenant_id, (-KEPT_SECONDS, Limits(None, None)))
    if now - at < KEPT_SECONDS:
        return known
    row = RateQuota.objects.using(FLEET_PLANE).filter(tenant_id=tenant_id).first()
    known = Limits(row.requests_per_second, row.deletions_per_hour) if row else Limits(None, None)
    with _lock:
        if len(_limits) >= KEPT_MOST:
            _limits.clear()
        _limits[tenant_id] = now, known
    return known


def unlimited(tenant_id: UUID) -> bool:
    """Whether this process knows, without asking, that the tenant's requests have no limit."""
    at, known = _limits.get(tenant_id, (-KEPT_SECONDS, Limits(0, 0)))
    return time.monotonic() - at < KEPT_SECONDS and known.requests_per_second is None


def request_taken(tenant_id: UUID, *, now: float) -> bool:
    """Whether the tenant may make one more request in this second; it is counted if so. `now`: Unix seconds."""
    limit, window = limits(tenant_id).requests_per_second, int(now)
    if limit is None:
        return True
    with _lock:
        lot = _lots.get(tenant_id)
        if lot is not None and lot.window == window and lot.left > 0:
            _lots[tenant_id] = _Lot(window, lot.left - 1)
            return True
    for size in dict.fromkeys((max(1, limit // LOTS), 1)):
        if limit and _take(tenant_id, REQUESTS, window, size, limit):
            with _lock:
                if len(_lots) >= KEPT_MOST:
                    _lots.clear()
                _lots[tenant_id] = _Lot(window, size - 1)
            return True
    return False


def deletion_take(tenant_id: UUID, *, now: datetime) -> None:
    """One more deletion of this hour is counted, in the transaction of the deletion.

    Raises:
        Problem: deletions-quota-exceeded; nothing was counted.
    """
    row = RateQuota.objects.filter(tenant_id=tenant_id).first()
    limit = row.deletions_per_hour if row else None
    if limit is None:
        return
    second = int(now.timestamp())
    if limit == 0:
        raise Problem("deletions-quota-exceeded", "deletions_per_hour is 0: this tenant may delete nothing.")
    if not _take(tenant_id, DELETIONS, second // 3600, 1, limit):
        detail = f"deletions_per_hour is {limit}, and all of this hour (UTC) are used."
        raise Problem("deletions-quota-exceeded", detail, retry_after_seconds=3600 - second % 3600)


def rates_left(tenant_id: UUID, *, now: datetime) -> tuple[Limits, Left]:
    """The tenant's limits, and what is left of them in this second and this hour (UTC); None = no limit.

    Processes take requests in small lots, so a little of what they took may not be used yet.
    """
    row = RateQuota.objects.using(FLEET_PLANE).filter(tenant_id=tenant_id).first()
    if row is None:
        return Limits(None, None), Left(None, None)
    second = int(now.timestamp())
    taken = {
        kind: count
        for kind, window, count in RateUse.objects.using(FLEET_PLANE)
        .filter(tenant_id=tenant_id)
        .values_list("kind", "window", "taken")
        if window == second // SECONDS[kind]
    }
    whole = Limits(row.requests_per_second, row.deletions_per_hour)
    found = (
        None if limit is None else max(0, limit - taken.get(kind, 0))
        for limit, kind in zip(whole, (REQUESTS, DELETIONS), strict=True)
    )
    return whole, Left(*found)


def _take(tenant_id: UUID, kind: str, window: int, lot: int, limit: int) -> bool:
    values: dict[str, Any] = {"tenant": tenant_id, "kind": kind, "window": window, "lot": lot, "limit": limit}
    with connections[FLEET_PLANE].cursor() as cursor:
        cursor.execute(_TAKE, values)
        return cursor.fetchone() is not None


class TenantRates:
    """Refuses what a tenant's people and tokens ask of the API beyond its requests per second; behind the principal."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """The answer, or 429 with when to come again."""
        principal = principal_of(request)
        tenant = principal.tenant_id if principal else None
        if tenant is None or not request.path.startswith("/api/") or request_taken(tenant, now=time.time()):
            return self.get_response(request)
        limit = limits(tenant).requests_per_second
        detail = f"requests_per_second is {limit}." if limit else "requests_per_second is 0: it may ask for nothing."
        return refuse(request, Problem("requests-quota-exceeded", detail, retry_after_seconds=1 if limit else None))
