"""A breaker opens and closes when it should, and shedding leaves what fits."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcore.breakers import Breaker, Rule, admitted_shares, asked, failed, succeeded, verdict
from kvcore.economics import shed_share

RULE = Rule()


def broken(now_ms: float = 0.0) -> Breaker:
    b = Breaker()
    for _ in range(RULE.failures):
        assert b.state == "closed"
        b = failed(b, now_ms, RULE)
    return b


def test_it_opens_after_five_failures_in_a_row() -> None:
    b = broken()
    assert b.state == "open"
    assert asked(b, 4_999.0, RULE) == (b, False)
    near = Breaker()
    for _ in range(20):
        for _ in range(RULE.failures - 1):
            near = failed(near, 0.0, RULE)
        near = succeeded(near, 0.0, RULE)
    assert near.state == "closed"


def test_one_probe_at_a_time_and_two_close_it() -> None:
    b, may = asked(broken(), 5_000.0, RULE)
    assert (b.state, may) == ("half-open", True)
    assert asked(b, 5_001.0, RULE) == (b, False)
    b = succeeded(b, 5_010.0, RULE)
    b, may = asked(b, 5_011.0, RULE)
    assert may
    b = succeeded(b, 5_020.0, RULE)
    assert b == Breaker(since_ms=5_020.0)


def test_a_probe_that_fails_or_never_answers_opens_it_for_longer() -> None:
    b, _ = asked(broken(), 5_000.0, RULE)
    b = failed(b, 5_100.0, RULE)
    assert (b.state, b.rest_ms) == ("open", 10_000.0)
    b, may = asked(b, 15_100.0, RULE)
    assert may
    b, may = asked(b, 20_100.0, RULE)
    assert (b.state, b.rest_ms, may) == ("open", 20_000.0, False)
    b, _ = asked(b, 40_100.0, RULE)
    b = failed(b, 40_200.0, RULE)
    assert b.rest_ms == RULE.most_rest_ms


def test_what_was_under_way_when_it_opened_changes_nothing() -> None:
    b = broken()
    assert succeeded(b, 1.0, RULE) == b == failed(b, 1.0, RULE)


@settings(deadline=None)
@given(st.floats(0, 60_000), st.floats(100, 2_000))
def test_it_closes_within_30_s_of_the_repair(repaired_ms: float, every_ms: float) -> None:
    b, now = broken(), 0.0
    while b.state != "closed":
        now += every_ms
        b, may = asked(b, now, RULE)
        if may:
            b = succeeded(b, now, RULE) if now >= repaired_ms else failed(b, now, RULE)
    assert now <= max(repaired_ms, 5_000.0) + 30_000.0


def test_the_low_priorities_are_shed_first() -> None:
    assert admitted_shares(0.9, {1: 0.5, 2: 0.5}) == {1: 1.0, 2: 1.0}
    assert admitted_shares(2.0, {1: 0.5, 2: 0.3, 3: 0.2}) == pytest.approx({3: 1.0, 2: 1.0, 1: 0.0})
    assert admitted_shares(1.25, {1: 0.5, 2: 0.5}) == pytest.approx({2: 1.0, 1: 0.6})
    assert admitted_shares(6.0, {1: 0.0, 2: 1.0}) == pytest.approx({2: 1 / 6, 1: 0.0})


@settings(deadline=None)
@given(st.floats(0.1, 100), st.lists(st.floats(0.01, 1), min_size=1, max_size=5))
def test_what_is_admitted_fits_and_is_what_the_formula_leaves(load: float, parts: list[float]) -> None:
    offered = {i: p / sum(parts) for i, p in enumerate(parts)}
    shares = admitted_shares(load, offered)
    kept = sum(offered[p] * s for p, s in shares.items())
    assert kept * load <= max(load if load <= 1 else 1.0, 0) + 1e-9
    assert kept == pytest.approx(1 - shed_share(1.0, load))
    assert all(shares[a] <= shares[b] + 1e-9 for a in shares for b in shares if a < b)


def test_a_request_is_admitted_by_its_seed_and_its_promise() -> None:
    shares = {1: 0.25, 2: 1.0}
    got = [verdict(shares, 1, seed).admitted for seed in range(2_000)]
    assert abs(sum(got) / 2_000 - 0.25) < 0.03
    assert got == [verdict(shares, 1, seed).admitted for seed in range(2_000)]
    assert all(verdict(shares, 2, seed).admitted for seed in range(50))
    assert verdict({1: 0.0}, 1, 5).why == "overload"
    assert not verdict({2: 0.0, 3: 1.0}, 1, 5).admitted
    assert verdict({}, 1, 5).admitted
    assert verdict(shares, 2, 1, total_ms=900.0, most_ms=800.0).why == "slo"
    assert verdict(shares, 2, 1, total_ms=None, most_ms=800.0).admitted
    assert verdict(shares, 2, 1, total_ms=math.inf).admitted
