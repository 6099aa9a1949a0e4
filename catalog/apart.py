"""Reads what rules and own nodes would make leave: bytes that are where they may not be, and nodes to choose from.

For pages, which ask within the rehearsal of a change: what is barred then and was not before, leaves. Called on the
fleet's plane.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime
from uuid import UUID

import msgspec
from django.db import connections

from catalog.models import Node
from catalog.placing import bars, class_rules, places, tenants_of
from kvconsole.infra.access import plane
from kvconsole.infra.sql import named
from kvcore.blocks import TIERS
from tenants.directory import shared_digests
from tenants.placing import namespace_places
from tenants.selectors import tenant_slugs

MOST_HELD = 20_000
"""Namespaces times nodes times tiers that are looked at; of a tenant with more it is not known what leaves."""

Where = tuple[bytes, UUID, str]
"""Digest of a namespace, node, tier."""


class NodeChoice(msgspec.Struct, frozen=True):
    """A node that could be a tenant's own. `owner`: whose it is alone, "" = everybody's."""

    id: UUID
    name: str
    region: str
    role: str
    state: str
    owner: str


def nodes_offered() -> list[NodeChoice]:
    """All nodes, by name."""
    rows = list(Node.objects.order_by("name").values_list("id", "name", "region", "role", "state", "dedicated_to"))
    slugs = tenant_slugs({row[5] for row in rows if row[5]})
    return [NodeChoice(*row[:5], slugs.get(row[5], "") if row[5] else "") for row in rows]


def misplaced(*, tenant: UUID, now: datetime, most: int = MOST_HELD) -> Counter[Where] | None:
    """Bytes that are where they may not be: of the tenant, and of groups in which its rules hold too.

    None = there is too much to look at.
    """
    shared = shared_digests(tenant_id=tenant, now=now)
    with connections[plane()].cursor() as cursor:
        cursor.execute(named("catalog", "quotas.sql")["tenant_held"], (tenant, shared, most + 1))
        rows = cursor.fetchall()
    if len(rows) > most:
        return None
    spaces = namespace_places({bytes(digest) for digest, *_rest in rows})
    rules, nodes = class_rules(tenants_of(spaces.values())), places({node for _digest, node, *_rest in rows})
    found: Counter[Where] = Counter()
    for digest, node, tier, size in rows:
        space, place = spaces.get(bytes(digest)), nodes.get(node)
        if space is not None and place is not None and tier in bars(space, place, rules):
            found[(space.digest, node, tier)] += int(size)
    return found


def leaving(before: Mapping[Where, int] | None, after: Mapping[Where, int] | None) -> dict[Where, int] | None:
    """What a change makes leave: misplaced after it and not before. None = not known."""
    if before is None or after is None:
        return None
    return {at: size - before.get(at, 0) for at, size in after.items() if size > before.get(at, 0)}


def by_tier(leaves: Mapping[Where, int] | None) -> dict[str, int] | None:
    """What leaves of each tier, hot first; None = not known."""
    if leaves is None:
        return None
    found = {str(t): sum(size for (_digest, _node, tier), size in leaves.items() if tier == t) for t in TIERS}
    return {tier: size for tier, size in found.items() if size}


def foreign_bytes(*, nodes: Collection[UUID], tenant: UUID) -> dict[UUID, int]:
    """Bytes of others on these nodes."""
    found = {}
    with connections[plane()].cursor() as cursor:
        for node in nodes:
            cursor.execute(named("catalog", "quotas.sql")["node_foreign"], (node, tenant))
            found[node] = int(cursor.fetchone()[0] or 0)
    return found
