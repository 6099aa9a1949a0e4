"""Decides how the memory tiers keep blocks: one capped arena each, cut into slots of one block with its header.

`hbm` is an arena too and says `emulated`; `pinned` is locked into RAM where the system allows it. The arena belongs to
this process: its content ends with it, which is what a new `boot` tells the console. What leaves it is overwritten at
once, so a slot without a block is all zeros. Where the system has memory files the arena is one, so that another
process of the same user can read it raw (`nodeagent.probe`).
"""

import contextlib
import ctypes
import mmap
import os
import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence

from kvcore.blocks import Tier
from nodeagent.tiers.base import DONE_AT, Bytes, Look, Lying, RunMeta, Stored, TierFull, verify_all

_M_PERTURB, _WIPED = -6, 0x55
LOOK_BYTES = 2**20
"""Read at once when the arena is looked through."""


class MemoryTier:
    """Slots of one size in a mapping of its own. A place is a tuple of slot numbers."""

    persistent = False
    encrypted = False

    def __init__(
        self, name: Tier, *, capacity_bytes: int, slot_bytes: int, lock_memory: bool = False, label: str = ""
    ) -> None:
        self.name = name
        self.emulated = name is Tier.HBM
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self._slot = slot_bytes
        self._slots = capacity_bytes // slot_bytes
        size = max(self._slots * slot_bytes, mmap.PAGESIZE)
        self._fd = _memory_file(f"{label or name.value}:{slot_bytes}", size)
        self._arena = mmap.mmap(self._fd, size)
        self._view = memoryview(self._arena)
        self._zeros = bytes(slot_bytes)
        self._next = 0
        self._free: list[int] = []
        self.locked = lock_memory and _mlock(self._view, self._slots * slot_bytes)

    def write(self, runs: Sequence[tuple[RunMeta, Bytes]]) -> list[tuple[int, ...]]:
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
        return bytes(self.lend(meta, place))

    def lend(self, meta: RunMeta, place: tuple[int, ...]) -> Bytes:
        """Like `read`; blocks that lie behind each other are not copied, and it is good until they are freed."""
        self.check(meta, place)
        slot, view = self._slot, self._view
        if place == tuple(range(place[0], place[0] + len(place))):
            return view[place[0] * slot : (place[0] + len(place)) * slot]
        return b"".join(view[n * slot : (n + 1) * slot] for n in place)

    def check(self, meta: RunMeta, place: tuple[int, ...]) -> None:
        """Like `read`, without copying: for blocks that are used where they lie."""
        slot, view = self._slot, self._view
        verify_all(meta, (view[number * slot : (number + 1) * slot] for number in place))

    def same(self, place: tuple[int, ...], raw: Bytes) -> bool:
        """Whether the slots hold exactly these blocks."""
        slot, arena, view = self._slot, self._arena, memoryview(raw)
        return all(
            arena[n * slot : (n + 1) * slot].startswith(view[i * slot : (i + 1) * slot]) for i, n in enumerate(place)
        )

    def free(self, runs: Sequence[tuple[RunMeta, tuple[int, ...]]]) -> None:
        """Overwrites the slots with zeros and gives them back."""
        slot, view, zeros = self._slot, self._view, self._zeros
        for _, place in runs:
            for number in place:
                view[number * slot : (number + 1) * slot] = zeros
            self._free.extend(place)
            self.used_bytes -= len(place) * slot

    def erase(self, runs: Sequence[tuple[RunMeta, tuple[int, ...]]], look: Look) -> None:
        """Overwrites the slots with a pattern, reads that back, then gives them back as zeros."""
        self.scour([number for _, place in runs for number in place], look)
        for _, place in runs:
            self._free.extend(place)
            self.used_bytes -= len(place) * self._slot

    def scour(self, places: Sequence[int], look: Look) -> None:
        """Overwrites slots with a new pattern, reads that back, then overwrites with zeros and looks again.

        A pattern, because a mapping that lost its memory would read as zeros too.
        """
        slot, view = self._slot, self._view
        pattern = (secrets.token_bytes(32) * (slot // 32 + 1))[:slot]
        for number in places:
            view[number * slot : (number + 1) * slot] = pattern
        for number in places:
            seen = self._peek(number * slot, slot)
            view[number * slot : (number + 1) * slot] = self._zeros
            zeros = self._peek(number * slot, slot)
            look.saw(seen + zeros, clean=seen == pattern and zeros == self._zeros)

    @property
    def slot_bytes(self) -> int:
        """Bytes of one block with its header."""
        return self._slot

    @property
    def unused(self) -> int:
        """Slots without a block."""
        return self._slots - self.used_bytes // self._slot

    def lying(self, without: Collection[int] = ()) -> Iterator[Lying]:
        """Each slot that is not all zeros, in order."""
        slot = self._slot
        step = max(LOOK_BYTES // slot, 1)
        zeros = bytes(step * slot)
        for first in range(0, self._slots, step):
            part = self._peek(first * slot, min(step, self._slots - first) * slot)
            if part == zeros[: len(part)]:
                continue
            for at in range(0, len(part), slot):
                if (number := first + at // slot) not in without and part[at : at + slot] != self._zeros:
                    yield Lying(None, number)

    def remains(self, places: Sequence[int]) -> list[int]:
        """Slots that are not all zeros now."""
        return [n for n in places if self._peek(n * self._slot, self._slot) != self._zeros]

    def _peek(self, at: int, size: int) -> bytes:
        """What lies there: read from the memory file, so that pages nobody ever wrote are not made by looking."""
        return os.pread(self._fd, size, at) if self._fd >= 0 else bytes(self._view[at : at + size])

    def stored(self) -> Iterable[Stored]:
        """Nothing: memory does not outlive its process."""
        return ()

    def close(self) -> None:
        """Unmaps the arena; while somebody still looks at a block of it, the end of that look does."""
        with contextlib.suppress(BufferError):
            self._view.release()
            self._arena.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def wipe_freed() -> bool:
    """Whether the allocator overwrites what is freed from now on: buffers that blocks went through leave no copy.

    For the whole process. Only glibc can; of blocks below 512 bytes Python keeps the memory itself.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_M_PERTURB, _WIPED))


def give_back() -> None:
    """Pages that the allocator keeps free are the system's again."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _memory_file(label: str, size: int) -> int:
    """A memory file of so many zeros, -1 where the system has none (the arena is an anonymous mapping then)."""
    if not hasattr(os, "memfd_create"):
        return -1
    fd = os.memfd_create(f"kvc:{label}", os.MFD_CLOEXEC)
    os.ftruncate(fd, size)
    return fd


def _mlock(view: memoryview, size: int) -> bool:
    """Whether the system let us lock the arena into RAM; refusal (RLIMIT_MEMLOCK) is normal and only shown."""
    if not size:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    address = ctypes.addressof(ctypes.c_char.from_buffer(view))
    return bool(libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(size)) == 0)
