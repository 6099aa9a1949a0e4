"""Keeps the catalog's placements as a routing index: rows once, then the ledger's absolute facts.

One `View` is one load. Called by `replica` in its thread; look-ups read beside it.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple
from uuid import UUID

from catalog.index.facts import Facts, unpack, unpack_states
from routing.index import FINGERPRINT, Index

CATALOG_KEY = 16
DRAIN_STEP = 2_000
"""Placements of retired owners that are cleared after one batch."""
UNROUTABLE = ("transferring", "evicting", "quarantined", "allocated")


class Who(NamedTuple):
    """Whose memory an owner is."""

    node: UUID
    source: str
    dp_rank: int
    tier: str


class Space(NamedTuple):
    """What a keyspace's number stands for."""

    digest: bytes
    generation: int
    group: int


@dataclass
class View:
    """The index of one load, and what is needed to follow the ledger. `live` = look-ups may use it."""

    index: Index
    keys_max: int
    live: bool = False
    at: dict[int, int] = field(default_factory=dict)
    spaces: dict[int, Space] = field(default_factory=dict)
    number: dict[Space, int] = field(default_factory=dict)
    sources: dict[int, tuple[UUID, str, int, str]] = field(default_factory=dict)
    owners: dict[int, tuple[int, str]] = field(default_factory=dict)
    min_gen: dict[bytes, int] = field(default_factory=dict)
    evicted: set[int] = field(default_factory=set)
    used: dict[int, float] = field(default_factory=dict)
    keys: int = 0
    _segments: dict[int, tuple[int, bytearray]] = field(default_factory=dict)
    _of_space: dict[int, set[int]] = field(default_factory=dict)
    _place: dict[int, dict[int, int]] = field(default_factory=dict)
    _ghosts: deque[tuple[int, dict[int, int]]] = field(default_factory=deque)

    # ---------------------------------------------------------------- look-ups
    def routable(self, keyspace: int) -> bool:
        """Whether anything of the keyspace may be answered: not fenced, not evicted for want of memory."""
        space = self.spaces.get(keyspace)
        return (
            space is not None and space.generation >= self.min_gen.get(space.digest, 0) and keyspace not in self.evicted
        )

    def who(self, owner: int) -> Who | None:
        """Whose memory it is; None if it has just gone."""
        source, tier = self.owners.get(owner, (-1, ""))
        row = self.sources.get(source)
        return None if row is None else Who(row[0], row[1], row[2], tier)

    # ---------------------------------------------------------------- names
    def keyspace(self, number: int, digest: bytes, generation: int, group: int) -> None:
        """The number stands for this."""
        space = Space(digest, generation, group)
        self.spaces[number], self.number[space] = space, number

    def source(self, number: int, node: UUID, name: str, dp_rank: int, state: str) -> None:
        """The source is known; nothing of a lost one is answered."""
        before = self.sources.get(number)
        self.sources[number] = (node, name, dp_rank, state)
        if before is not None and (before[3] == "lost") != (state == "lost"):
            for owner, (source, _) in self.owners.items():
                if source == number:
                    self.index.hide(owner, state == "lost")

    def owner(self, number: int, source: int, tier: str, retired: bool) -> None:
        """The owner is known. A retired one is in no answer from now on, however much it held."""
        if not retired:
            self.owners[number] = (source, tier)
            if self.sources.get(source, ("", "", 0, ""))[3] == "lost":
                self.index.hide(number, True)
            return
        if self.owners.pop(number, None) is not None:
            self.index.hide(number, True)
            self._ghosts.append((number, self._place.pop(number, {})))

    def fence(self, digest: bytes, min_gen: int) -> None:
        """What carries a smaller generation is gone at once and never comes back."""
        if min_gen <= self.min_gen.get(digest, 0):
            return
        self.min_gen[digest] = min_gen
        for number, space in list(self.spaces.items()):
            if space.digest == digest and space.generation < min_gen:
                self.drop(number)

    def drop(self, keyspace: int) -> None:
        """The keyspace is out of the index, and its segments out of memory."""
        self.index.drop(keyspace)
        for segment in self._of_space.pop(keyspace, ()):
            entry = self._segments.pop(segment, None)
            if entry:
                self.keys -= len(entry[1]) // FINGERPRINT

    # ---------------------------------------------------------------- facts
    def segment(self, number: int, keyspace: int, keys: bytes = b"") -> None:
        """The segment is known, unless its keyspace may not be answered."""
        if number in self._segments or not self.routable(keyspace):
            return
        fingerprints = bytearray(_fingerprints(keys))
        self._segments[number] = (keyspace, fingerprints)
        self._of_space.setdefault(keyspace, set()).add(number)
        self.keys += len(fingerprints) // FINGERPRINT

    def placement(self, owner: int, segment: int, n: int, held: bytes | None, states: bytes | None) -> None:
        """The owner holds exactly these offsets of the segment; what is not committed is not routable."""
        self.placements([(owner, segment, n, held, states)])

    def placements(self, places: Iterable[tuple[int, int, int, bytes | None, bytes | None]]) -> None:
        """All of these are so. What one owner lost and another got goes over in one step for each block."""
        before: dict[int, dict[int, int]] = {}
        for owner, segment, n, held, states in places:
            if owner not in self.owners:
                continue
            mask = unpack(n, held) if n else 0
            for state, part in unpack_states(states).items():
                if state in UNROUTABLE:
                    mask &= ~part
            mine = self._place.setdefault(owner, {})
            before.setdefault(segment, {}).setdefault(owner, mine.get(segment, 0))
            if mask:
                mine[segment] = mask
            else:
                mine.pop(segment, None)
        for segment, owners in before.items() if self.live else ():
            if (entry := self._segments.get(segment)) is not None:
                self._change(segment, entry, owners)

    def _change(self, segment: int, entry: tuple[int, bytearray], before: dict[int, int]) -> None:
        """The index has what the owners hold of the segment now, instead of what they did before."""
        (space, keys), index = entry, self.index
        now = {owner: self._place[owner].get(segment, 0) for owner in before}
        came = {owner: mask & ~before[owner] for owner, mask in now.items()}
        gone = {owner: before[owner] & ~mask for owner, mask in now.items()}
        for target, source in product(came, gone) if len(now) > 1 else ():
            if both := came[target] & gone[source]:
                index.move(space, source, target, _pick(keys, both))
                came[target] &= ~both
                gone[source] &= ~both
        for owner, mask in came.items():
            if mask:
                index.add(space, owner, _pick(keys, mask))
        for owner, mask in gone.items():
            if mask:
                index.remove(space, owner, _pick(keys, mask))

    def apply(self, facts: Facts) -> None:
        """One ledger row has happened."""
        for number, _, digest, generation, group in facts.keyspaces:
            self.keyspace(number, digest, generation, group)
        for number, node, name, dp_rank, state in facts.sources:
            self.source(number, UUID(bytes=node), name, dp_rank, state)
        for number, source, tier, retired in facts.owners:
            self.owner(number, source, tier, retired)
        for segment, keyspace, *_ in facts.born:
            self.segment(segment, keyspace)
        for segment, offset, keys in facts.keys:
            self._grow(segment, offset, keys)
        self.placements(facts.places)
        for segment in facts.dead:
            self._bury(segment)
        if self.live:
            self.drain(DRAIN_STEP)

    def _grow(self, segment: int, offset: int, keys: bytes) -> None:
        entry = self._segments.get(segment)
        if entry is None:
            return
        have = len(entry[1]) // FINGERPRINT
        if have < offset:  # swept later in the ledger
            return
        new = _fingerprints(keys)[(have - offset) * FINGERPRINT :]
        entry[1].extend(new)
        self.keys += len(new) // FINGERPRINT

    def _bury(self, segment: int) -> None:
        for owner, held in self._ghosts:
            self._clear(owner, segment, held.pop(segment, 0))
        keyspace, fingerprints = self._segments.pop(segment, (-1, bytearray()))
        self.keys -= len(fingerprints) // FINGERPRINT
        if keyspace in self._of_space:
            self._of_space[keyspace].discard(segment)

    def _clear(self, owner: int, segment: int, mask: int) -> None:
        entry = self._segments.get(segment)
        if entry is not None and mask:
            self.index.remove(entry[0], owner, _pick(entry[1], mask))

    def drain(self, limit: int) -> None:
        """Some of what retired owners left in the index is cleared; their bits are free when all of it is."""
        while self._ghosts and limit > 0:
            owner, held = self._ghosts[0]
            while held and limit > 0:
                segment, mask = held.popitem()
                self._clear(owner, segment, mask)
                limit -= 1
            if not held:
                self._ghosts.popleft()
                self.index.forget(owner)

    def fill(self) -> Iterator[None]:
        """All placements enter the index; yields now and then, so that the caller can see to its lease."""
        for i, (owner, held) in enumerate(self._place.items()):
            for j, (segment, mask) in enumerate(held.items()):
                entry = self._segments.get(segment)
                if entry is not None:
                    self.index.add(entry[0], owner, _pick(entry[1], mask))
                if not j % 1000:
                    yield
            if not i % 100:
                self.shed()
                yield
        self.live = True

    def shed(self) -> None:
        """The cap holds: keyspaces that were not looked up for longest are evicted whole, and answer nothing."""
        while self.keys > self.keys_max and self._of_space:
            victim = min(self._of_space, key=lambda k: self.used.get(k, 0.0))
            self.evicted.add(victim)
            self.drop(victim)

    def known(self, segments: Iterable[int]) -> list[int]:
        """Those of the segments that are in memory."""
        return [s for s in segments if s in self._segments]


def _fingerprints(keys: bytes) -> bytes:
    return b"".join(keys[i : i + FINGERPRINT] for i in range(0, len(keys), CATALOG_KEY))


def _pick(fingerprints: bytearray, mask: int) -> bytes:
    """The fingerprints at the offsets of the mask, run by run."""
    parts, offset = [], 0
    while mask:
        skip = (mask & -mask).bit_length() - 1
        mask >>= skip
        offset += skip
        run = (~mask & (mask + 1)).bit_length() - 1
        parts.append(fingerprints[offset * FINGERPRINT : (offset + run) * FINGERPRINT])
        mask >>= run
        offset += run
    return b"".join(parts)
