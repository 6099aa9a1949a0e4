"""Decides who holds how much of a prefix: the routing index in its dict form, for processes without numba.

Per space (one namespace generation and cache group) a key's 8-byte fingerprint leads to the number of an *owner set*;
equal sets are one number, so a run of blocks changes hands with one remembered transition, and a look-up compares
numbers and touches the bit mask only where they differ. The walk is exact: it assumes nothing about eviction order.
Where the caller vouches that residency is closed towards the prompt's start, it jumps, and is exact there.
Whole owners and whole spaces leave at once; what they left behind is cleared later, in bounded steps.

Fingerprints are the first 8 bytes of keyed block keys: nobody without the key can search for a collision, and one is
a false hit that the target refuses. Every form of the index passes `tests/contracts/index.py`. Called by `replica`.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

FINGERPRINT = 8
"""Bytes of a key that the index keeps; packed keys are so many bytes each, little-endian."""
SET_BYTES = 400
"""About what an owner set costs with its transitions."""
KEY_OBJECT = sys.getsizeof(2**63)
KEY_MOST = 200
"""Bytes that a key may cost while its dict grows; the cap counts with these."""
STRIDE = 32
"""First step of a jump; each further one is twice as long."""
UNLIMITED = 2**62
Runs = list[tuple[int, list[int]]]


class Full(Exception):
    """What was asked needs more memory than the index may have. What was done of it holds; asking again is harmless."""


class Index(Protocol):
    """What every form of the index can do. Owners and spaces are numbers of the caller."""

    form: str
    """dict | packed."""
    bytes_max: int
    """Bytes it may have, also while a table grows; beyond that, what adds raises `Full`."""

    @property
    def size(self) -> int:
        """Bytes as the cap counts them."""

    def add(self, space: int, owner: int, keys: bytes) -> None:
        """The owner holds these keys of the space, whether or not it did before."""

    def remove(self, space: int, owner: int, keys: bytes) -> None:
        """The owner does not hold these keys, whether or not it did before."""

    def move(self, space: int, source: int, target: int, keys: bytes) -> None:
        """These keys are the target's and not the source's, whoever had them before; each in one step.

        A look-up beside it finds each of them with the one or with the other, never with both nor with neither.
        """

    def reserve(self, space: int, keys: int) -> None:
        """So many keys more will not make the space's table grow, where it grows in steps."""

    def load(self, space: int, keys: bytes, lengths: Sequence[int], owners: Sequence[tuple[int, ...]]) -> None:
        """Of the keys, the next `lengths[i]` are held by `owners[i]` too. Nobody looks up meanwhile."""

    def closed(self, space: int, vouched: bool) -> None:
        """Whether the caller vouches that who is not hidden and holds a key holds all before it, on every chain.

        Look-ups of a space that is not vouched for ask every key. It is taken back before the first hole is made.
        """

    def hide(self, owner: int, hidden: bool) -> None:
        """The owner is in no answer while hidden; what it holds is kept. One step, however much that is."""

    def forget(self, owner: int) -> None:
        """The owner's number may be given again. Its keys must have been removed, or their spaces dropped."""

    def drop(self, space: int) -> None:
        """Nothing of the space is held by anybody, nor vouched for. One step, however much that was."""

    def lookup(self, space: int, keys: bytes, window: int = 0, most: int = 0) -> Runs:
        """[(depth, owners)] by growing depth: who holds exactly the first `depth` keys and not the next.

        With a window, for layers that see only the last tokens: the deepest `depth` before which the owner holds
        `window` keys without a hole, or all there are. Nothing is said of smaller depths: ask with fewer keys.

        With `most`, without a window: runs that so many owners reach beyond are left out, and cost nothing.
        """

    def collect(self) -> int:
        """Owner sets that nobody has any more are gone; answers how many."""

    def sizes(self) -> dict[str, int]:
        """keys, sets, spaces and bytes, as they are now."""


