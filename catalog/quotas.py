"""Decides what a tenant may hold and how often it may ask: reads and changes of quotas.

A quota is intent; the writer (`catalog.ingest.dealing`) deals it to nodes and says what is in force. Called by
`api_tenancy` and pages.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from django.db import connections, transaction

from audit.services import record
from audit.standing import need_log
from catalog.models import Allowance, Quota, RateQuota, TenantTier, UsageCover
from kvconsole.infra import nudge
from kvconsole.infra.access import TENANT_PLANE, Principal, plane
from kvconsole.infra.rest import Problem, add_codes
from kvconsole.infra.sql import named
from kvcore.blocks import TIERS
from kvcore.quotas import ARENA_PART, BYTES_MAX, RATE_MAX, Grant, in_force, scale
from tenants.placing import TenantPlace, group_namespaces, tenants_with_arena

add_codes({"quota-below-use": (409, "The quota is below what the tenant holds now")})
QUOTAS = "quotas"
"""Topic of wake-ups: quotas, class rules or dedications have changed."""
FRESH = timedelta(seconds=20)
_LOCK = 0x4B564351  # "KVCQ"


class TierQuota(msgspec.Struct, frozen=True):
    """One tier. None: limit = unlimited; used = not known now; in_force = not told to tenants.

    `in_force`: no node may still allow more than the limit.
    """

    limit_bytes: int | None
    guaranteed_bytes: int
    effective_guaranteed_bytes: int
    used_bytes: int | None
    in_force: bool | None


class QuotaView(msgspec.Struct, frozen=True):
    """A tenant's quotas, as of `as_of`; None = what it holds is not known now."""

    tiers: dict[str, TierQuota]
    requests_per_second: int | None
    deletions_per_hour: int | None
    as_of: datetime | None

    def intent(self) -> dict[str, Any]:
        """What a change would replace; ETags are made of it."""
        tiers = {t: [q.limit_bytes, q.guaranteed_bytes] for t, q in self.tiers.items()}
        return {"tiers": tiers, "rates": [self.requests_per_second, self.deletions_per_hour]}


class Holds(msgspec.Struct, frozen=True):
    """What a tenant holds on a tier of the fleet."""

    blocks: int
    bytes: int


def quota_view(*, tenant: UUID, now: datetime) -> QuotaView:
    """The tenant's quotas, with what they are worth and what is used of them."""
    rows = {q.tier: q for q in Quota.objects.filter(tenant_id=tenant)}
    rate = RateQuota.objects.filter(tenant_id=tenant).first()
    cover = UsageCover.objects.order_by("upto").first()
    as_of = cover.upto if cover and now - cover.upto <= FRESH else None
    used = dict(TenantTier.objects.filter(tenant_id=tenant).values_list("tier", "bytes")) if as_of else {}
    grants: dict[str, dict[UUID, Grant]] = {}
    fleet = plane() != TENANT_PLANE
    for a in Allowance.objects.filter(tenant_id=tenant) if fleet else ():
        grants.setdefault(a.tier, {})[a.node_id] = Grant(a.given, a.ceiling)
    tiers = {}
    for name in map(str, TIERS):
        row = rows.get(name)
        limit = row.limit_bytes if row else None
        most = in_force(grants.get(name, {}))
        tiers[name] = TierQuota(
            limit_bytes=limit,
            guaranteed_bytes=row.guaranteed_bytes if row else 0,
            effective_guaranteed_bytes=row.effective_bytes if row else 0,
            used_bytes=used.get(name, 0) if as_of else None,
            in_force=(limit is None or (name in grants and most is not None and most <= limit)) if fleet else None,
        )
    return QuotaView(
        tiers, rate.requests_per_second if rate else None, rate.deletions_per_hour if rate else None, as_of
    )


def quotas_lock() -> None:
    """Nobody else changes quotas until the end of this transaction: guarantees are worth what all of them leave."""
    with connections[plane()].cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))


def quota_set(
    *,
    tenant: UUID,
    tiers: Mapping[str, Mapping[str, int | None]],
    requests_per_second: int | None,
    deletions_per_hour: int | None,
    evict: bool = False,
    actor: Principal | None,
    now: datetime,
) -> QuotaView:
    """The tenant's quotas are these; tiers that are left out are unlimited and guaranteed nothing.

    Nodes are told within seconds. What is above a limit then is evicted there, least value first.

    Args:
        tenant: its id.
        tiers: tier → {limit_bytes: None = unlimited, guaranteed_bytes}.
        requests_per_second, deletions_per_hour: None = unlimited, 0 = none.
        evict: a limit below present use is meant.
        actor: who does it.
        now: aware.

    Raises:
        Problem: validation-failed, quota-below-use, or, to evict, audit-unavailable; nothing was changed.
    """
    wanted = {t: _checked(t, dict(tiers.get(t, {}))) for t in map(str, TIERS)}
    _check_names(tiers)
    for name, rate in (("requests_per_second", requests_per_second), ("deletions_per_hour", deletions_per_hour)):
        if rate is not None and not 0 <= rate <= RATE_MAX:
            raise _range(f"/{name}", f"0 to {RATE_MAX}, or null.")
    with transaction.atomic(using=plane()):
        quotas_lock()
        if evict:
            need_log()
        else:
            _check_use(tenant, {t: limit for t, (limit, _) in wanted.items()})
        for tier, (limit, guaranteed) in wanted.items():
            _write(tenant, tier, limit, guaranteed)
        RateQuota.objects.update_or_create(
            tenant_id=tenant,
            defaults={"requests_per_second": requests_per_second, "deletions_per_hour": deletions_per_hour},
        )
        guarantees_rescale()
        record(
            event_type="quota.changed",
            outcome="success",
            actor=actor,
            tenant_id=tenant,
            object_kind="tenant",
            object_id=str(tenant),
            body={
                "tiers": {t: {"limit_bytes": w[0], "guaranteed_bytes": w[1]} for t, w in wanted.items()},
                "requests_per_second": requests_per_second,
                "deletions_per_hour": deletions_per_hour,
                "evict": evict,
            },
        )
        nudge.on_commit(QUOTAS, using=plane())
    return quota_view(tenant=tenant, now=now)


