"""Decides who holds how much of a prefix: the routing index in its packed form, flat arrays under compiled kernels.

A table per space, 16 bytes a row, at most three quarters full; owner sets for all spaces together. One writer at a
time; look-ups come from any thread. Every kernel that writes what look-ups read is one step to them, as are they. An
array that was replaced is marked before the new one is written to, and a look-up that finds the mark begins again.

Importing this compiles, or reads what was compiled: seconds, or half of one. Called by `forms`.
"""

import threading
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from routing import index_kernels as kernels
from routing import index_sets as of_sets
from routing.index import UNLIMITED, Full, Runs

ROWS_LEAST = 16
FILL_NEW = 0.55
"""How full a table is after it grew; it grows at three quarters."""
SET_EXTRA = 24
"""Bytes of a set besides its mask: buckets, the list of free numbers."""
HINTS = 4_096
"""How many ends of stretches a thread remembers; a power of two."""
Words = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]


class Sets(NamedTuple):
    """What a look-up takes together with a table."""

    masks: Words
    alive: Words
    owners: Numbers
    """Slot → owner; -1 where the slot is free."""


class _Scratch(threading.local):
    """A thread's own room for answers."""

    def __init__(self) -> None:
        self.hints = np.zeros(HINTS, np.int32)
        self.fit(1)

    def fit(self, words: int) -> None:
        """There is room for owner sets of so many words."""
        self.words = words
        self.held = np.zeros(words, np.uint64)
        self.since, self.best = np.zeros(64 * words, np.int64), np.zeros(64 * words, np.int64)
        self.out = np.zeros(3 * 64 * words + 2, np.int64)


