"""Decides which block key an engine's hash stands for, how many copies of it there are, and what waits for its parent.

Engines name blocks by hashes of their own; everything else here knows keys. A hash is keyed when its namespace and its
parent are known; until then its event waits in a bounded quarantine and is adopted when they show up. Copies are
counted per (group, hash, tier), because engines announce and remove physical blocks; what is told is a key's first copy
and its last, whichever hashes they have. Used by `nodeagent.engines`.
"""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from kvcore.blocks import TIERS, Tier
from kvcore.dialects.engine import Stored

BLOCKS_MAX = 2**22
GHOSTS_MAX = 2**16
"""Hashes without a copy whose keys are remembered: a block may be gone before its child or its offload is told."""
_BITS = 12
_MOST: int = 2**_BITS - 1
_SHIFT: dict[Tier, int] = {tier: _BITS * i for i, tier in enumerate(TIERS)}
WAITING_MAX, WAITING_BYTES_MAX = 8_192, 64 * 2**20


class Space(NamedTuple):
    """What the blocks of one chain have in common."""

    ns: bytes
    gen: int
    group: int
    block_tokens: int


class Known(msgspec.Struct, eq=False, gc=False):
    """A block whose key is known. `counts` packs the physical copies of each tier, `_BITS` each.

    Millions may be held: it is made without a call into Python, and the collector does not look at it.
    """

    space: Space
    key: bytes
    parent: bytes | None
    counts: int = 0

    def copies(self, tier: Tier) -> int:
        """Physical copies on the tier."""
        return (self.counts >> _SHIFT[tier]) & _MOST


class Run(NamedTuple):
    """Consecutive blocks of one chain that are new on a tier; `parent` is the key before the first."""

    space: Space
    parent: bytes | None
    keys: list[bytes]


@dataclass(slots=True, eq=False)
class Waiting:
    """An event in quarantine; `gone` are hashes of it whose removal was told meanwhile."""

    event: Stored
    cause: Hashable
    size: int
    gone: set[bytes] = field(default_factory=set)


