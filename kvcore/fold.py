"""Decides which frame is next, and what an item changes: the sequence rules and the reference fold.

`Cursor.advance` is called by ingest for every frame (and by agents to mirror it). `fold` is the plain form of what
the store does with runs and masks: one dictionary entry per block, so that tests can hold the fast form against it.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import NamedTuple, assert_never

import msgspec

from kvcore.blocks import TIERS, VOLATILE, BlockState, Tier, transition
from kvcore.blocks import IllegalTransition as _Illegal
from kvcore.events import Add, Adds, Clear, Drop, Item, Load, Mark, Move, State, Use
from kvcore.events import Gap as GapItem
from kvcore.keys import unpack

LIVES_MAX = 256
"""Ended boots and streams a cursor remembers. Older ones are forgotten: a source that restarts this often and then
shows frames of its first life is treated as a new boot, which costs an inventory and loses nothing."""
RESEND_WINDOW = 4_096
"""How far below the position a frame may lie and still be the resending of one whose answer was lost."""


class Next(msgspec.Struct, frozen=True):
    """The frame is the next one: fold it."""


class Duplicate(msgspec.Struct, frozen=True):
    """The frame was folded before or belongs to an ended life: drop it, its effect is in the catalog or void.

    `code`: duplicate (resent) | seq-backwards (far below the position: its sender lost count) | fenced-boot.
    """

    code: str = "duplicate"


class Gap(msgspec.Struct, frozen=True):
    """Frames are missing: fold nothing, ask for `expect_seq`.

    `inventory`: rewinding cannot help, since the missing frames were numbered in a stream that no longer exists.
    """

    expect_seq: int
    inventory: bool = False


class Reset(msgspec.Struct, frozen=True):
    """A new boot begins: everything volatile of `ended` ("" at first contact) leaves, persistent tiers are uncertain
    until listed; then fold the frame."""

    ended: str = ""


Verdict = Next | Duplicate | Gap | Reset


class Cursor(msgspec.Struct, frozen=True):
    """Position of one (source, dp_rank, shard): the last frame that is folded and committed.

    `boot` "" = never heard of; `seq` −1 = no frame of this stream yet; `old_boots` = ended boots and ended streams.
    """

    boot: str = ""
    stream: str = ""
    seq: int = -1
    old_boots: tuple[str, ...] = ()

    def advance(self, boot: str, stream: str, seq: int) -> tuple["Cursor", Verdict]:
        """The position after a frame and what the frame is; the position changes on Next and Reset only.

        Same boot and new stream is a gap until `listed` sets the position: the end of the old stream may be lost.
        A new boot starts with seq 0; before that frame has come the old life stands (and is shown as recovering).

        Source: `docs/protocol.md`, ADR "position as version, gap as a value".
        """
        if boot == self.boot and stream == self.stream:
            if seq == self.seq + 1:
                return Cursor(boot, stream, seq, self.old_boots), Next()
            if seq > self.seq:
                return self, Gap(self.seq + 1)
            return self, Duplicate("duplicate" if seq > self.seq - RESEND_WINDOW else "seq-backwards")
        if boot in self.old_boots or stream in self.old_boots:
            return self, Duplicate("fenced-boot")
        if boot == self.boot:
            return self, Gap(0, inventory=True)
        if seq:
            return self, Gap(0)
        return Cursor(boot, stream, 0, self._ended(boot, stream)), Reset(self.boot)

    def listed(self, boot: str, stream: str, seq: int) -> tuple["Cursor", Verdict]:
        """The position after an inventory that is exact as of `seq`, −1 = before the first frame of the stream.

        Next = the inventory holds and the frame `seq + 1` is wanted; Reset = the same, and it opens a new boot;
        Duplicate = it is older than what is folded, or of an ended life: it may not replace anything. Never Gap.
        """
        if boot in self.old_boots or stream in self.old_boots:
            return self, Duplicate("fenced-boot")
        if (boot, stream) == (self.boot, self.stream) and seq < self.seq:
            return self, Duplicate()
        after = Cursor(boot, stream, seq, self._ended(boot, stream))
        return after, Next() if boot == self.boot else Reset(self.boot)

    def _ended(self, boot: str, stream: str) -> tuple[str, ...]:
        over = tuple(x for x, y in ((self.boot, boot), (self.stream, stream)) if x and x != y)
        return (self.old_boots + over)[-LIVES_MAX:]


class Place(NamedTuple):
    """One block on one tier of one source."""

    tier: str
    ns: bytes
    gen: int
    group: int
    key: bytes


class Change(NamedTuple):
    """The block's state before and after; None = not held. `quarantined` is a mark on a committed block."""

    place: Place
    before: str | None
    after: str | None


class StaleGeneration(NamedTuple):
    """Blocks of a fenced generation are there: folded, never routable, and a re-delete is due."""

    ns: bytes
    gen: int
    min_gen: int
    blocks: int


class Unclaimed(NamedTuple):
    """Blocks of a namespace nobody registered: folded, seen by fleet roles only, adopted when it is registered."""

    ns: bytes
    blocks: int


