"""Keeps the catalog's placements as a routing index: rows once, then the ledger's absolute facts.

One `View` is one load. Called by `replica` in its thread; look-ups read beside it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple
from uuid import UUID

from catalog.index.facts import Facts, unpack, unpack_states
from routing.index import FINGERPRINT, UNLIMITED, Full, Index
from routing.residency import ORPHAN, ROOT, Residency, Segment, stretches

CATALOG_KEY = 16
DRAIN_STEP = 2_000
"""Placements of retired owners that are cleared after one batch."""
LOAD_STEP = 1_000_000
"""Keys that enter the index at a time: a fraction of a second."""
SEGMENT_BYTES, PLACE_BYTES = 440, 170
"""About what a segment costs besides its fingerprints, and a placement."""
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
    bytes_max: int = UNLIMITED
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
    residency: Residency = field(default_factory=Residency)
    _who: dict[int, Who] = field(default_factory=dict)
    _of_space: dict[int, set[int]] = field(default_factory=dict)
    _place: dict[int, dict[int, int]] = field(default_factory=dict)
    _gone: set[int] = field(default_factory=set)
    """Segments that were dropped and may still be in placements."""
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
        if (known := self._who.get(owner)) is not None:
            return known
        source, tier = self.owners.get(owner, (-1, ""))
        if (row := self.sources.get(source)) is None:
            return None
        who = self._who[owner] = Who(row[0], row[1], row[2], tier)
        return who

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
                    self._hide(owner, state == "lost")

    def owner(self, number: int, source: int, tier: str, retired: bool) -> None:
        """The owner is known. A retired one is in no answer from now on, however much it held."""
        if not retired:
            self.owners[number] = (source, tier)
            if self.sources.get(source, ("", "", 0, ""))[3] == "lost":
                self._hide(number, True)
            return
        if self.owners.pop(number, None) is not None:
            self._who.pop(number, None)
            self._hide(number, True)
            self._ghosts.append((number, self._place.pop(number, {})))

    def _hide(self, owner: int, hidden: bool) -> None:
        self._fitting(lambda: self.index.hide(owner, hidden))

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
        self.residency.drop(keyspace)
        for number in self._of_space.pop(keyspace, ()):
            if (segment := self.residency.bury(number)) is not None:
                self.keys -= len(segment.keys) // FINGERPRINT
                self._gone.add(number)

    def _purge(self) -> None:
        """No placement is kept of what was dropped; costs as much as the smaller of both, owner by owner."""
        gone, self._gone = self._gone, set()
        for mine in self._place.values() if gone else ():
            for number in gone.intersection(mine) if len(gone) < len(mine) else [n for n in mine if n in gone]:
                del mine[number]

    # ---------------------------------------------------------------- facts
    @property
    def _segments(self) -> dict[int, Segment]:
        return self.residency.segments

    def segment(self, number: int, keyspace: int, keys: bytes = b"", up: int = ORPHAN, offset: int = -1) -> None:
        """The segment is known, unless its keyspace may not be answered."""
        if number in self._segments or not self.routable(keyspace):
            return
        segment = self._segments[number] = Segment(keyspace, bytearray(_fingerprints(keys)))
        self._of_space.setdefault(keyspace, set()).add(number)
        self.keys += len(segment.keys) // FINGERPRINT
        self.residency.join(number, up, offset)

    def place(self, owner: int, segment: int, n: int, held: bytes | None, states: bytes | None) -> None:
        """The owner holds exactly these offsets of the segment; what is not committed is not routable."""
        mask = unpack(n, held) if n else 0
        for state, part in unpack_states(states).items() if states else ():
            if state in UNROUTABLE:
                mask &= ~part
        mine = self._place.setdefault(owner, {})
        if mask and segment in self._segments:
            mine[segment] = mask
        else:
            mine.pop(segment, None)

    def placement(self, owner: int, segment: int, n: int, held: bytes | None, states: bytes | None) -> None:
        """See `placements`."""
        self.placements([(owner, segment, n, held, states)])

    def placements(self, places: Iterable[tuple[int, int, int, bytes | None, bytes | None]]) -> None:
        """All of these are so. What one owner lost and another got goes over in one step for each block."""
        before: dict[int, dict[int, int]] = {}
        for owner, segment, n, held, states in places:
            if owner in self.owners:
                had = self._place.get(owner, {}).get(segment, 0)
                before.setdefault(segment, {}).setdefault(owner, had)
                self.place(owner, segment, n, held, states)
        if self.live:
            self._changes({number: had for number, had in before.items() if number in self._segments})

    def _changes(self, before: dict[int, dict[int, int]]) -> None:
        """The index has what is so now. It is vouched for nothing that is open, nor for what is half done."""
        keyspaces, several = set(), len(before) > 1
        for number, owners in before.items():
            for owner in owners:
                self.residency.changed(owner, number, self._place[owner])
            keyspaces.add(self._segments[number].keyspace)
        for keyspace in keyspaces:
            if several or not self.residency.closed(keyspace):
                self.index.closed(keyspace, False)
        for number, owners in before.items():
            self._fitting(lambda n=number, o=owners: self._change(n, o))  # type: ignore[misc]
        for keyspace in keyspaces:
            self.index.closed(keyspace, self.residency.closed(keyspace))

    def _fitting(self, job: Callable[[], None]) -> None:
        """The job is done; where memory is short, keyspaces are evicted until it is."""
        while True:
            try:
                return job()
            except Full:
                if not self._of_space:
                    raise
                self._evict()

    def _change(self, number: int, before: dict[int, int]) -> None:
        """The index has what the owners hold of the segment now, instead of what they did before."""
        if (segment := self._segments.get(number)) is None:
            return
        space, keys, index = segment.keyspace, segment.keys, self.index
        now = {owner: self._place[owner].get(number, 0) for owner in before}
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
        for segment, keyspace, up, offset, _, parent in facts.born:
            self.segment(segment, keyspace, b"", ROOT if parent is None else up, offset)
        for segment, offset, keys in facts.keys:
            self._grow(segment, offset, keys)
        for segment, up, offset in facts.up:
            self._join(segment, up, offset)
        self.placements(facts.places)
        for segment in facts.dead:
            self._bury(segment)
        if self.live:
            self.drain(DRAIN_STEP)

    def _grow(self, number: int, offset: int, keys: bytes) -> None:
        segment = self._segments.get(number)
        if segment is None:
            return
        have = len(segment.keys) // FINGERPRINT
        if have < offset:  # swept later in the ledger
            return
        new = _fingerprints(keys)[(have - offset) * FINGERPRINT :]
        segment.keys.extend(new)
        self.keys += len(new) // FINGERPRINT

    def _join(self, number: int, up: int, offset: int) -> None:
        if (segment := self._segments.get(number)) is None:
            return
        self.residency.join(number, up, offset)
        for owner, mine in self._place.items() if self.live else ():
            if number in mine:
                self.residency.judge(owner, number, mine)
        if self.live:
            self.index.closed(segment.keyspace, self.residency.closed(segment.keyspace))

    def _bury(self, number: int) -> None:
        for owner, held in self._ghosts:
            self._clear(owner, number, held.pop(number, 0))
        if (segment := self.residency.bury(number)) is None:
            return
        self.keys -= len(segment.keys) // FINGERPRINT
        if segment.keyspace in self._of_space:
            self._of_space[segment.keyspace].discard(number)

    def _clear(self, owner: int, number: int, mask: int) -> None:
        segment = self._segments.get(number)
        if segment is not None and mask:
            self.residency.clear(owner, number)
            keyspace, keys = segment.keyspace, _pick(segment.keys, mask)
            self._fitting(lambda: self.index.remove(keyspace, owner, keys))

    def drain(self, limit: int) -> None:
        """Some of what retired owners left in the index is cleared; their bits are free when all of it is."""
        self._purge()
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
        """All placements enter the index, keyspaces that were looked up last first; yields now and then."""
        holders: dict[int, list[tuple[int, int]]] = {}
        for owner, mine in self._place.items():
            for number, mask in mine.items():
                holders.setdefault(number, []).append((owner, mask))
            yield
        for keyspace in sorted(self._of_space, key=lambda k: -self.used.get(k, 0.0)):
            yield from self._fill(keyspace, holders)
        self.live = True
        self.shed()

    def _fill(self, keyspace: int, holders: dict[int, list[tuple[int, int]]]) -> Iterator[None]:
        if keyspace not in self._of_space:  # evicted while others were filled
            return
        room = sum(len(self._segments[n].keys) for n in self._of_space[keyspace] if n in holders) // FINGERPRINT
        self._fitting(lambda: self.index.reserve(keyspace, room if keyspace in self._of_space else 0))
        parts, lengths, whose, size = [], list[int](), list[tuple[int, ...]](), 0
        for number in list(self._of_space.get(keyspace, ())):
            if (segment := self._segments.get(number)) is None:  # evicted meanwhile
                break
            held = holders.get(number, [])
            for start, end, owners in stretches(held) if held else ():
                keys = segment.keys[start * FINGERPRINT : end * FINGERPRINT]
                parts.append(keys)
                lengths.append(len(keys) // FINGERPRINT)
                whose.append(owners)
                size += lengths[-1]
            for owner, _ in held:
                self.residency.judge(owner, number, self._place[owner])
            if size >= LOAD_STEP:
                self._load(keyspace, parts, lengths, whose)
                parts, lengths, whose, size = [], [], [], 0
                yield
        self._load(keyspace, parts, lengths, whose)
        self.index.closed(keyspace, self.residency.closed(keyspace))
        yield

    def _load(self, keyspace: int, parts: list[bytearray], lengths: list[int], owners: list[tuple[int, ...]]) -> None:
        keys = b"".join(parts)

        def load() -> None:
            if keys and self.routable(keyspace):
                self.index.load(keyspace, keys, lengths, owners)

        self._fitting(load)

    # ---------------------------------------------------------------- memory
    def size(self) -> int:
        """Bytes of the index and of what follows the ledger, as the cap counts them."""
        return self.index.size + self._own()

    def _own(self) -> int:
        places = sum(map(len, self._place.values()))
        return self.keys * FINGERPRINT + len(self._segments) * SEGMENT_BYTES + places * PLACE_BYTES

    def shed(self) -> None:
        """The cap holds: keyspaces that were not looked up for longest are evicted whole, and answer nothing."""
        while self._of_space and (self.keys > self.keys_max or self.size() > self.bytes_max):
            self._evict()
        self.index.bytes_max = max(0, self.bytes_max - self._own())

    def _evict(self) -> None:
        victim = min(self._of_space, key=lambda k: self.used.get(k, 0.0))
        self.evicted.add(victim)
        self.drop(victim)
        self._purge()
        self.index.collect()
        self.index.bytes_max = max(0, self.bytes_max - self._own())

    def known(self, segments: Iterable[int]) -> list[int]:
        """Those of the segments that are in memory."""
        return [s for s in segments if s in self._segments]


def _fingerprints(keys: bytes) -> bytes:
    return memoryview(keys).cast("Q")[:: CATALOG_KEY // FINGERPRINT].tobytes() if keys else b""


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
