import os

import pytest

from kvcore.blocks import Tier
from nodeagent.tiers.base import HEADER_BYTES, BlockRefused, Look, TierFull
from nodeagent.tiers.memory import MemoryTier
from tests.nodeagent.tiers.conftest import BLOCK, SLOT, run


@pytest.fixture
def arena():
    tier = MemoryTier(Tier.DRAM, capacity_bytes=8 * SLOT + 5, slot_bytes=SLOT)
    yield tier
    tier.close()


def test_blocks_are_checked_where_they_lie(arena):
    meta, raw = run(3)
    (place,) = arena.write([(meta, raw)])
    arena.check(meta, place)
    arena._view[place[1] * SLOT + HEADER_BYTES] ^= 1
    with pytest.raises(BlockRefused) as refusal:
        arena.check(meta, place)
    assert refusal.value.index == 1


def test_a_free_takes_the_done_bit_away(arena):
    meta, raw = run(1)
    (place,) = arena.write([(meta, raw)])
    arena.free([(meta, place)])
    assert arena._view[place[0] * SLOT + 4] == 0


def test_blocks_of_another_size_do_not_fit():
    arena = MemoryTier(Tier.HBM, capacity_bytes=8 * SLOT, slot_bytes=SLOT + BLOCK)
    with pytest.raises(TierFull):
        arena.write([run(1)])
    arena.close()


def test_a_tier_of_nothing():
    arena = MemoryTier(Tier.PINNED, capacity_bytes=0, slot_bytes=SLOT, lock_memory=True)
    assert arena.locked is False
    with pytest.raises(TierFull):
        arena.write([run(1)])
    arena.close()


def test_pinned_says_whether_it_is_locked():
    arena = MemoryTier(Tier.PINNED, capacity_bytes=16 * SLOT, slot_bytes=SLOT, lock_memory=True)
    assert arena.locked in (True, False)
    arena.close()


def test_the_arena_can_be_read_raw_from_outside():
    arena = MemoryTier(Tier.DRAM, capacity_bytes=8 * SLOT, slot_bytes=SLOT, label="n1:dram")
    meta, raw = run(2)
    arena.write([(meta, raw)])
    links = {os.readlink(f"/proc/self/fd/{fd}"): fd for fd in os.listdir("/proc/self/fd") if _is_link(fd)}
    fd = os.open(f"/proc/self/fd/{links['/memfd:kvc:n1:dram (deleted)']}", os.O_RDONLY)
    assert os.pread(fd, 8 * SLOT, 0) == raw + bytes(6 * SLOT)
    os.close(fd)
    arena.close()


def _is_link(fd):
    try:
        return bool(os.readlink(f"/proc/self/fd/{fd}"))
    except OSError:
        return False


def test_an_overwrite_that_does_not_take_is_not_clean():
    arena = MemoryTier(Tier.DRAM, capacity_bytes=8 * SLOT, slot_bytes=SLOT)
    meta, raw = run(2)
    (place,) = arena.write([(meta, raw)])
    real, arena._view = arena._view, memoryview(bytearray(8 * SLOT))  # writes go elsewhere than the region that is read
    look = Look()
    arena.erase([(meta, place)], look)
    assert (look.sampled, look.clean) == (2, 0)
    assert len(list(arena.lying())) == 2
    arena._view = real
    arena.close()


def test_without_memory_files_an_anonymous_mapping_does(monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    arena = MemoryTier(Tier.DRAM, capacity_bytes=8 * SLOT, slot_bytes=SLOT)
    meta, raw = run(2)
    (place,) = arena.write([(meta, raw)])
    assert [x.place for x in arena.lying()] == [0, 1]
    look = Look()
    arena.erase([(meta, place)], look)
    assert (look.sampled, look.clean) == (2, 2)
    assert list(arena.lying()) == []
    arena.close()