class PackedIndex:
    """The packed form of `Index`."""

    form = "packed"

    def __init__(self, bytes_max: int = UNLIMITED) -> None:
        self.bytes_max = bytes_max
        self.tables: dict[int, Words] = {}
        self.table_bytes = 0
        self.slots: dict[int, int] = {}
        self.free_slots: list[int] = []
        self.sets = Sets(np.zeros((64, 1), np.uint64), np.zeros(1, np.uint64), np.full(64, -1, np.int64))
        self._buckets = np.zeros(256, np.int32)
        self._free = np.zeros(64, np.int32)
        self._steps = np.zeros((256, 2), np.uint64)
        self._row = np.zeros(1, np.uint64)
        self._meta = np.zeros(4, np.int64)
        self._meta[of_sets.HIGH] = 1
        self._scratch = _Scratch()

    @property
    def size(self) -> int:
        """See `Index.size`: bytes of all arrays."""
        s = self.sets
        arrays = (s.masks, s.alive, s.owners, self._buckets, self._free, self._steps)
        return self.table_bytes + sum(a.nbytes for a in arrays)

    # ---------------------------------------------------------------- owners
    def _slot(self, owner: int) -> int:
        slot = self.slots.get(owner)
        if slot is None:
            slot = self.free_slots.pop() if self.free_slots else len(self.slots)
            if slot >= len(self.sets.owners):
                self._widen()
            self.sets.owners[slot] = owner
            self.slots[owner] = slot
            self._shown(slot, True)
        return slot

    def _shown(self, slot: int, shown: bool) -> None:
        bit = np.uint64(1 << (slot & 63))
        word = self.sets.alive[slot >> 6]
        self.sets.alive[slot >> 6] = word | bit if shown else word & ~bit

    def _widen(self) -> None:
        """Twice as many owners have a slot."""
        masks, alive, owners = self.sets
        words = masks.shape[1]
        self._afford(masks.nbytes * 2 + 64 * 9 * words)
        wide = np.zeros((masks.shape[0], 2 * words), np.uint64)
        wide[1:, :words] = masks[1:]
        self._replace(
            Sets(wide, np.append(alive, np.zeros_like(alive)), np.append(owners, np.full(len(owners), -1, np.int64)))
        )
        self._row = np.zeros(2 * words, np.uint64)
        of_sets.rehash_sets(wide, self._buckets, int(self._meta[of_sets.HIGH]))

    def _replace(self, new: Sets) -> None:
        old, self.sets = self.sets, new
        old.masks[0, 0] = 1  # whoever took it before, and has not begun to look, takes the new one

    def hide(self, owner: int, hidden: bool) -> None:
        """See `Index.hide`."""
        self._shown(self._slot(owner), not hidden)

    def forget(self, owner: int) -> None:
        """See `Index.forget`."""
        slot = self.slots.pop(owner, None)
        if slot is not None:
            self._shown(slot, False)
            self.sets.owners[slot] = -1
            self.free_slots.append(slot)

    # ----------------------------------------------------------------- steps
    def add(self, space: int, owner: int, keys: bytes) -> None:
        """See `Index.add`."""
        if keys:
            self._apply(space, keys, self._slot(owner), 0, -1)

    def remove(self, space: int, owner: int, keys: bytes) -> None:
        """See `Index.remove`."""
        slot, table = self.slots.get(owner), self.tables.get(space)
        if slot is None or table is None:
            return
        self._apply(space, keys, slot, 1, -1)
        if not table[0, 0]:
            self.drop(space)

    def move(self, space: int, source: int, target: int, keys: bytes) -> None:
        """See `Index.move`."""
        before = self.slots.get(source, -1)
        if keys:
            self._apply(space, keys, self._slot(target), 0, before if source != target else -1)

    def _apply(self, space: int, keys: bytes, slot: int, removing: int, source: int) -> None:
        table = self.tables.get(space)
        if table is None:
            table = self._table(space, ROWS_LEAST)
        chain, at, steps, rows = _words(keys), 0, self._steps, table.shape[0]
        while True:
            at, why, number, of, what = kernels.apply(
                table, steps, chain, at, slot, removing, source, rows - 1 - (rows >> 2)
            )
            if why == kernels.DONE:
                return
            if why == kernels.GROW:
                table = self._grown(space, table, min(len(chain) - at, table.shape[0]))
                rows = table.shape[0]
            else:
                self._learn(number, of, what)
                steps = self._steps

    def _learn(self, number: int, slot: int, removing: int) -> None:
        meta = self._meta
        self._set_room()
        if 2 * meta[of_sets.STEPS] >= len(self._steps):
            self._afford(2 * self._steps.nbytes)
            steps = np.zeros((2 * len(self._steps), 2), np.uint64)
            of_sets.copy_steps(self._steps, steps)
            self._steps = steps
        masks = self.sets.masks
        of_sets.learn(masks, self._buckets, self._steps, self._free, meta, self._row, number, slot, removing)

    def _set_room(self) -> None:
        """There is room for one more set."""
        meta, masks = self._meta, self.sets.masks
        if meta[of_sets.FREE] or meta[of_sets.HIGH] < len(masks):
            return
        self._afford(masks.nbytes * 2 + self._buckets.nbytes * 2 + self._free.nbytes)
        taller = np.zeros((2 * len(masks), masks.shape[1]), np.uint64)
        taller[1 : len(masks)] = masks[1:]
        self._replace(self.sets._replace(masks=taller))
        self._free = np.append(self._free, np.zeros_like(self._free))
        self._buckets = np.zeros(4 * len(taller), np.int32)
        of_sets.rehash_sets(taller, self._buckets, int(meta[of_sets.HIGH]))

    # ---------------------------------------------------------------- tables
    def _afford(self, more: int) -> None:
        if self.size + more > self.bytes_max:
            raise Full

    def _table(self, space: int, rows: int) -> Words:
        """An empty table for the space, which has none."""
        self._afford(16 * (rows + 1))
        table = self.tables[space] = np.zeros((rows + 1, 2), np.uint64)
        self.table_bytes += table.nbytes
        return table

    def _grown(self, space: int, table: Words, more: int) -> Words:
        """The space's table has room for so many keys more; look-ups use the old one until all is copied."""
        return self._resized(space, table, int((int(table[0, 0]) + more) / FILL_NEW) + ROWS_LEAST)

    def _resized(self, space: int, table: Words, rows: int) -> Words:
        self._afford(16 * (rows + 1))
        new = np.zeros((rows + 1, 2), np.uint64)
        kernels.rehash(table, new)
        self.tables[space] = new
        table[0, 1] |= kernels.STALE
        self.table_bytes += new.nbytes - table.nbytes
        return new

    def reserve(self, space: int, keys: int) -> None:
        """See `Index.reserve`."""
        self._roomy(space, keys)

    def _roomy(self, space: int, keys: int) -> Words:
        table = self.tables.get(space)
        if table is None:
            return self._table(space, int(keys / FILL_NEW) + ROWS_LEAST)
        if int(table[0, 0]) + keys > 0.75 * (len(table) - 1):
            table = self._grown(space, table, keys)
        return table

    def load(self, space: int, keys: bytes, lengths: Sequence[int], owners: Sequence[tuple[int, ...]]) -> None:
        """See `Index.load`."""
        chain = _words(keys)
        table = self._roomy(space, len(chain))
        known: dict[tuple[int, ...], int] = {}
        for who in owners:
            if who not in known:
                known[who] = self._interned(who)
        numbers = np.fromiter((known[who] for who in owners), np.int64, len(owners))
        bounds, at = np.cumsum(np.asarray(lengths, np.int64)), 0
        while (at := kernels.load(table, chain, at, bounds, numbers)) < len(chain):
            which = int(np.searchsorted(bounds, at, side="right"))
            for owner in owners[which]:
                self.add(space, owner, chain[at : at + 1].tobytes())
            at += 1

    def _interned(self, who: tuple[int, ...]) -> int:
        slots = [self._slot(owner) for owner in who]
        self._set_room()
        self._row[:] = 0
        for slot in slots:
            self._row[slot >> 6] |= np.uint64(1 << (slot & 63))
        return int(of_sets.intern(self.sets.masks, self._buckets, self._free, self._meta, self._row))

    def closed(self, space: int, vouched: bool) -> None:
        """See `Index.closed`."""
        table = self.tables.get(space)
        if table is not None:
            table[0, 1] = kernels.CLOSED if vouched else 0

    def drop(self, space: int) -> None:
        """See `Index.drop`."""
        table = self.tables.pop(space, None)
        if table is not None:
            self.table_bytes -= table.nbytes
            table[0, 1] |= kernels.STALE

    # -------------------------------------------------------------- look-ups
    def lookup(self, space: int, keys: bytes, window: int = 0, most: int = 0) -> Runs:
        """See `Index.lookup`."""
        scratch = self._scratch
        while (table := self.tables.get(space)) is not None and keys:
            masks, alive, owners = self.sets
            if scratch.words < len(alive):
                scratch.fit(len(alive))
            held = scratch.held if scratch.words == len(alive) else scratch.held[: len(alive)]
            if window:
                found = kernels.windowed(
                    table, masks, alive, owners, _words(keys), window, scratch.out, held, scratch.since, scratch.best
                )
                if found >= 0:
                    return _grouped(scratch.out[:found].tolist())
            else:
                hints = scratch.hints
                found = kernels.walk(table, masks, alive, owners, _words(keys), scratch.out, held, hints, most)
                if found >= 0:
                    return _listed(scratch.out[:found].tolist())
        return []

    # --------------------------------------------------------------- housework
    def collect(self) -> int:
        """See `Index.collect`."""
        meta = self._meta
        seen = np.zeros(int(meta[of_sets.HIGH]), np.int8)
        for table in self.tables.values():
            of_sets.mark(table, seen)
        gone = int(of_sets.sweep(self.sets.masks, self._free, meta, seen))
        if gone:
            self._steps = np.zeros((256, 2), np.uint64)  # they may lead to numbers that will be given again
            meta[of_sets.STEPS] = 0
            of_sets.rehash_sets(self.sets.masks, self._buckets, int(meta[of_sets.HIGH]))
        for space, table in list(self.tables.items()):
            rows = int(int(table[0, 0]) / FILL_NEW) + ROWS_LEAST
            if len(table) > 64 and 4 * int(table[0, 0]) < len(table) and self.size + 16 * (rows + 1) <= self.bytes_max:
                self._resized(space, table, rows)
        return gone

    def sizes(self) -> dict[str, int]:
        """See `Index.sizes`."""
        keys = sum(int(table[0, 0]) for table in self.tables.values())
        sets = int(self._meta[of_sets.HIGH] - 1 - self._meta[of_sets.FREE])
        return {"keys": keys, "sets": sets, "spaces": len(self.tables), "bytes": self.size}


def _words(keys: bytes) -> Words:
    """Of bytes always, as kernels are compiled for one kind of array."""
    return np.frombuffer(keys if type(keys) is bytes else bytes(keys), np.uint64)


def _listed(flat: list[int]) -> Runs:
    runs, at = Runs(), 0
    while at < len(flat):
        start = at + 2
        at = start + flat[at + 1]
        runs.append((flat[start - 2], flat[start:at]))
    return runs


def _grouped(flat: list[int]) -> Runs:
    pairs = sorted(zip(flat[::2], flat[1::2], strict=True))
    return [(depth, [owner for _, owner in run]) for depth, run in groupby(pairs, itemgetter(0))]


def warm() -> None:
    """Every kernel is compiled."""
    index, keys = PackedIndex(), np.arange(1, 200, dtype=np.uint64).tobytes()
    index.load(0, keys, [100, 99], [(1,), (1, 2)])
    for owner in range(70):
        index.add(0, owner, keys[owner:][:800].ljust(800, b"\1"))
        index.move(0, owner, owner + 1, keys[:80])
    for closed in (False, True):
        index.closed(0, closed)
        index.lookup(0, keys)
    index.lookup(0, keys, 4)
    for owner in range(71):
        index.remove(0, owner, keys)
    index.collect()
