"""The rule of residency: what lies where it must not lie any more is taken away from there, and only from there.

Nodes let go of it themselves as soon as they hear of it; the operation asks each of them, and looks. Called by `due`.
"""

import hashlib
import threading
from collections.abc import Collection
from datetime import datetime, timedelta
from uuid import UUID

from catalog.misplaced import KIND, decided, misplaced, tenants_ruled
from catalog.models import Operation
from catalog.rules.opening import RESIDENCY, Matter, rule_open
from tenants.placing import groups_owned

EVERY = timedelta(seconds=15)
"""What came to where it may not be is found within that; what was decided anew is looked at at once."""
_lock = threading.Lock()
_looked: list[tuple[str, datetime]] = []
"""What was decided when it was looked at last, and when that was."""


def forget() -> None:
    """Nobody has looked yet."""
    with _lock:
        _looked.clear()


def _worth_a_look(said: str, now: datetime) -> bool:
    with _lock:
        if _looked and _looked[0][0] == said and timedelta() <= now - _looked[0][1] < EVERY:
            return False
        _looked[:] = [(said, now)]
        return True


def residency_due(*, now: datetime) -> list[Operation]:
    """Operations that were opened now: for each tenant, one for each set of places that may not hold what is there."""
    tenants = tenants_ruled()
    if not _worth_a_look(decided(tenants), now):
        return []
    by_places: dict[tuple[UUID, frozenset[int]], None] = {}
    for tenant, wrong in misplaced(list(tenants)).items():
        for lies in wrong.values():
            by_places[tenant, frozenset(one.place.owner for one in lies)] = None
    groups = groups_owned({tenant for tenant, _ in by_places})
    found = [
        rule_open(
            Matter(
                trigger=RESIDENCY, about=f"places/{_named(wrong)}", kind=KIND, tenant=tenant,
                selector={"tenant": tenants[tenant].slug},
                options={"places": sorted(wrong), "share_groups": groups.get(tenant, ())},
                reason="it may not be there any more",
            ),
            now=now,
        )
        for tenant, wrong in by_places
    ]  # fmt: skip
    return [one for one in found if one is not None]


def _named(places: Collection[int]) -> str:
    return hashlib.sha256(" ".join(map(str, sorted(places))).encode()).hexdigest()[:32]
