"""Kernels against a dictionary: tables stay whole whatever comes, goes and collides; hints never change an answer."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from routing import index_kernels as kernels
from routing.index_sets import _key, _remember

U = np.uint64


def steps_of(pairs):
    """Remembered steps between numbers, by one slot."""
    made = np.zeros((64, 2), U)
    for (number, removing), new in pairs.items():
        _remember(made, _key(U(number), 0, removing), U(new))
    return made


STEPS = steps_of({(0, 0): 1, (1, 1): 0, (1, 0): 1})


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 40), max_size=8)), max_size=30), st.integers(8, 60))
def test_a_table_is_a_dictionary_and_leaves_no_graves(history, rows):
    table, held = np.zeros((rows + 1, 2), U), set()
    for add, some in history:
        keys = np.array(some, U)
        done = kernels.apply(table, STEPS, keys, 0, 0, 0 if add else 1, -1, rows - 2)
        some = some[: done[0]]
        held = held | set(some) if add else held - set(some)
        if done[1] == kernels.GROW:
            assert len(held) == rows - 2
    assert int(table[0, 0]) == len(held) == int((table[1:, 1] != 0).sum())
    for key in range(41):
        assert (int(kernels._get(table, U(key), U(rows))) == 1) == (key in held)
    larger = np.zeros((2 * rows + 1, 2), U)
    kernels.rehash(table, larger)
    assert {k for k in range(41) if kernels._get(larger, U(k), U(2 * rows))} == held


def test_a_step_that_is_not_known_stops_at_its_key_and_is_named():
    table = np.zeros((17, 2), U)
    at = kernels.apply(table, np.zeros((64, 2), U), np.array([5, 6], U), 0, 3, 0, -1, 12)
    assert at == (0, kernels.LEARN, 0, 3, 0)
    assert int(table[0, 0]) == 0


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 300), min_size=1, max_size=6), st.lists(st.integers(-5, 2_000), min_size=1, max_size=8))
def test_a_jump_ends_where_asking_every_key_does_whatever_it_was_hinted(stretches, hints):
    keys = np.arange(1, 1 + sum(stretches), dtype=U)
    table = np.zeros((4 * len(keys) + 2, 2), U)
    bounds = np.cumsum(np.array(stretches, np.int64))
    assert kernels.load(table, keys, 0, bounds, np.arange(1, 1 + len(stretches))) == len(keys)
    cap, start = U(len(table) - 1), 0
    for number, end in enumerate(bounds.tolist(), 1):
        assert kernels._next(table, keys, U(number), start, cap) == end
        for hint in hints:
            room = np.full(16, hint, np.int32)
            assert kernels._jump(table, keys, U(number), start, cap, room) == end
            assert kernels._jump(table, keys, U(number), start, cap, room) == end
        start = end


def test_loading_stops_at_a_key_that_has_another_set():
    table = np.zeros((33, 2), U)
    assert kernels.load(table, np.array([1, 2, 3], U), 0, np.array([3]), np.array([1])) == 3
    again = np.array([9, 2, 8], U)
    assert kernels.load(table, again, 0, np.array([1, 3]), np.array([1, 2])) == 1
    assert kernels.load(table, again, 2, np.array([1, 3]), np.array([1, 2])) == 3
    assert int(table[0, 0]) == 5
