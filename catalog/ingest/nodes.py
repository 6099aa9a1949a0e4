"""Decides which nodes are there: what the fleet's table says of them, and when each was heard last.

Read from PostgreSQL about twice a second by the fold thread. A node is lost when it was silent for `SILENT_S`, or when
the table says so; its sources are then retired by `console_source`.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from catalog.ingest.sources import RANKS_MOST, SOURCES_MOST
from catalog.models import Node, NodeTier
from kvconsole.infra.sql import PLATFORM, named
from kvcore.blocks import VOLATILE, Tier
from kvcore.residency import Place

SILENT_S = 10.0
REFRESH_S = 0.5
STALL_S = 3.0
"""A writer that did not run for so long could not have heard anybody: silence is counted from then on."""
HEARD_EVERY_S = 1.0
HEARD = (
    "UPDATE catalog_node n SET last_heard_at = greatest(n.last_heard_at, to_timestamp(h.at)) "
    "FROM unnest(%s::uuid[], %s::float8[]) AS h(id, at) WHERE n.id = h.id"
)
NODE_COLUMNS = ("id", "name", "state", "engine", "last_heard_at", "region", "dedicated_to", "enrolled_at")
TIER_COLUMNS = ("node_id", "tier", "capacity_bytes", "encrypted")
GONE = frozenset({"lost", "fenced"})
SHUT = frozenset({"fenced"})
"""States in which nothing a node says is folded."""


@dataclass(slots=True)
class NodeRow:
    """One node as the fleet's table has it."""

    id: UUID
    name: str
    state: str
    can_list: bool
    ranks: int
    """Data-parallel ranks of each of its sources, as it said at enrolment; 0 = it did not."""
    persistent: bool
    heard: float
    place: Place
    tiers: dict[str, int]
    """Tier → bytes, as its agent declared it."""
    joined: bool
    keeps_allowances: bool


def can_list(engine: Any) -> bool:
    """Whether the node's engine can say what it holds; unknown means yes, and its silence will show otherwise."""
    capabilities = engine.get("capabilities") if isinstance(engine, dict) else None
    if isinstance(capabilities, dict):
        return bool(capabilities.get("inventory", capabilities.get("list", True)))
    if isinstance(capabilities, list):
        return "inventory" in capabilities or "list" in capabilities
    return True


def ranks(engine: Any) -> int:
    """How many data-parallel ranks speak for each source of the node; 0 where it was not said."""
    if not isinstance(engine, dict):
        return 0
    capabilities = engine.get("capabilities")
    said = engine.get("dp_size") or (capabilities.get("dp_size") if isinstance(capabilities, dict) else None)
    return min(said, RANKS_MOST) if type(said) is int and said > 0 else 0


def keeps_allowances(engine: Any) -> bool:
    """Whether the node's agent manages the blocks itself, and so keeps tenants within what they may hold."""
    capabilities = engine.get("capabilities") if isinstance(engine, dict) else None
    said = capabilities.get("allowances") if isinstance(capabilities, dict) else None
    return bool(said) if said is not None else isinstance(engine, dict) and engine.get("kind") == "reference"


@dataclass(slots=True)
class NodeBook:
    """All nodes, by id; `heard` is the later of what the table says and what this process heard."""

    started: float
    rows: dict[UUID, NodeRow] = field(default_factory=dict)
    as_of: float = 0.0
    dirty: bool = True
    _gone: dict[UUID, str] = field(default_factory=dict)
    _tell: dict[UUID, float] = field(default_factory=dict)
    _told: dict[UUID, float] = field(default_factory=dict)
    _fences: dict[UUID, int] = field(default_factory=dict)
    _fenced: dict[UUID, int] = field(default_factory=dict)
    _ranks: dict[UUID, dict[str, int]] = field(default_factory=dict)

    def due(self, now: float) -> bool:
        """Whether `refresh` would read."""
        return self.dirty or not 0 <= now - self.as_of < REFRESH_S

    def refresh(self, now: float) -> None:
        """The rows are as in the table."""
        if not self.due(now):
            return
        if not -1 <= now - self.as_of < STALL_S:
            self.started = now
        tiers: dict[UUID, dict[str, tuple[int, bool]]] = {}
        for node, tier, size, encrypted in NodeTier.objects.values_list(*TIER_COLUMNS):
            tiers.setdefault(node, {})[tier] = size, encrypted
        fresh = {}
        for node, name, state, engine, at, region, owner, joined in Node.objects.values_list(*NODE_COLUMNS):
            old, has = self.rows.get(node), tiers.get(node, {})
            heard = max(old.heard if old else 0.0, at.timestamp() if at else 0.0)
            encrypted = frozenset(tier for tier, (_, sealed) in has.items() if sealed)
            fresh[node] = NodeRow(
                node, name, state, can_list(engine), ranks(engine), any(Tier(t) not in VOLATILE for t in has), heard,
                Place(region=region, encrypted=encrypted, dedicated_to=str(owner or "")),
                {tier: size for tier, (size, _) in has.items()}, joined is not None, keeps_allowances(engine),
            )  # fmt: skip
        self.rows, self.as_of, self.dirty = fresh, now, False

    def heard(self, node: UUID, now: float) -> None:
        """The node spoke."""
        row = self.rows.get(node)
        if row is not None:
            row.heard = max(row.heard, now)
            self._tell[node] = now

    def stated(self, node: UUID, said: dict[str, int]) -> None:
        """The node said how many ranks speak for these sources; of the last others, what it said before still holds."""
        before = {name: count for name, count in self._ranks.get(node, {}).items() if name not in said}
        if said:
            self._ranks[node] = dict([*before.items(), *said.items()][-SOURCES_MOST:])

    def ranks_of(self, node: UUID, source: str) -> int:
        """How many ranks speak for the source: as said at enrolment, else in a heartbeat; 0 = it was never said."""
        return self.rows[node].ranks or self._ranks.get(node, {}).get(source, 0)

    def applied(self, node: UUID, fence_seq: int) -> None:
        """The node said how far it has applied the fences."""
        if fence_seq > self._fences.get(node, 0):
            self._fences[node] = fence_seq
            self._fenced[node] = fence_seq

    def lost(self, now: float) -> dict[UUID, str]:
        """Nodes that are lost now, and why: silent, or the state that the table newly has."""
        out = {}
        for row in self.rows.values():
            if row.state in GONE and self._gone.get(row.id) != row.state:
                out[row.id] = row.state
            elif now - max(row.heard, self.started) > SILENT_S:
                out[row.id] = "silent"
        self._gone = {row.id: row.state for row in self.rows.values() if row.state in GONE}
        return out

    def statements(self, now: float) -> list[tuple[str, tuple[Any, ...]]]:
        """`last_heard_at` of the nodes that spoke, at most once a second each, and the fences they have applied."""
        out: list[tuple[str, tuple[Any, ...]]] = []
        due = [(n, at) for n, at in self._tell.items() if now - self._told.get(n, 0.0) >= HEARD_EVERY_S]
        for node, at in due:
            self._told[node] = at
            del self._tell[node]
        if due:
            out.append((HEARD, ([n for n, _ in due], [at for _, at in due])))
        when = datetime.fromtimestamp(now, UTC)
        acknowledge = named("tenants")["fence_acknowledge"]
        out += [(acknowledge, (PLATFORM, "node", str(n), seq, when)) for n, seq in self._fenced.items()]
        self._fenced = {}
        return out
