"""Reads what rules and own nodes would make leave: bytes that are where they may not be, and nodes to choose from.

For pages, which ask within the rehearsal of a change: what is barred then and was not before, leaves. Called on the
fleet's plane.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from uuid import UUID

import msgspec
from django.db import connections

from catalog.models import Node
from catalog.placing import bars, class_rules, places
from kvconsole.infra.access import plane
from kvconsole.infra.sql import named
from tenants.placing import namespace_places
from tenants.selectors import tenant_slugs

MOST_HELD = 20_000
"""Namespaces times nodes times tiers that are looked at; of a tenant with more it is not known what leaves."""

Where = tuple[str, UUID, str]
"""Data class, node, tier."""


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


def misplaced(*, tenant: UUID, most: int = MOST_HELD) -> Counter[Where] | None:
    """Bytes of the tenant's own namespaces that are where they may not be by now; None = too many to look at."""
    with connections[plane()].cursor() as cursor:
        cursor.execute(named("catalog", "quotas.sql")["tenant_held"], (tenant, most + 1))
        rows = cursor.fetchall()
    if len(rows) > most:
        return None
    spaces = namespace_places({bytes(digest) for digest, *_rest in rows})
    rules, nodes = class_rules([tenant]), places({node for _digest, node, *_rest in rows})
    found: Counter[Where] = Counter()
    for digest, node, tier, size in rows:
        space, place = spaces.get(bytes(digest)), nodes.get(node)
        if space is not None and place is not None and tier in bars(space, place, rules):
            found[(space.data_class, node, tier)] += int(size)
    return found


def leaving(before: Mapping[Where, int] | None, after: Mapping[Where, int] | None) -> dict[Where, int] | None:
    """What a change makes leave: misplaced after it and not before. None = not known."""
    if before is None or after is None:
        return None
    return {at: size - before.get(at, 0) for at, size in after.items() if size > before.get(at, 0)}


def foreign_bytes(*, nodes: Collection[UUID], tenant: UUID) -> dict[UUID, int]:
    """Bytes of others on these nodes."""
    found = {}
    with connections[plane()].cursor() as cursor:
        for node in nodes:
            cursor.execute(named("catalog", "quotas.sql")["node_foreign"], (node, tenant))
            found[node] = int(cursor.fetchone()[0] or 0)
    return found
