"""Hot prefixes: what was hit most in the last hour, who holds its first run in which tiers, and who may read it.

A prefix is a family: all chains that begin with the same block. Hits and saved time are what nodes told of requests;
copies and bytes are of the family's first run, where everybody who reads it begins. Three statements, whatever the
number of blocks. Read on the fleet's connection: a tenant's people are given their own and those of their groups.
"""

from collections import Counter, defaultdict
from collections.abc import Collection
from datetime import datetime
from math import isnan
from typing import Any
from uuid import UUID

import msgspec
import numpy as np

from catalog.index.facts import unpack
from catalog.models.pictures import METRICS
from catalog.selectors.columns import Column, last_hour
from kvconsole.infra.access import FLEET_PLANE
from kvconsole.infra.sql import named
from kvconsole.infra.statements import fetch
from tenants.selectors import namespaces_by_digest, tenant_slugs

HITS, SAVED, RESIDENT = (METRICS.index(name) for name in ("hits", "saved", "resident"))


class PrefixView(msgspec.Struct, frozen=True, kw_only=True):
    """One hot prefix. `hit_tokens` and `saved_ms` are sums over the last hour, at least where not `complete`.

    `copies` = nodes that hold its first block; `tiers` = bytes of its first run in each tier, all copies together.
    `resident_blocks` = blocks of the whole family, at the end of the hour.
    """

    id: str
    family: str
    tenant: str
    tenant_id: UUID
    model: str
    namespace: str
    digest: str
    generation: int
    run_blocks: int
    block_tokens: int
    block_bytes: int
    hit_tokens: int
    saved_ms: float
    resident_blocks: int | None
    copies: int
    nodes: tuple[str, ...]
    tiers: dict[str, int]
    complete: bool

    @property
    def bytes(self) -> int:
        """Bytes of all copies of the first run."""
        return sum(self.tiers.values())


class Sums(msgspec.Struct, frozen=True):
    """What the hour told of each row: ids, then sums of hits and saved time, the last gauge, and what was not told."""

    hits: dict[int, float]
    saved: dict[int, float]
    resident: dict[int, float]
    unsure: set[int]


def hot_prefixes(
    *, now: datetime, limit: int, tenant: UUID | None = None, shared: Collection[bytes] = ()
) -> list[PrefixView]:
    """The prefixes that were hit most in the last hour, those first.

    Args:
        now: aware.
        limit: at most so many.
        tenant: whose alone, and those of the namespaces in `shared`; None = everybody's.
        shared: digests of namespaces of share groups that the tenant may read now.
    """
    columns = last_hour(now)
    sums = _sums(columns)
    if not sums.hits:
        return []
    query = named("catalog", "prefixes.sql")["families"]
    rows = fetch(query, [list(sums.hits), tenant, tenant, list(shared)], using=FLEET_PLANE)
    rows.sort(key=lambda r: (-sums.hits[r[0]], r[0]))
    rows = rows[:limit]
    places = _places(rows)
    names = namespaces_by_digest(list({bytes(r[5]) for r in rows}))
    slugs = tenant_slugs({r[2] for r in rows})
    return [_view(row, sums, places[row[3], row[4]], names.get(bytes(row[5])), slugs) for row in rows]


def _sums(columns: dict[int, Column]) -> Sums:
    """By row; a row with one figure that nobody told is unsure, and its sums are at least what they say."""
    hits, saved, resident = Counter[int](), Counter[int](), dict[int, float]()
    unsure = set[int]()
    for t0 in sorted(columns):
        column = columns[t0]
        figures = column.values[:, [HITS, SAVED, RESIDENT]]
        holes = np.isnan(figures[:, :2]).any(axis=1)
        unsure.update(column.ids[holes].tolist())
        told = np.nan_to_num(figures[:, :2]).tolist()
        for row, (hit, save), held in zip(column.ids.tolist(), told, figures[:, 2].tolist(), strict=True):
            hits[row] += hit
            saved[row] += save
            resident[row] = held
    return Sums(dict(hits), dict(saved), resident, unsure)


class _Head(msgspec.Struct):
    """The first run of one family as it is held."""

    blocks: int = 0
    nodes: set[UUID] = msgspec.field(default_factory=set)
    tiers: Counter[str] = msgspec.field(default_factory=Counter)


def _places(rows: list[tuple[Any, ...]]) -> dict[tuple[int, int], _Head]:
    found: dict[tuple[int, int], _Head] = defaultdict(_Head)
    query = named("catalog", "prefixes.sql")["heads"]
    wanted = sorted({(r[3], r[4]) for r in rows})
    pairs = [[keyspace for keyspace, _ in wanted], [family for _, family in wanted]]
    for keyspace, family, blocks, node, tier, n, held in fetch(query, pairs, using=FLEET_PLANE) if rows else ():
        head = found[keyspace, family]
        head.blocks = blocks
        if node is None:
            continue
        mask = unpack(n, held)
        head.tiers[tier] += mask.bit_count()
        if mask & 1:
            head.nodes.add(node)
    return found


def _view(row: tuple[Any, ...], sums: Sums, head: _Head, known: Any, slugs: dict[UUID, str]) -> PrefixView:
    at, group, tenant, _keyspace, _family, digest, generation, block_tokens, block_bytes = row
    label = (known.label if known else "") or bytes(digest).hex()[:8]
    return PrefixView(
        id=f"{at & (2**64 - 1):016x}",
        family=f"pfx_{at:016x}"[:12],
        tenant=slugs.get(tenant, ""),
        tenant_id=tenant,
        model=known.model if known else group,
        namespace=label,
        digest=bytes(digest).hex(),
        generation=generation,
        run_blocks=head.blocks,
        block_tokens=block_tokens,
        block_bytes=block_bytes,
        hit_tokens=int(sums.hits[at]),
        saved_ms=sums.saved[at],
        resident_blocks=None if isnan(sums.resident[at]) else int(sums.resident[at]),
        copies=len(head.nodes),
        nodes=tuple(str(node) for node in sorted(head.nodes)),
        tiers={tier: blocks * block_bytes for tier, blocks in head.tiers.items()},
        complete=at not in sums.unsure,
    )
