"""The rule of quotas: a tenant that stays above its limit on a tier is trimmed there.

Nodes let go of what is over themselves, as soon as they have their allowances; the rule gives them time for it, and
then asks them for what is missed least. Called by `due`.
"""

import threading
from datetime import datetime, timedelta
from uuid import UUID

from catalog.models import Operation
from catalog.rules.opening import QUOTA, Matter, rule_open
from catalog.trimming import KIND, tenants_over
from tenants.placing import groups_owned
from tenants.selectors import tenant_slugs

PATIENCE = timedelta(seconds=20)
"""Allowances are dealt anew every 10 s."""
_lock = threading.Lock()
_since: dict[tuple[UUID, str], datetime] = {}
"""Since when a tenant was seen above its limit without a break, by tier."""


def forget() -> None:
    """Nobody was seen above a limit."""
    with _lock:
        _since.clear()


def quota_due(*, now: datetime) -> list[Operation]:
    """Operations that were opened now, one for each tenant and tier."""
    over = tenants_over()
    with _lock:
        for gone in _since.keys() - {(one.tenant, one.tier) for one in over}:
            del _since[gone]
        late = [one for one in over if now - _since.setdefault((one.tenant, one.tier), now) >= PATIENCE]
    slugs, groups = tenant_slugs({one.tenant for one in late}), groups_owned({one.tenant for one in late})
    found = [
        rule_open(
            Matter(
                trigger=QUOTA, about=f"tier/{one.tier}", kind=KIND, tenant=one.tenant,
                selector={"tenant": slugs[one.tenant]},
                options={"tier": one.tier, "share_groups": groups.get(one.tenant, ())},
                reason=f"{one.bytes - one.limit} bytes over its limit",
            ),
            now=now,
        )
        for one in late
        if one.tenant in slugs
    ]  # fmt: skip
    return [one for one in found if one is not None]
