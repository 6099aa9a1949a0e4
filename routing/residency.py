"""Decides whether a look-up may jump: whether who holds a block holds all blocks before it, as far as the catalog says.

A placement is *closed* if it is a segment's first blocks and begins a prompt, or continues what the same owner holds of
the segment above. Where every placement of a keyspace is, an owner's blocks end once on any chain, and a look-up may
ask few of them. Anything else is open: holes, what waits for its parent, what was cut in the middle. In doubt, open.

It stands on the chains as agents report them (`parent` in `docs/protocol.md`) and on keys that are asked for in a
prompt's order; who says otherwise gets a hit too many, which the target refuses.
"""

from collections.abc import Mapping
from dataclasses import dataclass

ROOT, ORPHAN = -2, -1
"""In place of the segment above: there is none; it is not known."""


@dataclass(slots=True)
class Segment:
    """What is known of a segment: its keyspace, fingerprints, and the place that its first key continues."""

    keyspace: int
    keys: bytearray
    up: int = ORPHAN
    offset: int = -1


class Residency:
    """Which placements are open, by keyspace."""

    def __init__(self) -> None:
        self.segments: dict[int, Segment] = {}
        self.below: dict[int, set[int]] = {}
        """Segment → those that continue a key of it."""
        self.open: dict[int, set[tuple[int, int]]] = {}

    def closed(self, keyspace: int) -> bool:
        """Whether every placement of the keyspace is closed."""
        return not self.open.get(keyspace)

    def join(self, number: int, up: int, offset: int) -> None:
        """The segment continues that place; whoever holds some of it must be judged again."""
        segment = self.segments[number]
        self._part(number, segment)
        segment.up, segment.offset = up, offset
        if up >= 0:
            self.below.setdefault(up, set()).add(number)

    def _part(self, number: int, segment: Segment) -> None:
        if (siblings := self.below.get(segment.up)) is not None:
            siblings.discard(number)
            if not siblings:
                del self.below[segment.up]

    def bury(self, number: int) -> Segment | None:
        """The segment is not known any more; what continued it waits for its parent."""
        segment = self.segments.pop(number, None)
        if segment is not None:
            self._part(number, segment)
        return segment

    def judge(self, owner: int, number: int, mine: Mapping[int, int]) -> None:
        """The owner's placement is open or not. `mine`: segment → mask of what the owner holds."""
        segment, mask = self.segments[number], mine.get(number, 0)
        if mask and not _closed(segment, mask, mine):
            self.open.setdefault(segment.keyspace, set()).add((owner, number))
        else:
            self.clear(owner, number)

    def changed(self, owner: int, number: int, mine: Mapping[int, int]) -> None:
        """The owner holds something else of the segment than before: it is judged, and what continues it."""
        self.judge(owner, number, mine)
        for below in self.below.get(number, ()):
            if below in mine and below in self.segments:
                self.judge(owner, below, mine)

    def clear(self, owner: int, number: int) -> None:
        """The owner's placement is not open."""
        segment = self.segments.get(number)
        marked = self.open.get(segment.keyspace) if segment else None
        if marked:
            marked.discard((owner, number))

    def drop(self, keyspace: int) -> None:
        """Nothing of the keyspace is known."""
        self.open.pop(keyspace, None)


def _closed(segment: Segment, mask: int, mine: Mapping[int, int]) -> bool:
    if mask & (mask + 1):
        return False
    if segment.up == ROOT:
        return segment.offset < 0  # else what a move brought along: nobody said that a prompt begins there
    return segment.up >= 0 and bool(mine.get(segment.up, 0) >> segment.offset & 1)


Stretch = tuple[int, int, tuple[int, ...]]


def stretches(holders: list[tuple[int, int]]) -> list[Stretch]:
    """(from, to, owners) of a segment's blocks, of those that somebody holds; `holders`: (owner, mask)."""
    first = holders[0][1]
    if not first & (first + 1) and all(mask == first for _, mask in holders):
        return [(0, first.bit_length(), tuple(sorted(owner for owner, _ in holders)))] if first else []
    edges = 0
    for _, mask in holders:
        edges |= mask ^ (mask << 1)
    out, start = [], -1
    while edges:
        at = (edges & -edges).bit_length() - 1
        edges &= edges - 1
        if start >= 0 and (owners := tuple(sorted(owner for owner, mask in holders if mask >> start & 1))):
            out.append((start, at, owners))
        start = at
    return out
