"""What every form of the routing index must do: the same tests for each, against a brute-force oracle.

A form's test module names its factory:

    class TestDict(IndexContract):
        make = DictIndex
"""

import random
import struct
import sys
import threading
from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

SPACES, OWNERS, KEYS = 3, 5, 24


def pack(keys):
    """Fingerprints as the index takes them."""
    return struct.pack(f"<{len(keys)}Q", *keys)


def key_of(space, i):
    """A spread-out fingerprint; the same number means another key in another space."""
    return random.Random(f"{space % 2}/{i}").getrandbits(64)


class Oracle:
    """The index as a set of triples."""

    def __init__(self):
        self.held = set()
        self.hidden = set()

    def add(self, space, owner, keys):
        self.held |= {(space, owner, k) for k in keys}

    def remove(self, space, owner, keys):
        self.held -= {(space, owner, k) for k in keys}

    def move(self, space, source, target, keys):
        self.remove(space, source, keys)
        self.add(space, target, keys)

    def hide(self, owner, hidden):
        (self.hidden.add if hidden else self.hidden.discard)(owner)

    def forget(self, owner):
        self.held = {x for x in self.held if x[1] != owner}
        self.hidden.discard(owner)

    def drop(self, space):
        self.held = {x for x in self.held if x[0] != space}

    def depths(self, space, keys):
        depths = {}
        for owner in {o for s, o, _ in self.held if s == space} - self.hidden:
            depth = 0
            while depth < len(keys) and (space, owner, keys[depth]) in self.held:
                depth += 1
            if depth:
                depths[owner] = depth
        return depths


def depths_of(runs):
    """Owner → depth, after checking the form of the answer: growing depths, each owner once, nobody at depth 0."""
    assert [d for d, _ in runs] == sorted({d for d, _ in runs})
    owners = [o for _, run in runs for o in run]
    assert len(owners) == len(set(owners))
    assert all(run and depth > 0 for depth, run in runs)
    return {o: d for d, run in runs for o in run}


keys = st.lists(st.integers(0, KEYS - 1), max_size=KEYS, unique=True)
spaces, owners = st.integers(0, SPACES - 1), st.integers(0, OWNERS - 1)
steps = st.one_of(
    st.tuples(st.just("add"), spaces, owners, keys),
    st.tuples(st.just("add"), spaces, owners, st.integers(1, KEYS).map(lambda n: list(range(n)))),
    st.tuples(st.just("remove"), spaces, owners, keys),
    st.tuples(st.just("move"), spaces, owners, owners, keys),
    st.tuples(st.just("hide"), owners, st.booleans()),
    st.tuples(st.just("forget"), owners),
    st.tuples(st.just("drop"), spaces),
    st.tuples(st.just("collect")),
)


