"""What every form of the routing index must do: the same tests for each, against a brute-force oracle.

A form's test module names its factory:

    class TestDict(IndexContract):
        make = DictIndex
"""

import random
import struct
import sys
import threading
import time
import tracemalloc
from collections import defaultdict

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from routing.index import Full

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

    def windows(self, space, keys, window):
        """Owner → deepest place with so many keys before it, or all there are."""
        found = {}
        for owner in {o for s, o, _ in self.held if s == space} - self.hidden:
            has = [(space, owner, k) in self.held for k in keys]
            fits = [d for d in range(1, len(keys) + 1) if all(has[max(0, d - window) : d])]
            if fits:
                found[owner] = fits[-1]
        return found


def depths_of(runs):
    """Owner → depth, after checking the form of the answer: growing depths, each owner once, nobody at depth 0."""
    assert [d for d, _ in runs] == sorted({d for d, _ in runs})
    owners = [o for _, run in runs for o in run]
    assert len(owners) == len(set(owners))
    assert all(run and depth > 0 for depth, run in runs)
    return {o: d for d, run in runs for o in run}


def each_form(**more):
    """Settings of a property that every form inherits: it runs under several classes, each with its own index."""
    return settings(deadline=None, suppress_health_check=[HealthCheck.differing_executors], **more)


