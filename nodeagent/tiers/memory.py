"""Decides how the memory tiers keep blocks: one capped arena each, cut into slots of one block with its header.

`hbm` is an arena too and says `emulated`; `pinned` is locked into RAM where the system allows it. The arena belongs to
this process: its content ends with it, which is what a new `boot` tells the console.
"""

import contextlib
import ctypes
import mmap
from collections.abc import Iterable, Sequence

from kvcore.blocks import Tier
from nodeagent.tiers.base import DONE_AT, RunMeta, Stored, TierFull, verify


class MemoryTier:
    """Slots of one size in an anonymous mapping. A place is a tuple of slot numbers."""

    persistent = False
    encrypted = False

    def __init__(self, name: Tier, *, capacity_bytes: int, slot_bytes: int, lock_memory: bool = False) -> None:
        self.name = name
        self.emulated = name is Tier.HBM
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self._slot = slot_bytes
        self._slots = capacity_bytes // slot_bytes
        self._arena = mmap.mmap(-1, max(self._slots * slot_bytes, mmap.PAGESIZE))
        self._view = memoryview(self._arena)
        self._next = 0
        self._free: list[int] = []
        self.locked = lock_memory and _mlock(self._view, self._slots * slot_bytes)

    def write(self, runs: Sequence[tuple[RunMeta, bytes]]) -> list[tuple[int, ...]]:
        """Copies the runs into free slots; a block's done bit is set after its last byte is in place."""
        wanted = sum(meta.blocks for meta, _ in runs)
        if wanted > len(self._free) + self._slots - self._next or any(m.slot_bytes != self._slot for m, _ in runs):
            raise TierFull(f"{self.name}: {wanted} blocks do not fit")
        places, slot, arena = [], self._slot, self._view
        for meta, raw in runs:
            place = self._take(meta.blocks)
            source = memoryview(raw)
            for i, number in enumerate(place):
                at, start = number * slot, i * slot
                arena[at + DONE_AT] = 0
                arena[at : at + DONE_AT] = source[start : start + DONE_AT]
                arena[at + DONE_AT + 1 : at + slot] = source[start + DONE_AT + 1 : start + slot]
                arena[at + DONE_AT] = source[start + DONE_AT]
            self.used_bytes += len(place) * slot
            places.append(place)
        return places

    def _take(self, count: int) -> tuple[int, ...]:
        again = min(count, len(self._free))
        taken = self._free[len(self._free) - again :]
        del self._free[len(self._free) - again :]
        taken.extend(range(self._next, self._next + count - again))
        self._next += count - again
        return tuple(taken)

    def read(self, meta: RunMeta, place: tuple[int, ...]) -> bytes:
        """The run's blocks, each checked where it lies."""
        slot, view = self._slot, self._view
        parts = []
        for i, number in enumerate(place):
            block = view[number * slot : (number + 1) * slot]
            verify(meta, i, block)
            parts.append(block)
        return b"".join(parts)

    def check(self, meta: RunMeta, place: tuple[int, ...]) -> None:
        """Like `read`, without copying: for blocks that are used where they lie."""
        slot, view = self._slot, self._view
        for i, number in enumerate(place):
            verify(meta, i, view[number * slot : (number + 1) * slot])

    def free(self, runs: Sequence[tuple[RunMeta, tuple[int, ...]]]) -> None:
        """Takes the done bits away and gives the slots back."""
        for _, place in runs:
            for number in place:
                self._view[number * self._slot + DONE_AT] = 0
            self._free.extend(place)
            self.used_bytes -= len(place) * self._slot

    def stored(self) -> Iterable[Stored]:
        """Nothing: memory does not outlive its process."""
        return ()

    def close(self) -> None:
        """Unmaps the arena; while somebody still looks at a block of it, the end of that look does."""
        with contextlib.suppress(BufferError):
            self._view.release()
            self._arena.close()


def _mlock(view: memoryview, size: int) -> bool:
    """Whether the system let us lock the arena into RAM; refusal (RLIMIT_MEMLOCK) is normal and only shown."""
    if not size:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    address = ctypes.addressof(ctypes.c_char.from_buffer(view))
    return bool(libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(size)) == 0)