class IllegalTransition(NamedTuple):
    """The block keeps its state; the source is asked for its inventory."""

    place: Place
    before: str
    after: str


class UnknownKey(NamedTuple):
    """The item speaks of a block the source was not believed to hold; it is asked for its inventory."""

    place: Place


class Unverified(NamedTuple):
    """What the source holds on these tiers is no longer known: until listed it is not exact."""

    tiers: tuple[str, ...]
    reason: str


HELD = frozenset({"committed", "referenced", "quarantined"})
Note = StaleGeneration | Unclaimed | IllegalTransition | UnknownKey | Unverified
"""What is remarkable about a folded item."""
Placements = Mapping[Place, str]
"""What one source is believed to hold: place → state, "committed" where nothing else was told."""


def fold(
    placements: Placements, item: Item, min_gen: Mapping[bytes, int] | None = None
) -> tuple[list[Change], list[Note]]:
    """What an item changes, block by block, and what is remarkable about it. `placements` itself is not changed.

    Facts are never refused because we dislike them: a stale or unclaimed block *is there*.

    Args:
        placements: of the item's source.
        item: a checked item.
        min_gen: registered namespaces and their fences; None = do not judge namespaces.

    Transitions: `kvcore.blocks.TRANSITIONS`.
    """
    match item:
        case Add() | Adds():
            notes = _judge(item.ns, item.gen, len(item.keys) // 32, min_gen)
            return _set(placements, item, item.tier, BlockState.COMMITTED, notes), notes
        case State():
            notes = _judge(item.ns, item.gen, len(item.keys) // 32, min_gen)
            return _set(placements, item, item.tier, item.state, notes), notes
        case Drop():
            notes = []
            return _drop(placements, item, item.tier, notes), notes
        case Move():
            notes = _judge(item.ns, item.gen, len(item.keys) // 32, min_gen)
            gone = _drop(placements, item, item.from_, notes)
            if item.from_ == item.to:  # a move onto itself says only that the blocks are there
                return [], notes
            return gone + _set(placements, item, item.to, BlockState.COMMITTED, notes), notes
        case Clear():
            if not item.tiers:
                return [], [Unverified(tuple(TIERS), "clear")]
            return list(_cleared(placements, item)), []
        case GapItem():
            return [], [Unverified(tuple(TIERS), item.reason)]
        case Use() | Load() | Mark():
            return [], []
        case _:
            assert_never(item)


def reset(placements: Placements) -> tuple[list[Change], list[Note]]:
    """What a new boot changes: volatile blocks leave, persistent ones stay but are unverified."""
    gone = [Change(p, s, None) for p, s in placements.items() if Tier(p.tier) in VOLATILE]
    return gone, [Unverified(tuple(t for t in TIERS if t not in VOLATILE), "boot")]


def apply(placements: MutableMapping[Place, str], changes: list[Change]) -> None:
    """The changes are made in `placements`."""
    for place, _, after in changes:
        if after is None:
            placements.pop(place, None)
        else:
            placements[place] = after


def _judge(ns: bytes, gen: int, blocks: int, min_gen: Mapping[bytes, int] | None) -> list[Note]:
    if min_gen is None:
        return []
    fence = min_gen.get(ns)
    if fence is None:
        return [Unclaimed(ns, blocks)]
    return [StaleGeneration(ns, gen, fence, blocks)] if gen < fence else []


def _places(item: Add | Adds | Move | Drop | State, tier: str) -> Iterator[Place]:
    return (Place(tier, item.ns, item.gen, item.group, key) for key in unpack(item.keys))


def _set(
    placements: Placements, item: Add | Adds | Move | State, tier: str, state: str, notes: list[Note]
) -> list[Change]:
    changes = []
    for place in _places(item, tier):
        before = placements.get(place)
        if before is None and isinstance(item, State):
            notes.append(UnknownKey(place))
        elif before == state or (isinstance(item, Add | Adds) and before in HELD):
            continue  # repeating is no change, and announcing a block again neither unpins nor unmarks it
        elif before is not None and not _legal(before, state):
            notes.append(IllegalTransition(place, before, state))
        else:
            changes.append(Change(place, before, state))
    return changes


def _legal(before: str, after: str) -> bool:
    if after == "quarantined":
        return before == BlockState.COMMITTED
    try:
        transition(BlockState.COMMITTED if before == "quarantined" else BlockState(before), BlockState(after))
    except _Illegal:
        return False
    return True


def _drop(placements: Placements, item: Move | Drop, tier: str, notes: list[Note]) -> list[Change]:
    changes, seen = [], set()
    for place in _places(item, tier):
        before = placements.get(place)
        if before is None or place in seen:
            notes.append(UnknownKey(place))
        else:
            seen.add(place)
            changes.append(Change(place, before, None))
    return changes


def _cleared(placements: Placements, item: Clear) -> Iterator[Change]:
    for place, state in placements.items():
        if place.tier not in item.tiers or item.ns not in (None, place.ns):
            continue
        if item.gen_upto is None or place.gen <= item.gen_upto:
            yield Change(place, state, None)
