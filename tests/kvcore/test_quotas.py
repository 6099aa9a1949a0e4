"""Guarantees, dealing and verdicts; a model of slow, silent and restarting nodes for what is in force."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcore.quotas import (
    ANYTHING,
    NOTHING,
    Grant,
    Room,
    Verdict,
    applied,
    in_force,
    redeal,
    scale,
    share,
    targets,
    verdict,
)

SIZES = st.integers(0, 2**53 - 1)
NAMED = st.dictionaries(st.sampled_from("abcdefgh"), SIZES, max_size=8)


def test_350_under_guarantees_of_200_and_500_is_100_and_250():
    assert scale(350, {"a": 200, "b": 500}) == {"a": 100, "b": 250}


def test_what_fits_is_not_scaled():
    assert scale(700, {"a": 200, "b": 500}) == {"a": 200, "b": 500}
    assert scale(0, {"a": 200, "b": 0}) == {"a": 0, "b": 0}
    assert scale(10, {}) == {}


@given(SIZES, NAMED)
def test_scaled_guarantees_fill_the_capacity_and_no_more(capacity, guarantees):
    worth = scale(capacity, guarantees)
    assert sum(worth.values()) == min(capacity, sum(guarantees.values()))
    assert all(0 <= worth[k] <= guarantees[k] for k in guarantees)
    whole = sum(guarantees.values())
    if whole > capacity:
        assert all(abs(worth[k] * whole - guarantees[k] * capacity) <= whole for k in guarantees)


@given(SIZES, NAMED, NAMED)
def test_shares_are_whole_and_capped(total, weights, most):
    parts = share(total, weights, most)
    assert sum(parts.values()) == min(total, sum(most.get(k, 0) for k in weights if weights[k]))
    assert all(0 <= parts[k] <= most.get(k, 0) for k in parts)
    assert share(total, weights, most) == parts


@given(SIZES, st.dictionaries(st.sampled_from("abcdef"), st.tuples(SIZES, SIZES), max_size=6))
def test_targets_keep_what_is_used_as_far_as_the_limit_goes(limit, nodes):
    rooms = {k: Room(*v) for k, v in nodes.items()}
    wanted = targets(limit, rooms)
    assert sum(wanted.values()) == min(limit, sum(r.capacity for r in rooms.values()))
    assert all(0 <= wanted[k] <= rooms[k].capacity for k in wanted)
    used = {k: min(r.used, r.capacity) for k, r in rooms.items()}
    if sum(used.values()) <= limit:
        assert all(wanted[k] >= used[k] for k in wanted)


def test_what_is_taken_from_one_is_given_to_another_only_when_it_was_let_go():
    grants = redeal(100, {}, {"a": 100, "b": 0})
    assert grants == {"a": Grant(100, 100), "b": NOTHING}
    grants = redeal(100, grants, {"a": 40, "b": 60})
    assert grants == {"a": Grant(40, 100), "b": Grant(0, 0)}
    grants["a"] = applied(grants["a"])
    assert redeal(100, grants, {"a": 40, "b": 60}) == {"a": Grant(40, 40), "b": Grant(60, 60)}


def test_what_was_unlimited_counts_without_end_until_it_was_let_go():
    grants = redeal(100, {"a": ANYTHING, "b": ANYTHING}, {"a": 50, "b": 50})
    assert grants == {"a": Grant(50, None), "b": Grant(50, None)}
    assert in_force(grants) is None
    assert redeal(100, {**grants, "c": NOTHING}, {"a": 50, "b": 30, "c": 20})["c"] == NOTHING


def test_no_limit_is_no_limit():
    assert redeal(None, {"a": Grant(1, 2)}, {"b": 5}) == {"a": ANYTHING, "b": ANYTHING}


def test_a_node_that_is_not_wanted_any_more_gets_nothing():
    assert redeal(10, {"a": Grant(10, 10)}, {}) == {"a": Grant(0, 10)}


@pytest.mark.parametrize(
    ("limit", "charged", "size", "found"),
    [
        (None, 5, 10**9, Verdict.FITS),
        (10, 5, 5, Verdict.FITS),
        (10, 6, 5, Verdict.EVICT),
        (10, 0, 11, Verdict.REFUSE),
        (0, 0, 1, Verdict.REFUSE),
    ],
)
def test_verdicts(limit, charged, size, found):
    assert verdict(limit, charged, size) is found


class Node:
    """Holds itself to the newest document that reached it; what it told is under way for as long as it likes."""

    def __init__(self):
        self.version, self.allowed = 0, 0

    def take(self, version, allowed):
        if version > self.version:
            self.version, self.allowed = version, allowed

    def restart(self):
        self.version, self.allowed = 0, 0  # a limited tenant without an allowance is kept out


@settings(max_examples=300, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 5), st.integers(0, 1000))
def test_the_sum_of_allowances_never_exceeds_the_limit(rnd: random.Random, count, limit):
    names = [f"n{i}" for i in range(count)]
    nodes = {n: Node() for n in names}
    grants, versions, done = {}, dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    under_way: list[tuple[str, int, int]] = []
    heard: list[tuple[str, int]] = []
    silent: set[str] = set()
    most = limit
    for _ in range(60):
        match rnd.randrange(7):
            case 0 | 1:  # a round of dealing
                use = {n: Room(rnd.randrange(1, 800), rnd.randrange(800)) for n in names if rnd.random() < 0.9}
                before = {n: grants.get(n, NOTHING).given for n in names}
                grants = redeal(limit, grants, targets(limit, use))
                for n in names:
                    given = grants.get(n, NOTHING).given
                    if given != before[n]:
                        versions[n] += 1
                        under_way.append((n, versions[n], given))
            case 2 | 3 if under_way:  # an answer arrives, in whatever order
                n, version, given = under_way.pop(rnd.randrange(len(under_way)))
                if n not in silent:
                    nodes[n].take(version, given)
            case 4:  # a node says what it has applied; it may be late
                n = rnd.choice(names)
                if n not in silent:
                    heard.append((n, nodes[n].version))
                if heard:
                    n, version = heard.pop(rnd.randrange(len(heard)))
                    if version == versions[n] and n in grants:
                        grants[n] = applied(grants[n])
                        done[n] = version
            case 5:
                n = rnd.choice(names)
                silent ^= {n}
                if rnd.random() < 0.3:
                    nodes[n].restart()
                    under_way = [m for m in under_way if m[0] != n]
                    heard = [h for h in heard if h[0] != n]
            case 6 if rnd.random() < 0.3:
                limit = rnd.randrange(1000)
        force = in_force(grants)
        assert force is not None
        most = max(limit, min(most, force))  # a lower limit is in force once nodes have let go
        assert sum(node.allowed for node in nodes.values()) <= force <= most
