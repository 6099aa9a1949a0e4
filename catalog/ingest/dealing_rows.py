"""The statements by which the writer keeps what it has dealt; arrays in, one statement a table and commit."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

Statement = tuple[str, Sequence[Any]]

_EFFECTIVE = """
UPDATE catalog_quota q SET effective_bytes = u.size
FROM unnest(%s::uuid[], %s::text[], %s::bigint[]) AS u(tenant, tier, size)
WHERE q.tenant_id = u.tenant AND q.tier = u.tier"""
_ALLOWANCES = """
INSERT INTO catalog_allowance (tenant_id, node_id, tier, given, ceiling, floor)
SELECT * FROM unnest(%s::uuid[], %s::uuid[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[])
ON CONFLICT (tenant_id, node_id, tier) DO UPDATE SET given = excluded.given, ceiling = excluded.ceiling,
    floor = excluded.floor"""
_WITHOUT = """
DELETE FROM catalog_allowance a USING unnest(%s::uuid[], %s::uuid[], %s::text[]) AS u(tenant, node, tier)
WHERE a.tenant_id = u.tenant AND a.node_id = u.node AND a.tier = u.tier"""
_DEALS = """
INSERT INTO catalog_nodedeal (node_id, version, applied, at)
SELECT * FROM unnest(%s::uuid[], %s::bigint[], %s::bigint[], %s::timestamptz[])
ON CONFLICT (node_id) DO UPDATE SET version = excluded.version, applied = excluded.applied, at = excluded.at"""
_TIERS = """
INSERT INTO catalog_tenanttier (tenant_id, tier, blocks, bytes, at)
SELECT u.*, t.at FROM (SELECT %s::timestamptz AS at) t, unnest(%s::uuid[], %s::text[], %s::bigint[], %s::bigint[]) u
ON CONFLICT (tenant_id, tier) DO UPDATE SET blocks = excluded.blocks, bytes = excluded.bytes, at = excluded.at"""
FORGET_TIERS: Statement = ("UPDATE catalog_tenanttier SET blocks = 0, bytes = 0 WHERE blocks > 0", ())


def _columns(rows: Iterable[Sequence[Any]], width: int) -> list[list[Any]]:
    table = list(rows)
    return [[row[i] for row in table] for i in range(width)]


def effective(worth: Mapping[tuple[UUID, str], int]) -> Statement:
    """What guarantees are worth."""
    return _EFFECTIVE, _columns([(t, tier, size) for (t, tier), size in worth.items()], 3)


def allowances(rows: Iterable[Sequence[Any]]) -> Statement:
    """(tenant, node, tier, given, ceiling, floor) of what changed."""
    return _ALLOWANCES, _columns(rows, 6)


def without(rows: Iterable[Sequence[Any]]) -> Statement:
    """(tenant, node, tier) that are no more."""
    return _WITHOUT, _columns(rows, 3)


def deals(rows: Iterable[Sequence[Any]]) -> Statement:
    """(node, version, applied, at)."""
    return _DEALS, _columns(rows, 4)


def tiers(held: Mapping[tuple[UUID, str], tuple[int, int]], when: datetime) -> Statement:
    """(blocks, bytes) of tenants by tier."""
    return _TIERS, [when, *_columns([(t, tier, *sums) for (t, tier), sums in held.items()], 4)]
