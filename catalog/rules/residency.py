"""The rule of residency: what lies where it must not lie any more is taken away from there, and only from there.

Nodes let go of it themselves as soon as they hear of it; the operation asks each of them, and looks. Called by `due`.
"""

import hashlib
from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from catalog.misplaced import KIND, misplaced, tenants_ruled
from catalog.models import Operation
from catalog.rules.opening import RESIDENCY, Matter, rule_open


def residency_due(*, now: datetime) -> list[Operation]:
    """Operations that were opened now: for each tenant, one for each set of places that may not hold what is there."""
    tenants = tenants_ruled()
    by_places: dict[tuple[UUID, frozenset[int]], None] = {}
    for tenant, wrong in misplaced(list(tenants)).items():
        for lies in wrong.values():
            by_places[tenant, frozenset(one.place.owner for one in lies)] = None
    found = [
        rule_open(
            Matter(
                trigger=RESIDENCY, about=f"places/{_named(wrong)}", kind=KIND, tenant=tenant,
                selector={"tenant": tenants[tenant]}, options={"places": sorted(wrong)},
                reason="it may not be there any more",
            ),
            now=now,
        )
        for tenant, wrong in by_places
    ]  # fmt: skip
    return [one for one in found if one is not None]


def _named(places: Collection[int]) -> str:
    return hashlib.sha256(" ".join(map(str, sorted(places))).encode()).hexdigest()[:32]
