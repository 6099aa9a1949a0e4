"""Reads what is said of nodes and their sources: one small statement for each kind of rows, for all nodes together."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, LiteralString, NamedTuple
from uuid import UUID

from catalog.selectors.views import RefusalView
from kvconsole.infra.statements import fetch

PEAK_FOR = timedelta(minutes=1)
"""What a tier reached counts for so long: an alert that came and went each second would tell nobody anything."""

_TIERS = """
SELECT node_id, tier, capacity_bytes, emulated, encrypted, high, low FROM catalog_nodetier WHERE node_id = ANY(%s)"""
_SOURCES = """
SELECT id, node_id, name, dp_rank, boot, stream, seq, state, reason, since, can_list, gaps, last_verified_at,
       last_frame_at
FROM catalog_source WHERE node_id = ANY(%s) ORDER BY name, dp_rank"""
_PULSES = "SELECT source, at, lag_ms, queue_ms, running FROM catalog_sourcepulse WHERE source = ANY(%s)"
_MARKS = "SELECT source, tier, used, capacity, high, low, at FROM catalog_tiermark WHERE source = ANY(%s)"
_HOLDINGS = """
SELECT o.source_id, o.tier, sum(h.blocks)::bigint
FROM catalog_owner o JOIN catalog_holding h ON h.owner = o.id
WHERE NOT o.retired AND o.source_id = ANY(%s) GROUP BY o.source_id, o.tier"""
"""Blocks by live owner: one row of `holding` per keyspace and owner, exact at every commit."""
_REFUSALS = """
SELECT source, code, count, last_at, detail FROM catalog_refusal WHERE source = ANY(%s) ORDER BY count DESC"""
_PEAKS = """
SELECT source, tier, max(peak::float8 / capacity) FROM catalog_marksample
WHERE source = ANY(%s) AND layer = 0 AND t0 > %s AND capacity > 0 GROUP BY source, tier"""
"""Highest fill of each tier, of the columns that began lately."""


class Tier(NamedTuple):
    """A tier as its agent declared it (`catalog.models.NodeTier`)."""

    node_id: UUID
    tier: str
    capacity_bytes: int
    emulated: bool
    encrypted: bool
    high: float
    low: float


class Source(NamedTuple):
    """A source with its cursor (`catalog.models.Source`)."""

    id: int
    node_id: UUID
    name: str
    dp_rank: int
    boot: str
    stream: str
    seq: int
    state: str
    reason: str
    since: datetime
    can_list: bool
    gaps: int
    last_verified_at: datetime | None
    last_frame_at: datetime | None


class Heard(NamedTuple):
    """When a source was last heard, and its load (`catalog.models.SourcePulse`)."""

    source: int
    at: datetime
    lag_ms: float | None
    queue_ms: float | None
    running: int | None


class Mark(NamedTuple):
    """The fill that a source last reported of a tier (`catalog.models.TierMark`)."""

    source: int
    tier: str
    used: int
    capacity: int
    high: float
    low: float
    at: datetime


class Facts(NamedTuple):
    """What is said of the nodes, by node, by number of the source, or by that and tier."""

    tiers: dict[UUID, list[Tier]]
    sources: dict[UUID, list[Source]]
    pulses: dict[int, Heard]
    marks: dict[tuple[int, str], Mark]
    blocks: dict[tuple[int, str], int]
    refusals: dict[int, list[RefusalView]]
    peaks: dict[tuple[int, str], float]


def facts_of(ids: Sequence[UUID], now: datetime) -> Facts:
    """What is said of these nodes: seven statements, two where none of them has a source yet."""
    tiers: dict[UUID, list[Tier]] = defaultdict(list)
    for row in fetch(_TIERS, [list(ids)]):
        tiers[row[0]].append(Tier(*row))
    sources: dict[UUID, list[Source]] = defaultdict(list)
    for row in fetch(_SOURCES, [list(ids)]):
        sources[row[1]].append(Source(*row))
    numbers = [s.id for of in sources.values() for s in of]
    refusals: dict[int, list[RefusalView]] = defaultdict(list)
    for source, code, count, last_at, detail in _said(_REFUSALS, numbers):
        refusals[source].append(RefusalView(code=code, count=count, last_at=last_at, detail=detail))
    return Facts(
        tiers,
        sources,
        {row[0]: Heard(*row) for row in _said(_PULSES, numbers)},
        {row[:2]: Mark(*row) for row in _said(_MARKS, numbers)},
        {(source, tier): count for source, tier, count in _said(_HOLDINGS, numbers)},
        refusals,
        {(source, tier): peak for source, tier, peak in _said(_PEAKS, numbers, now - PEAK_FOR)},
    )


def _said(query: LiteralString, numbers: list[int], *more: Any) -> list[tuple[Any, ...]]:
    return fetch(query, [numbers, *more]) if numbers else []