keys = st.lists(st.integers(0, KEYS - 1), max_size=KEYS, unique=True)
spaces, owners = st.integers(0, SPACES - 1), st.integers(0, OWNERS - 1)
steps = st.one_of(
    st.tuples(st.just("add"), spaces, owners, keys),
    st.tuples(st.just("add"), spaces, owners, st.integers(1, KEYS).map(lambda n: list(range(n)))),
    st.tuples(st.just("remove"), spaces, owners, keys),
    st.tuples(st.just("load"), spaces, st.lists(st.tuples(keys, st.sets(owners)), max_size=3)),
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

    @each_form(max_examples=150)
    @given(st.lists(steps, max_size=40), st.lists(st.lists(st.integers(0, KEYS - 1), max_size=KEYS), max_size=4))
    def test_any_history_answers_as_brute_force(self, history, chains):
        index, oracle = self.build(), Oracle()
        for step in history:
            self.step(index, oracle, step)
        for space in range(SPACES):
            for chain in [list(range(KEYS)), *chains]:
                named = [key_of(space, i) for i in chain]
                assert depths_of(index.lookup(space, pack(named))) == oracle.depths(space, named)
                whole = index.lookup(space, pack(named))
                for most in (1, 2, 4):
                    deeper = [sum(len(o) for _, o in whole[i + 1 :]) for i in range(len(whole))]
                    few = [run for run, beyond in zip(whole, deeper, strict=True) if beyond < most]
                    assert index.lookup(space, pack(named), most=most) == few
                for window in (1, 2, 5, KEYS):
                    windows = oracle.windows(space, named, window)
                    assert depths_of(index.lookup(space, pack(named), window)) == windows
        assert index.sizes()["keys"] == len({(space, k) for space, _, k in oracle.held})

    def step(self, index, oracle, step):
        match step:
            case ("add" | "remove") as kind, space, owner, chain:
                named = [key_of(space, i) for i in chain]
                getattr(index, kind)(space, owner, pack(named))
                getattr(oracle, kind)(space, owner, named)
            case "load", space, rows:
                named = [[key_of(space, i) for i in chain] for chain, _ in rows]
                packed = b"".join(pack(n) for n in named)
                index.load(space, packed, [len(n) for n in named], [tuple(who) for _, who in rows])
                for chain, (_, who) in zip(named, rows, strict=True):
                    for owner in who:
                        oracle.add(space, owner, chain)
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

    @each_form(max_examples=60)
    @given(st.integers(0, 2**32))
    def test_a_space_that_is_vouched_for_answers_the_same_by_jumping(self, seed):
        """Chains that branch off each other, owners that hold some way into them, cut from their ends."""
        index, oracle, rng = self.build(), Oracle(), random.Random(seed)
        trunk = [rng.getrandbits(64) for _ in range(rng.randrange(1, 400))]
        chains = [trunk] + [
            trunk[: rng.randrange(len(trunk) + 1)] + [rng.getrandbits(64) for _ in range(rng.randrange(1, 400))]
            for _ in range(4)
        ]
        index.add(0, 99, pack(trunk[:1]))
        oracle.add(0, 99, trunk[:1])
        index.closed(0, True)
        for _ in range(25):
            chain, owner = rng.choice(chains), rng.randrange(6)
            end = rng.randrange(len(chain) + 1)
            if rng.random() < 0.7:
                index.add(0, owner, pack(chain[:end]))
                oracle.add(0, owner, chain[:end])
            else:  # from the end on, and with it whatever branches off behind
                gone = {k for c in chains for i, k in enumerate(c) if c[: end + 1] == chain[: end + 1] and i >= end}
                index.remove(0, owner, pack(list(gone)))
                oracle.remove(0, owner, gone)
            if rng.random() < 0.1:
                hidden = rng.random() < 0.5
                index.hide(owner, hidden)
                oracle.hide(owner, hidden)
            for asked in (*chains, rng.choice(chains)[: rng.randrange(1, 200)]):
                more = [*asked, *(rng.getrandbits(64) for _ in range(rng.choice([0, 1, 70])))]
                assert depths_of(index.lookup(0, pack(more))) == oracle.depths(0, more)

    def test_a_vouch_that_is_taken_back_finds_the_hole(self):
        index = self.build()
        chain = [key_of(0, i) for i in range(300)]
        index.add(0, 7, pack(chain))
        index.closed(0, True)
        assert index.lookup(0, pack(chain)) == [(300, [7])]
        index.closed(0, False)
        index.remove(0, 7, pack(chain[150:151]))
        assert index.lookup(0, pack(chain)) == [(150, [7])]
        index.drop(0)
        index.add(0, 7, pack(chain[:10] + chain[11:]))
        assert index.lookup(0, pack(chain)) == [(10, [7])]

    def test_a_window_asks_for_the_last_keys_only(self):
        index = self.build()
        chain = [key_of(0, i) for i in range(100)]
        index.add(0, 1, pack(chain[80:96]))  # what a sliding group has kept of a prompt
        index.add(0, 2, pack(chain[:3] + chain[50:60]))
        assert index.lookup(0, pack(chain), window=8) == [(60, [2]), (96, [1])]
        assert index.lookup(0, pack(chain), window=12) == [(3, [2]), (96, [1])]
        assert index.lookup(0, pack(chain), window=17) == [(3, [2])]
        assert index.lookup(0, pack(chain[:90]), window=8) == [(60, [2]), (90, [1])]

    def test_the_cap_holds_also_while_tables_grow_and_what_is_there_stays(self):
        index, rng, cap = self.build(), random.Random(3), 3_000_000
        index.bytes_max = cap
        chains, refused = [pack([rng.getrandbits(64) for _ in range(500)]) for _ in range(1_000)], 0
        tracemalloc.start()
        try:
            for i, chain in enumerate(chains):
                try:
                    index.add(i % 3, i % 100, chain)
                except Full:
                    refused += 1
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert refused
        assert index.sizes()["keys"] > 10_000
        assert index.sizes()["bytes"] <= cap
        assert peak <= cap * 1.05
        assert index.lookup(0, chains[0]) == [(500, [0])]
        index.drop(0)
        index.add(1, 5, chains[-1])
        assert index.lookup(1, chains[-1]) == [(500, [5])]

    def test_many_owners_and_sets_are_told_apart(self):
        index, oracle, rng = self.build(), Oracle(), random.Random(2)
        chain = [rng.getrandbits(64) for _ in range(40)]
        for owner in range(300):
            for _ in range(3):
                some = rng.sample(chain[1:], 20)
                index.add(0, owner, pack([*chain[: owner % 7 + 1], *some]))
                oracle.add(0, owner, [*chain[: owner % 7 + 1], *some])
            if not owner % 50:
                index.collect()
        assert depths_of(index.lookup(0, pack(chain))) == oracle.depths(0, chain)
        for owner in range(0, 300, 2):
            index.remove(0, owner, pack(chain))
            index.forget(owner)
            oracle.forget(owner)
            index.add(0, 1_000 + owner, pack(chain[:5]))
            oracle.add(0, 1_000 + owner, chain[:5])
        index.collect()
        assert depths_of(index.lookup(0, pack(chain))) == oracle.depths(0, chain)

    def test_who_looks_while_tables_and_sets_grow_sees_what_was_there(self):
        """What was added before is found at its full depth all the time, whatever else comes, goes or is collected."""
        index, rng, stop, wrong = self.build(), random.Random(4), threading.Event(), []
        chain = pack([rng.getrandbits(64) for _ in range(600)])
        index.add(0, 1, chain)
        looked = [0, 0]

        def look(which):
            while not stop.is_set():
                found = index.lookup(0, chain)
                looked[which] += 1
                if found != [(600, [1])]:
                    wrong.append(found)

        readers = [threading.Thread(target=look, args=(i,)) for i in range(2)]
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            for reader in readers:
                reader.start()
            turn, deadline = 0, time.monotonic() + 30
            while turn < 300 or (min(looked) <= 20 and time.monotonic() < deadline):
                turn += 1
                other = pack([rng.getrandbits(64) for _ in range(200)])
                for owner in range(2, 2 + turn % 5):
                    index.add(turn % 2, 10 * turn + owner, other)
                if turn % 7 == 0:
                    index.drop(1)
                    index.collect()
        finally:
            stop.set()
            for reader in readers:
                reader.join()
            sys.setswitchinterval(before)
        assert wrong == []
        assert min(looked) > 20

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
            turn, deadline = 0, time.monotonic() + 30
            while turn < 40 or (min(map(len, seen)) <= 20 and time.monotonic() < deadline):
                index.move(0, 1 + turn % 2, 2 - turn % 2, pack(chain))
                if turn % 8 == 0:
                    index.collect()
                turn += 1
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