class Space:
    """One namespace generation and cache group."""

    __slots__ = ("adds", "closed", "counts", "free", "ids", "keys", "removes", "resting", "sets")

    def __init__(self) -> None:
        self.keys: dict[int, int] = {}
        """Fingerprint → number of its owner set; never 0."""
        self.sets: list[int] = [0]
        """Number → bit mask over owner slots. Number 0 is the empty set."""
        self.counts: list[int] = [0]
        self.ids: dict[int, int] = {0: 0}
        self.free: list[int] = []
        self.resting: list[int] = []
        self.adds: dict[tuple[int, int], int] = {}
        self.removes: dict[tuple[int, int], int] = {}
        self.closed = False

    def number(self, mask: int) -> int:
        """The number of a set, made if it is new."""
        found = self.ids.get(mask)
        if found is None:
            if self.free:
                found = self.free.pop()
                self.sets[found] = mask
            else:
                found = len(self.sets)
                self.sets.append(mask)
                self.counts.append(0)
            self.ids[mask] = found
        return found

    def with_slot(self, number: int, slot: int) -> int:
        """The set with one owner more."""
        got = self.adds.get((number, slot))
        if got is None:
            got = self.adds[number, slot] = self.number(self.sets[number] | 1 << slot)
        return got

    def without_slot(self, number: int, slot: int) -> int:
        """The set with one owner less."""
        got = self.removes.get((number, slot))
        if got is None:
            got = self.removes[number, slot] = self.number(self.sets[number] & ~(1 << slot))
        return got

    def collect(self) -> int:
        """Numbers that no key has are given again later; transitions are forgotten, as they may lead there."""
        unused = [n for n in range(1, len(self.sets)) if not self.counts[n] and self.ids.get(self.sets[n]) == n]
        for number in unused:
            del self.ids[self.sets[number]]
        if unused:
            self.adds, self.removes = {}, {}
        # a look-up that is under way may still hold a number: it is given again one collection later
        self.free += self.resting
        self.resting = unused
        return len(unused)