class KeyMap:
    """The hashes of one (source, dp_rank). Not safe for several threads."""

    def __init__(
        self,
        *,
        blocks_max: int = BLOCKS_MAX,
        waiting_max: int = WAITING_MAX,
        waiting_bytes_max: int = WAITING_BYTES_MAX,
        ghosts_max: int = GHOSTS_MAX,
    ) -> None:
        self.blocks_max, self.ghosts_max = blocks_max, ghosts_max
        self.waiting_max, self.waiting_bytes_max = waiting_max, waiting_bytes_max
        self.waiting_bytes = 0
        self._known: defaultdict[int, dict[bytes, Known]] = defaultdict(dict)
        self._held = 0
        self._keys: defaultdict[tuple[Space, Tier], dict[bytes, Known]] = defaultdict(dict)
        self._doubles: dict[tuple[Space, Tier, bytes], list[Known]] = {}
        """All holders of a key that several hashes stand for: an engine that began anew unseen hashes otherwise."""
        self._ghosts: OrderedDict[tuple[int, bytes], Known] = OrderedDict()
        self._waiting: OrderedDict[int, Waiting] = OrderedDict()
        self._by_cause: dict[Hashable, deque[int]] = {}
        self._by_hash: dict[tuple[int, bytes], list[int]] = {}
        self._next = 0

    def __len__(self) -> int:
        """Hashes that have at least one copy."""
        return self._held

    @property
    def waiting(self) -> int:
        """Events in quarantine."""
        return len(self._waiting)

    def find(self, group: int, engine_hash: bytes) -> Known | None:
        """The block the hash stands for, also if its last copy is gone; looked for in other groups as a last resort.

        A sliding group may never announce the parent of what it does announce; the full group has it under the same
        hash where both have blocks of one size.
        """
        for g in (group, 0) if group else (0,):
            known = self._known[g].get(engine_hash) or self._ghosts.get((g, engine_hash))
            if known is not None:
                return known
        return None

    def hold(
        self,
        space: Space,
        hashes: Sequence[bytes],
        keys: Sequence[bytes],
        parent: bytes | None,
        tier: Tier,
        *,
        gone: Collection[bytes] = (),
        presence: bool = False,
    ) -> tuple[list[Run], bool]:
        """One more physical copy of each block of a chain: (what is new on the tier, whether all found room).

        A hash that is held keeps the key it was first told under, whatever it would be keyed as now: its removal must
        drop that key, and bytes of an ended generation must not look new.

        Args:
            space, hashes, keys, parent, tier: the chain, from its first block on.
            gone: hashes that were removed again before their key was known; only their keys are remembered.
            presence: copies are not counted, there is one or none.
        """
        table, shift, held = self._known[space.group], _SHIFT[tier], self._keys[space, tier]
        one, mask = 1 << shift, _MOST << shift
        runs: list[Run] = []
        run: list[bytes] | None = None
        above = parent
        for h, key in zip(hashes, keys, strict=True):
            known = table.get(h)
            if known is None:
                if self._held >= self.blocks_max:
                    return runs, False
                known = self._ghosts.pop((space.group, h), None) or Known(space, key, above)
                table[h] = known
                self._held += 1
            had = known.counts & mask
            if not had or (not presence and had != mask):
                known.counts += one
            if had:
                new = False
            else:
                usual = known.space is space and known.key == key
                first = (held if usual else self._keys[known.space, tier]).setdefault(known.key, known)
                new = first is known
                if not new:
                    self._doubles.setdefault((known.space, tier, known.key), [first]).append(known)
            if h in gone:
                self.release(space.group, h, tier)
                run = None
            elif not new:
                run = None
            elif known.key != key:
                runs.append(Run(known.space, known.parent, [known.key]))
                run = None
            elif run is None:
                run = [key]
                runs.append(Run(space, above, run))
            else:
                run.append(key)
            above = key
        return runs, True

    def release(self, group: int, engine_hash: bytes, tier: Tier) -> tuple[Known | None, bool]:
        """One copy fewer: (the block, whether its key left the tier); (None, False) for what was not held."""
        known = self._known[group].get(engine_hash)
        count = known.copies(tier) if known else 0
        if known is None or not count:
            return None, False
        known.counts -= 1 << _SHIFT[tier]
        if not known.counts:
            self._bury(group, engine_hash, known)
        return known, count == 1 and self._left(known, tier)

    def clear(self, tiers: tuple[Tier, ...] = TIERS) -> None:
        """Nothing is on these tiers any more, and nothing waits for them."""
        keep = ~sum(_MOST << _SHIFT[t] for t in tiers)
        for place in [p for p in self._keys if p[1] in tiers]:
            del self._keys[place]
        self._doubles = {p: holders for p, holders in self._doubles.items() if p[1] not in tiers}
        for group, table in self._known.items():
            for h, known in list(table.items()):
                known.counts &= keep
                if not known.counts:
                    self._bury(group, h, known)
        for number in [n for n, w in self._waiting.items() if w.event.tier in tiers]:
            self._forget(number)

    def reset(self) -> None:
        """A new life of the engine: its hashes may mean other blocks."""
        self._known.clear()
        self._held = 0
        self._keys.clear()
        self._doubles.clear()
        self._ghosts.clear()
        self._waiting.clear()
        self._by_cause.clear()
        self._by_hash.clear()
        self.waiting_bytes = 0

    def blocks(self) -> Iterator[Known]:
        """Everything that has a copy."""
        return (known for table in self._known.values() for known in table.values())

    def places(self) -> Iterator[tuple[Space, Tier, Collection[Known]]]:
        """What is held where: each key once, in the order in which they came, so parents before children."""
        return ((space, tier, held.values()) for (space, tier), held in self._keys.items() if held)

    def _left(self, known: Known, tier: Tier) -> bool:
        """A hash has no copy on the tier any more: whether its key has none either."""
        held = self._keys[known.space, tier]
        holders = self._doubles.get((known.space, tier, known.key)) if self._doubles else None
        if holders is None:
            del held[known.key]
            return True
        holders.remove(known)
        held[known.key] = holders[0]
        if len(holders) == 1:
            del self._doubles[known.space, tier, known.key]
        return False

    def _bury(self, group: int, engine_hash: bytes, known: Known) -> None:
        del self._known[group][engine_hash]
        self._held -= 1
        self._ghosts[group, engine_hash] = known
        if len(self._ghosts) > self.ghosts_max:
            self._ghosts.popitem(last=False)

    # Quarantine

    def wait(self, event: Stored, cause: Hashable, size: int, gone: set[bytes] | None = None) -> int:
        """Puts an event aside until `cause` is known; the number of events given up to make room."""
        number = self._next = self._next + 1
        self._waiting[number] = Waiting(event, cause, size, gone or set())
        self.waiting_bytes += size
        self._by_cause.setdefault(cause, deque()).append(number)
        for h in event.hashes:
            self._by_hash.setdefault((event.group, h), []).append(number)
        given_up = 0
        while self._waiting and (len(self._waiting) > self.waiting_max or self.waiting_bytes > self.waiting_bytes_max):
            self._forget(next(iter(self._waiting)))
            given_up += 1
        return given_up

    def take(self, cause: Hashable) -> list[Waiting]:
        """What waited for `cause`, oldest first; it waits no longer."""
        numbers = list(self._by_cause.get(cause, ()))
        return [self._forget(n) for n in numbers]

    def causes(self) -> list[Hashable]:
        """What is waited for."""
        return list(self._by_cause)

    def waits(self, group: int, engine_hash: bytes) -> bool:
        """Whether an event that has the hash is in quarantine."""
        return (group, engine_hash) in self._by_hash

    def gone(self, group: int, engine_hash: bytes, tier: Tier) -> bool:
        """Notes the removal of a block that is in quarantine; False if it is not."""
        for number in self._by_hash.get((group, engine_hash), ()):
            waiting = self._waiting[number]
            if waiting.event.tier is tier and engine_hash not in waiting.gone:
                waiting.gone.add(engine_hash)
                return True
        return False

    def _forget(self, number: int) -> Waiting:
        waiting = self._waiting.pop(number)
        self.waiting_bytes -= waiting.size
        line = self._by_cause[waiting.cause]
        line.remove(number)
        if not line:
            del self._by_cause[waiting.cause]
        for h in waiting.event.hashes:
            place = (waiting.event.group, h)
            numbers = self._by_hash.get(place, [])
            if number in numbers:
                numbers.remove(number)
            if not numbers:
                self._by_hash.pop(place, None)
        return waiting
