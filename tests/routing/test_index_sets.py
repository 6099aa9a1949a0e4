"""Owner sets against Python's, and the cache of compiled code where nothing may be written."""

import os
import subprocess
import sys

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from routing import index_sets as sets
from tests.architecture.tree import CLONE

U = np.uint64
WORDS = 2


def mask(row):
    return sum(int(word) << 64 * i for i, word in enumerate(row))


class Room:
    """Arrays with room for 512 sets."""

    def __init__(self):
        self.masks, self.buckets = np.zeros((512, WORDS), U), np.zeros(2048, np.int32)
        self.steps, self.free = np.zeros((2048, 2), U), np.zeros(512, np.int32)
        self.meta, self.row = np.zeros(4, np.int64), np.zeros(WORDS, U)
        self.meta[sets.HIGH] = 1

    def step(self, number, slot, removing):
        got = sets.step(self.steps, U(number), slot, removing)
        if got == sets.NEVER:
            sets.learn(self.masks, self.buckets, self.steps, self.free, self.meta, self.row, number, slot, removing)
            got = sets.step(self.steps, U(number), slot, removing)
        return int(got)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 100), st.booleans()), max_size=60), st.lists(st.integers(0, 50), max_size=10))
def test_steps_lead_to_the_set_they_say_and_equal_sets_are_one_number(walk, kept):
    room, number, want, seen = Room(), 0, 0, {0: 0}
    for slot, removing in walk:
        number = room.step(number, slot, int(removing))
        want = want & ~(1 << slot) if removing else want | 1 << slot
        assert (mask(room.masks[number]) if number else 0) == want
        assert seen.setdefault(want, number) == number
    alive = np.zeros(int(room.meta[sets.HIGH]), np.int8)
    living = {n for n in kept if 0 < n < len(alive)}
    alive[list(living)] = 1
    assert sets.sweep(room.masks, room.free, room.meta, alive) == len(seen) - 1 - len(living)
    assert sets.sweep(room.masks, room.free, room.meta, alive) == 0
    sets.rehash_sets(room.masks, room.buckets, int(room.meta[sets.HIGH]))
    for known, n in seen.items():
        if n in living:
            row = np.array([known >> 64 * i & 2**64 - 1 for i in range(WORDS)], U)
            assert sets.intern(room.masks, room.buckets, room.free, room.meta, row) == n


def test_where_no_cache_may_be_written_it_is_compiled_all_the_same(tmp_path):
    """A service user without a home, and a package that is not its own: numba finds no place and says so."""
    code = (
        "from numba.core import caching\n"
        "caching.CacheImpl._locator_classes = []\n"
        "from routing.index_sets import compiled\n"
        "f = compiled()(lambda x: x + 1)\n"
        "print(f(41), type(f._cache).__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=CLONE, env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["42", "NullCache"]