class IndexContract:
    """Tests every form inherits; `make` makes an empty index."""

    make = None

    def build(self):
        return type(self).make()

    @settings(max_examples=150, deadline=None)
    @given(st.lists(steps, max_size=40), st.lists(st.lists(st.integers(0, KEYS - 1), max_size=KEYS), max_size=4))
    def test_any_history_answers_as_brute_force(self, history, chains):
        index, oracle = self.build(), Oracle()
        for step in history:
            self.step(index, oracle, step)
        for space in range(SPACES):
            for chain in [list(range(KEYS)), *chains]:
                named = [key_of(space, i) for i in chain]
                assert depths_of(index.lookup(space, pack(named))) == oracle.depths(space, named)

    def step(self, index, oracle, step):
        match step:
            case ("add" | "remove") as kind, space, owner, chain:
                named = [key_of(space, i) for i in chain]
                getattr(index, kind)(space, owner, pack(named))
                getattr(oracle, kind)(space, owner, named)
            case "move", space, source, target, chain:
                named = [key_of(space, i) for i in chain]
                index.move(space, source, target, pack(named))
                oracle.move(space, source, target, named)
            case "hide", owner, hidden:
                index.hide(owner, hidden)
                oracle.hide(owner, hidden)
            case "forget", owner:
                by_space = defaultdict(list)
                for space, who, k in oracle.held:
                    if who == owner:
                        by_space[space].append(k)
                for space, named in by_space.items():
                    index.remove(space, owner, pack(named))
                index.forget(owner)
                oracle.forget(owner)
            case "drop", space:
                index.drop(space)
                oracle.drop(space)
            case _:
                index.collect()

    def test_who_looks_while_keys_change_hands_finds_each_with_one_owner(self):
        """One thread moves, the others look: with the old owner or the new one, never with both nor with neither."""
        index, chain, stop, seen = self.build(), [key_of(0, i) for i in range(2_000)], threading.Event(), [[], [], []]
        index.add(0, 1, pack(chain))

        def look(found):
            rng = random.Random(len(found))
            while not stop.is_set():
                found.append([owners for _, owners in index.lookup(0, pack([rng.choice(chain)]))])

        readers = [threading.Thread(target=look, args=(found,)) for found in seen]
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            for reader in readers:
                reader.start()
            for turn in range(40):
                index.move(0, 1 + turn % 2, 2 - turn % 2, pack(chain))
                if turn % 8 == 0:
                    index.collect()
        finally:
            stop.set()
            for reader in readers:
                reader.join()
            sys.setswitchinterval(before)
        assert {str(one) for found in seen for one in found} <= {"[[1]]", "[[2]]"}
        assert all(len(found) > 20 for found in seen)

    def test_holes_end_a_run_where_they_are(self):
        index = self.build()
        chain = [key_of(0, i) for i in range(10)]
        index.add(0, 7, pack(chain))
        index.add(0, 8, pack(chain[:4] + chain[5:]))
        assert index.lookup(0, pack(chain)) == [(4, [8]), (10, [7])]

    def test_unknown_spaces_and_empty_chains_answer_nothing(self):
        index = self.build()
        assert index.lookup(9, pack([1, 2])) == []
        index.add(0, 1, pack([1]))
        assert index.lookup(0, b"") == []
        assert index.lookup(0, pack([2])) == []

    def test_a_hidden_owner_comes_back_with_what_it_holds(self):
        index = self.build()
        index.add(0, 1, pack([5, 6]))
        index.hide(1, True)
        assert index.lookup(0, pack([5, 6])) == []
        index.add(0, 1, pack([7]))
        index.hide(1, False)
        assert index.lookup(0, pack([5, 6, 7])) == [(3, [1])]

    def test_a_forgotten_number_holds_nothing_under_its_new_owner(self):
        index = self.build()
        index.add(0, 1, pack([5, 6]))
        index.remove(0, 1, pack([5, 6]))
        index.forget(1)
        for _ in range(3):
            index.collect()
        index.add(0, 2, pack([5]))
        assert index.lookup(0, pack([5, 6])) == [(1, [2])]

    def test_churn_leaves_neither_keys_nor_sets_behind(self):
        index, rng = self.build(), random.Random(1)
        for round_ in range(300):
            owner, chain = round_ % 40, [rng.getrandbits(64) for _ in range(20)]
            for other in range(owner, owner + 1 + round_ % 5):
                index.add(0, other, pack(chain))
            for other in range(owner, owner + 1 + round_ % 5):
                index.remove(0, other, pack(chain))
            if round_ % 50 == 0:
                index.collect()
        index.collect()
        sizes = index.sizes()
        assert sizes["keys"] == 0
        assert sizes["sets"] == 0

    def test_leaving_costs_one_step_whatever_was_held(self):
        index = self.build()
        for space in range(3):
            index.add(space, 1, pack(list(range(1, 20_001))))
        index.hide(1, True)
        index.drop(2)
        assert index.lookup(0, pack([1])) == []
        assert index.lookup(2, pack([1])) == []
