"""Says what a row of the map stands for, as selectors name it: a tenant, a namespace, and how its family begins.

Read on the fleet's connection: the map is for the fleet's own people, and so is this. Called by pages.
"""

import re
from typing import NamedTuple

from kvconsole.infra.access import FLEET_PLANE
from kvconsole.infra.sql import named
from kvconsole.infra.statements import fetch
from kvcore.targets import KEY
from tenants.selectors import tenant_slugs

MOST_KEYS = 64
"""Of the first run of a family that are told: what a prefetch begins with."""


class Meant(NamedTuple):
    """What a row stands for. `keys`: those of the family's first run, in the 16 bytes that the directory keeps."""

    tenant: str
    namespace: str
    keys: tuple[str, ...]


def row_meant(row: str) -> Meant | None:
    """The meaning of a row of the map by its id; None: there is no such row, or it stands for many together."""
    if not re.fullmatch("[0-9a-f]{16}", row) or int(row, 16) >= 2**63:
        return None
    found = fetch(
        named("catalog", "operation_blocks.sql")["map_row"], [MOST_KEYS * KEY, int(row, 16)], using=FLEET_PLANE
    )
    if not found:
        return None
    tenant, digest, packed = found[0]
    keys = bytes(packed or b"")
    parts = tuple(keys[at : at + KEY].hex() for at in range(0, len(keys), KEY))
    return Meant(tenant_slugs({tenant}).get(tenant, ""), bytes(digest).hex(), parts)
