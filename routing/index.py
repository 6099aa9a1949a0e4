"""Decides who holds how much of a prefix: the routing index in its dict form, for processes without numba.

Per space (one namespace generation and cache group) a key's 8-byte fingerprint leads to the number of an *owner set*;
equal sets are one number, so a run of blocks changes hands with one remembered transition, and a look-up compares
numbers and touches the bit mask only where they differ. The walk is exact: it assumes nothing about eviction order.
Whole owners and whole spaces leave at once; what they left behind is cleared later, in bounded steps.

Fingerprints are the first 8 bytes of keyed block keys: nobody without the key can search for a collision, and one is
a false hit that the target refuses. Every form of the index passes `tests/contracts/index.py`. Called by `replica`.
"""

import sys
from collections.abc import Iterator
from typing import Protocol

FINGERPRINT = 8
"""Bytes of a key that the index keeps; packed keys are so many bytes each, little-endian."""
SET_BYTES = 400
"""About what an owner set costs with its transitions."""
Runs = list[tuple[int, list[int]]]


class Index(Protocol):
    """What every form of the index can do. Owners and spaces are numbers of the caller."""

    def add(self, space: int, owner: int, keys: bytes) -> None:
        """The owner holds these keys of the space, whether or not it did before."""

    def remove(self, space: int, owner: int, keys: bytes) -> None:
        """The owner does not hold these keys, whether or not it did before."""

    def move(self, space: int, source: int, target: int, keys: bytes) -> None:
        """These keys are the target's and not the source's, whoever had them before; each in one step.

        A look-up beside it finds each of them with the one or with the other, never with both nor with neither.
        """

    def hide(self, owner: int, hidden: bool) -> None:
        """The owner is in no answer while hidden; what it holds is kept. One step, however much that is."""

    def forget(self, owner: int) -> None:
        """The owner's number may be given again. Its keys must have been removed, or their spaces dropped."""

    def drop(self, space: int) -> None:
        """Nothing of the space is held by anybody. One step, however much that was."""

    def lookup(self, space: int, keys: bytes) -> Runs:
        """[(depth, owners)] by growing depth: who holds exactly the first `depth` keys and not the next."""

    def collect(self) -> int:
        """Owner sets that nobody has any more are gone; answers how many."""

    def sizes(self) -> dict[str, int]:
        """keys, sets, spaces and bytes, as they are now."""


class Space:
    """One namespace generation and cache group."""

    __slots__ = ("adds", "counts", "free", "ids", "keys", "removes", "resting", "sets")

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

    def __init__(self) -> None:
        self.spaces: dict[int, Space] = {}
        self.slots: dict[int, int] = {}
        """Owner → bit."""
        self.owners: list[int] = []
        """Bit → owner."""
        self.free_slots: list[int] = []
        self.resting: list[int] = []
        self.alive = 0

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

    def add(self, space: int, owner: int, keys: bytes) -> None:
        """See `Index.add`."""
        at = self.spaces.get(space)
        if at is None:
            at = self.spaces[space] = Space()
        slot, known, counts = self._slot(owner), at.keys, at.counts
        last, new = -1, 0
        for key in _numbers(keys):
            number = known.get(key, 0)
            if number != last:
                last, new = number, at.with_slot(number, slot)
            if new != number:
                known[key] = new
                counts[number] -= 1
                counts[new] += 1

    def remove(self, space: int, owner: int, keys: bytes) -> None:
        """See `Index.remove`."""
        at, slot = self.spaces.get(space), self.slots.get(owner)
        if at is None or slot is None:
            return
        known, counts = at.keys, at.counts
        last, new = -1, 0
        for key in _numbers(keys):
            number = known.get(key, 0)
            if number != last:
                last, new = number, at.without_slot(number, slot) if number else 0
            if new != number:
                counts[number] -= 1
                if new:
                    known[key] = new
                    counts[new] += 1
                else:
                    del known[key]
        if not known:
            del self.spaces[space]

    def move(self, space: int, source: int, target: int, keys: bytes) -> None:
        """See `Index.move`."""
        if source == target:
            self.add(space, target, keys)
            return
        at = self.spaces.get(space)
        if at is None:
            at = self.spaces[space] = Space()
        slot, before, known, counts = self._slot(target), self.slots.get(source), at.keys, at.counts
        last, new = -1, 0
        for key in _numbers(keys):
            number = known.get(key, 0)
            if number != last:
                last, new = number, at.with_slot(number, slot)
                new = new if before is None else at.without_slot(new, before)
            if new != number:
                known[key] = new
                counts[number] -= 1
                counts[new] += 1

    def hide(self, owner: int, hidden: bool) -> None:
        """See `Index.hide`."""
        bit = 1 << self._slot(owner)
        self.alive = self.alive & ~bit if hidden else self.alive | bit

    def forget(self, owner: int) -> None:
        """See `Index.forget`."""
        slot = self.slots.pop(owner, None)
        if slot is None:
            return
        self.alive &= ~(1 << slot)
        self.owners[slot] = -1
        self.resting.append(slot)

    def drop(self, space: int) -> None:
        """See `Index.drop`."""
        self.spaces.pop(space, None)

    def lookup(self, space: int, keys: bytes) -> Runs:
        """See `Index.lookup`."""
        at = self.spaces.get(space)
        if at is None or not keys or not self.alive:
            return []
        sets, runs, numbers = at.sets, Runs(), map(at.keys.get, _numbers(keys))
        last, depth = next(numbers), 0
        held = self.alive & sets[last] if last else 0  # read behind the key: an owner is alive before it has one
        if not held:
            return []
        for depth, number in enumerate(numbers, 1):
            if number == last:
                continue
            last = number
            stay = held & sets[number] if number else 0
            if stay != held:
                runs.append((depth, self._members(held & ~stay)))
                held = stay
                if not held:
                    return runs
        runs.append((depth + 1, self._members(held)))
        return runs

    def _members(self, mask: int) -> list[int]:
        return [owner for slot in _bits(mask) if (owner := self.owners[slot]) >= 0]

    def collect(self) -> int:
        """See `Index.collect`."""
        self.free_slots += self.resting
        self.resting = []
        return sum(space.collect() for space in self.spaces.values())

    def sizes(self) -> dict[str, int]:
        """See `Index.sizes`."""
        keys = sum(len(space.keys) for space in self.spaces.values())
        sets = sum(len(space.ids) - 1 for space in self.spaces.values())
        tables = sum(sys.getsizeof(space.keys) for space in self.spaces.values())
        size = tables + keys * sys.getsizeof(2**60) + sets * SET_BYTES
        return {"keys": keys, "sets": sets, "spaces": len(self.spaces), "bytes": size}


def _numbers(keys: bytes) -> memoryview:
    return memoryview(keys).cast("Q")


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
