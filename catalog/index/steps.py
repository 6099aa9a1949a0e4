"""Decides what the pipeline says to the writer's memory (`Work`) and what it hears back (`Touched`).

`catalog.ingest.pipeline` builds the steps, `Memory.apply` folds them, `Store.commit` makes the result durable.
Numbers: a *source* is (node, name, dp_rank), an *owner* one incarnation of (source, tier), a *keyspace* one
(namespace digest, generation, cache group), a *family* the segment that a conversation tree is named after.
All times are UNIX seconds.
"""

from collections import Counter
from dataclasses import dataclass, field
from uuid import UUID

import msgspec

ADD, MOVE, DROP, STATE, ADDS, VACATE = "add", "move", "drop", "state", "adds", "vacate"
TAKEN = "taken"
CLEAR, RESET, LOSE, LIST, LISTED = "clear", "reset", "lose", "list", "listed"
CONTROL = frozenset({CLEAR, RESET, LOSE, LIST, LISTED})
"""Steps without keys."""
NO_FAMILY = -1
"""Family of blocks that left with a whole owner: they are counted by keyspace only."""


class Work(msgspec.Struct, frozen=True, gc=False):
    """One step, already checked and resolved; steps are folded in the order of the list.

    kind:
      add    consecutive blocks of one chain came to `tier`; `parent` is the key before the first, None at a root;
             `reason` TAKEN: out of a move, which ends every state that they had there
      adds   single blocks of many chains came; `parents` is packed like `keys`, 32 zero bytes at a root
      move   blocks went from `tier` to `to`
      drop   blocks left `tier` for `reason`
      state  blocks of `tier` are now `state`
      vacate blocks of `tier` were taken by another owner: those held are evicting, whatever is told of them again
      clear  `tiers` (all if empty) were emptied, of `keyspaces` or, if that is None, altogether
      reset  a new boot: volatile tiers leave in one row each
      lose   the node is gone: every tier of the source leaves in one row each
      list   an inventory begins: what is not added between here and `listed` leaves `tiers` (all if empty)
      listed the inventory ends; both must stand in one `apply`
    """

    kind: str
    source: int
    tier: str = ""
    keyspace: int = -1
    keys: bytes = b""
    parent: bytes | None = None
    parents: bytes = b""
    to: str = ""
    state: str = "committed"
    reason: str = ""
    tiers: tuple[str, ...] = ()
    keyspaces: tuple[int, ...] | None = None
    taker: tuple[int, str] | None = None
    """Of a vacate: (source, tier) to which the blocks went; its steps stand before."""
    tag: int = 0
    """The caller's own number of the step: notes about it carry the number."""


def replacement(source: int, adds: list[Work], tiers: tuple[str, ...] = ()) -> list[Work]:
    """Steps that make the source's content exactly what `adds` list, as a diff: an inventory in one commit."""
    return [Work(LIST, source, tiers=tiers), *adds, Work(LISTED, source, tiers=tiers)]


@dataclass(slots=True)
class SourceRow:
    """One source as its row has it. The pipeline changes it and names it in `Touched.sources`."""

    id: int
    node_id: UUID
    name: str
    dp_rank: int
    boot: str = ""
    stream: str = ""
    seq: int = -1
    old_boots: tuple[str, ...] = ()
    state: str = "recovering"
    reason: str = "new"
    since: float = 0.0
    last_verified_at: float | None = None
    last_frame_at: float | None = None
    can_list: bool = True
    gaps: int = 0


@dataclass(slots=True)
class Keyspace:
    """One (digest, generation, group): its number is mixed into the key map, so a key may stand in several."""

    id: int
    tenant_id: UUID
    namespace_id: UUID | None
    digest: bytes
    generation: int
    group: int
    block_tokens: int
    block_bytes: int
    claimed: bool


@dataclass(slots=True)
class Owner:
    """One incarnation of (source, tier). Loss and clear retire it; what comes after has another number."""

    id: int
    source: int
    tier: str
    born: float
    """When it was first committed, 0 before."""
    retired: bool = False


@dataclass(slots=True)
class Touched:
    """What folded steps changed. The store writes it; the pictures count it; the pipeline reads the notes."""

    # for the store, by id: values are read from the memory when the commit is prepared
    born: list[int] = field(default_factory=list)
    """New segments."""
    grown: list[tuple[int, int, bytes]] = field(default_factory=list)
    """(segment, offset, keys of 16 bytes) of newly placed keys."""
    placed: set[tuple[int, int]] = field(default_factory=set)
    """(owner, segment) of placements that changed; `fresh` of those that began."""
    fresh: set[tuple[int, int]] = field(default_factory=set)
    heirs: set[tuple[int, int, int]] = field(default_factory=set)
    """(owner, segment, owner before): blocks that were moved keep the birth that they had there."""
    held: set[tuple[int, int]] = field(default_factory=set)
    """(keyspace, owner) of holdings that changed."""
    owners: set[int] = field(default_factory=set)
    sources: set[int] = field(default_factory=set)
    keyspaces: set[int] = field(default_factory=set)
    claimed: set[int] = field(default_factory=set)
    """Keyspaces that came to another tenant: their rows follow."""
    # for the pictures, in blocks
    added: Counter[tuple[int, str, int, int]] = field(default_factory=Counter)
    """(source, tier, keyspace, family) → blocks that came, moved ones not counted."""
    dropped: Counter[tuple[int, str, str, int, int]] = field(default_factory=Counter)
    """(source, tier, reason, keyspace, family) → blocks that left. Besides the reasons of `drop`: clear, reset, lose,
    inventory."""
    moved: Counter[tuple[int, str, str, int, int]] = field(default_factory=Counter)
    """(source, from, to, keyspace, family) → blocks that left `from` by a move."""
    # notes for the pipeline, in keys
    unheld: Counter[tuple[int, int]] = field(default_factory=Counter)
    """(source, tag) → keys of move, drop and state steps that their owner was not believed to hold."""
    illegal: Counter[tuple[int, int]] = field(default_factory=Counter)
    """(source, tag) → keys whose state may not become what the step says; they keep the state they had."""
    mismatched: Counter[tuple[int, int]] = field(default_factory=Counter)
    """(source, tag) → added keys that name another parent than the one they were first reported with."""
    pairs: int = 0
    """(key, owner) pairs the steps spoke of."""

    def __bool__(self) -> bool:
        """Whether a commit has anything to say of it."""
        return bool(
            self.placed or self.held or self.owners or self.sources or self.keyspaces or self.grown or self.born
        )