class DictIndex:
    """The dict form of `Index`. One writer at a time; a look-up beside it sees each key as it was before or after."""

    form = "dict"

    def __init__(self, bytes_max: int = UNLIMITED) -> None:
        self.bytes_max = bytes_max
        self.count = 0
        """Keys of all spaces."""
        self.spaces: dict[int, Space] = {}
        self.slots: dict[int, int] = {}
        """Owner → bit."""
        self.owners: list[int] = []
        """Bit → owner."""
        self.free_slots: list[int] = []
        self.resting: list[int] = []
        self.alive = 0

    @property
    def size(self) -> int:
        """See `Index.size`."""
        return self.count * KEY_MOST

    def _slot(self, owner: int) -> int:
        slot = self.slots.get(owner)
        if slot is None:
            if self.free_slots:
                slot = self.free_slots.pop()
                self.owners[slot] = owner
            else:
                slot = len(self.owners)
                self.owners.append(owner)
            self.slots[owner] = slot
            self.alive |= 1 << slot
        return slot

    def _roomy(self, space: int, more: int) -> Space:
        """The space, made if it is new; Full if so many more keys may be too many."""
        if self.size + more * KEY_MOST > self.bytes_max and more:
            raise Full
        at = self.spaces.get(space)
        if at is None:
            at = self.spaces[space] = Space()
        return at

    def add(self, space: int, owner: int, keys: bytes) -> None:
        """See `Index.add`."""
        chain = _numbers(keys).tolist()
        at = self._roomy(space, len(chain))
        self._step(at, chain, self._slot(owner), at.with_slot)

    def remove(self, space: int, owner: int, keys: bytes) -> None:
        """See `Index.remove`."""
        at, slot = self.spaces.get(space), self.slots.get(owner)
        if at is None or slot is None:
            return
        self._step(at, _numbers(keys).tolist(), slot, at.without_slot)
        if not at.keys:
            del self.spaces[space]

    def _step(self, at: Space, chain: list[int], slot: int, step: Callable[[int, int], int]) -> None:
        """Every key of the chain has the set that the step leads to; in one go where all have the same one now."""
        known, counts = at.keys, at.counts
        before, had = list(map(known.get, chain)), len(known)
        if before and before.count(before[0]) == len(before):
            number = before[0] or 0
            new = step(number, slot)
            if new != number:
                fresh = dict.fromkeys(chain, new)
                counts[number] -= len(fresh)
                counts[new] += len(fresh)
                if new:
                    known.update(fresh)
                else:
                    for key in fresh:
                        del known[key]
        else:
            self._step_each(at, chain, slot, step)
        self.count += len(known) - had

    def _step_each(self, at: Space, chain: list[int], slot: int, step: Callable[[int, int], int]) -> None:
        known, counts = at.keys, at.counts
        last, new = -1, 0
        for key in chain:
            number = known.get(key, 0)
            if number != last:
                last, new = number, step(number, slot)
            if new != number:
                counts[number] -= 1
                counts[new] += 1
                if new:
                    known[key] = new
                else:
                    del known[key]

    def move(self, space: int, source: int, target: int, keys: bytes) -> None:
        """See `Index.move`."""
        if source == target:
            self.add(space, target, keys)
            return
        chain = _numbers(keys)
        at = self._roomy(space, len(chain))
        slot, before, known, counts = self._slot(target), self.slots.get(source), at.keys, at.counts
        last, new, had = -1, 0, len(known)
        for key in chain:
            number = known.get(key, 0)
            if number != last:
                last, new = number, at.with_slot(number, slot)
                new = new if before is None else at.without_slot(new, before)
            if new != number:
                known[key] = new
                counts[number] -= 1
                counts[new] += 1
        self.count += len(known) - had

    def reserve(self, space: int, keys: int) -> None:
        """See `Index.reserve`: a dict grows by itself."""
        self._roomy(space, keys)

    def load(self, space: int, keys: bytes, lengths: Sequence[int], owners: Sequence[tuple[int, ...]]) -> None:
        """See `Index.load`."""
        start = 0
        for length, who in zip(lengths, owners, strict=True):
            end = start + length * FINGERPRINT
            for owner in who:
                self.add(space, owner, keys[start:end])
            start = end

    def closed(self, space: int, vouched: bool) -> None:
        """See `Index.closed`."""
        if (at := self.spaces.get(space)) is not None:
            at.closed = vouched

    def hide(self, owner: int, hidden: bool) -> None:
        """See `Index.hide`."""
        bit = 1 << self._slot(owner)
        self.alive = self.alive & ~bit if hidden else self.alive | bit

    def forget(self, owner: int) -> None:
        """See `Index.forget`."""
        if (slot := self.slots.pop(owner, None)) is not None:
            self.alive &= ~(1 << slot)
            self.owners[slot] = -1
            self.resting.append(slot)

    def drop(self, space: int) -> None:
        """See `Index.drop`."""
        if (gone := self.spaces.pop(space, None)) is not None:
            self.count -= len(gone.keys)

    def lookup(self, space: int, keys: bytes, window: int = 0, most: int = 0) -> Runs:
        """See `Index.lookup`."""
        at = self.spaces.get(space)
        if at is None or not keys or not self.alive:
            return []
        chain, get, runs = _numbers(keys), at.keys.get, Runs()
        if window:
            return self._windowed(at, list(map(get, chain)), window)
        number = get(chain[0])
        held = self.alive & at.sets[number] if number else 0  # read behind the key: alive before it has one
        if not held:
            return runs
        for depth, number in _jumps(get, chain) if at.closed else _changes(map(get, chain)):
            stay = held & at.sets[number] if number else 0
            if stay != held:
                if not most or stay.bit_count() < most:
                    runs.append((depth, self._members(held & ~stay)))
                held = stay
            if not held:
                break
        return [run for run in runs if run[1]]

    def _windowed(self, at: Space, numbers: list[int | None], window: int) -> Runs:
        """Of each owner, the end of its last stretch that is long enough, or begins with the prompt."""
        best: dict[int, int] = {}
        since: dict[int, int] = {}
        start, held, number = 0, 0, numbers[0]
        for end, following in _changes(iter(numbers)):
            now = self.alive & at.sets[number] if number else 0
            for slot in _bits(now):
                if not held >> slot & 1:
                    since[slot] = start
                if not since[slot] or end - since[slot] >= window:
                    best[slot] = end
            start, held, number = end, now, following
        found: dict[int, int] = {}
        for slot, depth in best.items():
            found[depth] = found.get(depth, 0) | 1 << slot
        return [(depth, owners) for depth, mask in sorted(found.items()) if (owners := self._members(mask))]

    def collect(self) -> int:
        """See `Index.collect`."""
        self.free_slots += self.resting
        self.resting = []
        return sum(space.collect() for space in self.spaces.values())

    def _members(self, mask: int) -> list[int]:
        return [owner for slot in _bits(mask) if (owner := self.owners[slot]) >= 0]

    def sizes(self) -> dict[str, int]:
        """See `Index.sizes`."""
        sets = sum(len(space.ids) - 1 for space in self.spaces.values())
        size = self.count * KEY_OBJECT + sets * SET_BYTES + sum(sys.getsizeof(s.keys) for s in self.spaces.values())
        return {"keys": self.count, "sets": sets, "spaces": len(self.spaces), "bytes": size}


def _numbers(keys: bytes) -> memoryview:
    return memoryview(keys).cast("Q")


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _changes(numbers: Iterator[int | None]) -> Iterator[tuple[int, int | None]]:
    """(index, number) where it is another one than before, and at last the length."""
    last, i = next(numbers), 0
    for i, number in enumerate(numbers, 1):
        if number != last:
            last = number
            yield i, number
    yield i + 1, None


def _jumps(get: Callable[[int], int | None], chain: memoryview) -> Iterator[tuple[int, int | None]]:
    """The same for a chain along which a number that is left never comes back, without asking most of its keys."""
    i, n, number = 0, len(chain), get(chain[0])
    while i < n:
        step, high = STRIDE, n
        while i < n - 1:
            k = min(i + step, n - 1)
            if get(chain[k]) != number:
                high = k
                break
            i, step = k, 2 * step
        while high < n and high - i > 1:
            middle = (i + high) >> 1
            if get(chain[middle]) == number:
                i = middle
            else:
                high = middle
        i, number = high, get(chain[high]) if high < n else None
        yield i, number
