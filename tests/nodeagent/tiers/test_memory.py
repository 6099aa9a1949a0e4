import pytest

from kvcore.blocks import Tier
from nodeagent.tiers.base import HEADER_BYTES, BlockRefused, TierFull
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
