"""Reads what many tenants hold and saved, at a glance: one line a tenant, four queries whatever their number.

For lists; `quotas.quota_view` and `usage.usage_view` have everything of one. Called by pages.
"""

from collections.abc import Collection
from datetime import UTC, datetime
from uuid import UUID

import msgspec

from catalog.models import Quota, TenantTier, UsageCover, UsageDay
from catalog.quotas import FRESH
from kvcore.blocks import TIERS


class Standing(msgspec.Struct, frozen=True):
    """A tenant now. `used` None = not known; a limit None = unlimited; tokens None = nothing was counted today."""

    used: dict[str, int] | None
    limits: dict[str, int | None]
    hit_tokens: int | None
    prompt_tokens: int | None


def standings(*, tenants: Collection[UUID], now: datetime) -> dict[UUID, Standing]:
    """What each of these tenants holds of its quotas now, and what its requests of today (UTC) read."""
    cover = UsageCover.objects.order_by("upto").first()
    fresh = cover is not None and now - cover.upto <= FRESH
    today = now.astimezone(UTC).date()
    counted = cover is not None and cover.upto.astimezone(UTC).date() >= today
    used: dict[UUID, dict[str, int]] = {}
    for tenant, tier, size in TenantTier.objects.filter(tenant_id__in=tenants).values_list(
        "tenant_id", "tier", "bytes"
    ):
        used.setdefault(tenant, {})[tier] = size
    limits: dict[UUID, dict[str, int | None]] = {}
    rows = Quota.objects.filter(tenant_id__in=tenants).values_list("tenant_id", "tier", "limit_bytes")
    for tenant, tier, limit in rows:
        limits.setdefault(tenant, {})[tier] = limit
    days = {d.tenant_id: d for d in UsageDay.objects.filter(tenant_id__in=tenants, day=today, tier="")}
    return {tenant: _standing(tenant, used if fresh else None, limits, days.get(tenant), counted) for tenant in tenants}


def _standing(
    tenant: UUID,
    used: dict[UUID, dict[str, int]] | None,
    limits: dict[UUID, dict[str, int | None]],
    day: UsageDay | None,
    counted: bool,
) -> Standing:
    own = limits.get(tenant, {})
    return Standing(
        used=None if used is None else {str(t): used.get(tenant, {}).get(t, 0) for t in TIERS},
        limits={str(t): own.get(t) for t in TIERS},
        hit_tokens=day.hit_tokens if day else 0 if counted else None,
        prompt_tokens=day.prompt_tokens if day else 0 if counted else None,
    )
