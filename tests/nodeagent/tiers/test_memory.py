import os
import secrets
import subprocess
import sys

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


def test_blocks_behind_each_other_are_lent_and_others_are_copied(arena):
    first, second, third = run(2), run(1), run(3)
    places = arena.write([first, second])
    lent = arena.lend(first[0], places[0])
    assert isinstance(lent, memoryview)
    assert (lent, arena.lend(second[0], places[1])) == (first[1], second[1])
    lent.release()
    arena.free([(first[0], places[0])])
    arena._free.reverse()
    (place,) = arena.write([third])
    assert place != tuple(sorted(place))
    assert arena.lend(third[0], place) == arena.read(third[0], place) == third[1]
    arena._view[place[2] * SLOT + HEADER_BYTES] ^= 1
    with pytest.raises(BlockRefused):
        arena.lend(third[0], place)


def test_slots_are_the_same_as_blocks_or_not(arena):
    (meta, raw), other = run(3), run(3)
    (place,) = arena.write([(meta, raw)])
    assert arena.same(place, raw)
    assert arena.same(place, memoryview(raw))
    assert not arena.same(place, other[1])
    arena._view[place[2] * SLOT + SLOT - 1] ^= 1
    assert not arena.same(place, raw)


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
    label = f"{secrets.token_hex(8)}:dram"
    arena = MemoryTier(Tier.DRAM, capacity_bytes=8 * SLOT, slot_bytes=SLOT, label=label)
    meta, raw = run(2)
    arena.write([(meta, raw)])
    links = {os.readlink(f"/proc/self/fd/{fd}"): fd for fd in os.listdir("/proc/self/fd") if _is_link(fd)}
    fd = os.open(f"/proc/self/fd/{links[f'/memfd:kvc:{label}:{SLOT} (deleted)']}", os.O_RDONLY)
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


LEFT = """
import os, sys
from nodeagent.tiers.memory import give_back, wipe_freed
able = wipe_freed()
first, second = b"canary of a bl", b"ock that was freed"
buffers = [(first + second) * 64 for _ in range(200)]
keep = [os.urandom(1000) for _ in range(200)]
del buffers
give_back()
found = 0
with open("/proc/self/mem", "rb", 0) as memory, open("/proc/self/maps") as maps:
    for line in maps:
        ends, rights = line.split()[:2]
        if "w" not in rights:
            continue
        start, end = (int(x, 16) for x in ends.split("-"))
        try:
            memory.seek(start)
            view = memory.read(min(end - start, 1 << 26))
        except (OSError, ValueError):
            continue
        found += view.count(first + second) - view.count(b"x" + first + second)
        del view
print(able, found)
"""


def test_what_is_freed_is_overwritten_where_the_allocator_can():
    """In a process of its own, because it is for the whole process."""
    done = subprocess.run([sys.executable, "-c", LEFT], check=True, capture_output=True, text=True, timeout=60)
    able, found = done.stdout.split()
    assert able == "False" or int(found) <= 3, found  # what looks for it holds it, too