def _write(tenant: UUID, tier: str, limit: int | None, guaranteed: int) -> None:
    """A row that says nothing is made only where one was: agents that were told a limit are told that there is none."""
    values = {"limit_bytes": limit, "guaranteed_bytes": guaranteed}
    there = Quota.objects.filter(tenant_id=tenant, tier=tier)
    if there.exists():
        there.exclude(**values).update(**values)
    elif limit is not None or guaranteed:
        Quota.objects.create(tenant_id=tenant, tier=tier, **values)


def _check_names(tiers: Mapping[str, object]) -> None:
    if unknown := sorted(set(tiers) - set(map(str, TIERS))):
        raise _invalid(f"/tiers/{unknown[0]}", "unknown-field", f"A tier is one of {', '.join(TIERS)}.")


def _checked(tier: str, given: dict[str, int | None]) -> tuple[int | None, int]:
    limit, guaranteed = given.get("limit_bytes"), given.get("guaranteed_bytes") or 0
    for name, value in (("limit_bytes", limit), ("guaranteed_bytes", guaranteed)):
        if value is not None and not 0 <= value <= BYTES_MAX:
            raise _range(f"/tiers/{tier}/{name}", f"0 to {BYTES_MAX} bytes.")
    if limit is not None and guaranteed > limit:
        raise _invalid(f"/tiers/{tier}/guaranteed_bytes", "guarantee-over-limit", "Not more than limit_bytes.")
    return limit, guaranteed


def _check_use(tenant: UUID, limits: Mapping[str, int | None]) -> None:
    held = holdings(tenant)
    errors = [
        {
            "pointer": f"/tiers/{tier}/limit_bytes",
            "code": "below-use",
            "detail": f"{held[tier].bytes} bytes in {held[tier].blocks} blocks are held now.",
        }
        for tier, limit in limits.items()
        if limit is not None and tier in held and held[tier].bytes > limit
    ]
    if errors:
        raise Problem("quota-below-use", 'Say "evict": true to let nodes evict what is above.', errors=errors)


def holdings(tenant: UUID) -> dict[str, Holds]:
    """What the tenant and its share groups hold by tier, exactly as of the writer's last commit; the fleet's plane."""
    with connections[plane()].cursor() as cursor:
        cursor.execute(named("catalog", "quotas.sql")["tenant_holdings"], (tenant, group_namespaces(tenant)))
        return {tier: Holds(int(blocks), int(size)) for tier, blocks, size in cursor.fetchall()}


def capacities() -> dict[str, int]:
    """Bytes of each tier of the fleet: of all nodes that have joined and are not fenced."""
    with connections[plane()].cursor() as cursor:
        cursor.execute(named("catalog", "quotas.sql")["capacities"])
        return {tier: int(size) for tier, size in cursor.fetchall()}


def guarantees(
    tier: str, rows: Mapping[UUID, tuple[int | None, int]], arenas: Mapping[UUID, TenantPlace], capacity: int
) -> dict[UUID, int]:
    """What tenants are guaranteed of a tier before it is scaled; an arena is guaranteed a part by itself.

    Args:
        tier: its name.
        rows: tenant → (limit, guaranteed).
        arenas: tenants that have arenas.
        capacity: bytes of the tier.
    """
    out = {tenant: guaranteed for tenant, (_, guaranteed) in rows.items() if guaranteed}
    for tenant in arenas:
        if tenant not in out and capacity:
            limit = rows.get(tenant, (None, 0))[0]
            out[tenant] = capacity // ARENA_PART if limit is None else min(limit, capacity // ARENA_PART)
    return out


def guarantees_rescale() -> None:
    """Each quota says what its guarantee is worth with the present nodes and quotas; called with `quotas_lock` held."""
    have, arenas = capacities(), tenants_with_arena()
    rows: dict[str, dict[UUID, tuple[int | None, int]]] = {}
    for q in Quota.objects.all():
        rows.setdefault(q.tier, {})[q.tenant_id] = q.limit_bytes, q.guaranteed_bytes
    for tier, of in rows.items():
        worth = scale(have.get(tier, 0), guarantees(tier, of, arenas, have.get(tier, 0)))
        for tenant in of:
            found = Quota.objects.filter(tenant_id=tenant, tier=tier)
            found.exclude(effective_bytes=worth.get(tenant, 0)).update(effective_bytes=worth.get(tenant, 0))


def _invalid(pointer: str, code: str, detail: str) -> Problem:
    return Problem("validation-failed", errors=[{"pointer": pointer, "code": code, "detail": detail}])


def _range(pointer: str, detail: str) -> Problem:
    return Problem("out-of-range", errors=[{"pointer": pointer, "code": "range", "detail": detail}])
