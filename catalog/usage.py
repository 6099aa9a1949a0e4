"""Decides what a tenant is told of its use: bytes held now, and hits in tokens, bytes and saved prefill milliseconds.

Days are UTC. Days are sums of the requests that nodes told, added up in the commits that took them over. What may be
missing makes the answer incomplete and says why; what is not known is null, never zero. Called by `api_tenancy`, pages.
"""

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import msgspec
from django.db.models import Q

from catalog.models import Quota, TenantTier, UsageCover, UsageDay, UsageGap
from catalog.quotas import FRESH
from kvcore.blocks import TIERS
from tenants.placing import shared_in

DAYS_MOST = 400
NEVER, AWAY, BEFORE = "never-counted", "writer-away", "before-counting"
UNMEASURED, UNSIZED = "unmeasured", "block-size-unknown"
SHARED = "shared-namespaces"
"""Requests that read the cache of a share group: the block does not say whose they were."""


class Held(msgspec.Struct, frozen=True):
    """What is held of a tier now; None = not known. `quota_bytes` None = unlimited."""

    used_bytes: int | None
    blocks: int | None
    quota_bytes: int | None


class Hits(msgspec.Struct, frozen=True):
    """What requests saved. `saved_prefill_ms` is what nodes told, measured by `measured_requests` of them."""

    tokens: int
    bytes: int
    saved_prefill_ms: float
    requests: int
    prompt_tokens: int
    measured_requests: int


class UsageLine(msgspec.Struct, frozen=True):
    """One day and tier of the statement; tier "" has the totals."""

    day: date
    tier: str
    requests: int
    prompt_tokens: int
    hit_tokens: int
    hit_bytes: int
    saved_prefill_ms: float


class UsageView(msgspec.Struct, frozen=True):
    """The statement from `since` to `until`, whole days. `hits` None = nothing of that time was counted."""

    since: datetime
    until: datetime
    as_of: datetime | None
    complete: bool
    incomplete: list[str]
    tiers: dict[str, Held]
    hits: Hits | None
    days: list[UsageLine]


def usage_view(*, tenant: UUID, since: datetime, until: datetime, now: datetime) -> UsageView:
    """The tenant's use in all days that the time touches.

    Args:
        tenant: its id.
        since, until: aware; `since` < `until`.
        now: aware.
    """
    first, after = _day(since), _day(until - timedelta(microseconds=1)) + timedelta(days=1)
    start, end = _midnight(first), _midnight(after)
    rows = list(UsageDay.objects.filter(tenant_id=tenant, day__gte=first, day__lt=after).order_by("day", "tier"))
    totals = [r for r in rows if not r.tier]
    cover = UsageCover.objects.order_by("upto").first()
    as_of = cover.upto if cover else None
    missing = _missing(start, min(end, now), cover, now)
    if any(r.measured_requests < r.requests for r in totals):
        missing.append(UNMEASURED)
    if any(r.unsized_requests for r in totals):
        missing.append(UNSIZED)
    if shared_in(tenant=tenant, since=start, until=end):
        missing.append(SHARED)
    counted = cover is not None and cover.since < end and cover.upto > start
    return UsageView(
        since=start,
        until=end,
        as_of=as_of,
        complete=not missing,
        incomplete=missing,
        tiers=_held(tenant, cover is not None and now - cover.upto <= FRESH),
        hits=_hits(totals) if counted or totals else None,
        days=[
            UsageLine(r.day, r.tier, r.requests, r.prompt_tokens, r.hit_tokens, r.hit_bytes, r.saved_us / 1000)
            for r in rows
        ],
    )


def _missing(start: datetime, end: datetime, cover: UsageCover | None, now: datetime) -> list[str]:
    """Why requests of the time may be missing, each reason once."""
    if cover is None:
        return [NEVER]
    out = [BEFORE] if cover.since > start else []
    if cover.upto < min(end, now - FRESH):
        out.append(AWAY)
    gaps = UsageGap.objects.filter(Q(until__isnull=True) | Q(until__gt=start), since__lt=end)
    return [*out, *sorted(set(gaps.values_list("reason", flat=True)) - set(out))]


def _held(tenant: UUID, known: bool) -> dict[str, Held]:
    held = {row.tier: row for row in TenantTier.objects.filter(tenant_id=tenant)} if known else {}
    limits = dict(Quota.objects.filter(tenant_id=tenant).values_list("tier", "limit_bytes"))
    return {
        str(t): Held(
            used_bytes=(held[t].bytes if t in held else 0) if known else None,
            blocks=(held[t].blocks if t in held else 0) if known else None,
            quota_bytes=limits.get(t),
        )
        for t in TIERS
    }


def _hits(rows: Iterable[UsageDay]) -> Hits:
    found = list(rows)
    return Hits(
        tokens=sum(r.hit_tokens for r in found),
        bytes=sum(r.hit_bytes for r in found),
        saved_prefill_ms=sum(r.saved_us for r in found) / 1000,
        requests=sum(r.requests for r in found),
        prompt_tokens=sum(r.prompt_tokens for r in found),
        measured_requests=sum(r.measured_requests for r in found),
    )


def _day(at: datetime) -> date:
    return at.astimezone(UTC).date()


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
