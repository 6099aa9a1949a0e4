"""Shares of new requests: refusals, then that keys stay, move one way only, and are shared as was said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.rollout import WHOLE, choose, forecast, point, request_key, shares_problem

OPEN = {1: "open", 2: "open", 3: "retired"}
SHARES = st.lists(st.integers(0, 100), min_size=1, max_size=5).map(
    lambda cuts: {
        i + 1: high - low for i, (low, high) in enumerate(zip([0, *sorted(cuts)], [*sorted(cuts), WHOLE], strict=True))
    }
)


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ({}, ("rollout-shares", 0)),
        ({1: 99}, ("rollout-shares", 99)),
        ({1: 60, 2: 60}, ("rollout-shares", 120)),
        ({1: 150, 2: -50}, ("rollout-shares", 150)),
        ({1: 50, 9: 50}, ("epoch-unknown", 9)),
        ({1: 100, 0: 0}, ("epoch-unknown", 0)),
        ({1: 50, 3: 50}, ("epoch-retired", 3)),
        ({1: 100, 3: 0}, None),
        ({1: 0, 2: 100}, None),
        ({1: 90, 2: 10}, None),
    ],
)
def test_shares_that_cannot_be(shares, expected) -> None:
    assert shares_problem(shares, OPEN) == expected


def test_without_epochs_there_is_no_choice() -> None:
    assert choose({}, 3) is None
    assert choose({1: 0, 2: 0}, 3) == 2
    assert choose({1: 30, 2: 0}, 99) == 1


@given(SHARES)
def test_each_epoch_has_exactly_its_points(shares: dict[int, int]) -> None:
    met = [choose(shares, at) for at in range(WHOLE)]
    assert {e: met.count(e) for e in shares} == shares


@given(st.integers(0, 99), st.integers(0, 100), st.integers(0, 100))
def test_a_growing_epoch_only_wins_keys(at: int, low: int, high: int) -> None:
    low, high = sorted((low, high))
    if choose({1: WHOLE - low, 2: low}, at) == 2:
        assert choose({1: WHOLE - high, 2: high}, at) == 2


@given(st.text(max_size=30), SHARES)
def test_a_key_stays(key: str, shares: dict[int, int]) -> None:
    assert choose(shares, point("m", "t", key)) == choose(shares, point("m", "t", key))


def test_points_are_spread_and_framed() -> None:
    counts = [0] * WHOLE
    for i in range(20_000):
        counts[point("m", "t", f"session:{i}")] += 1
    assert min(counts) > 130
    assert max(counts) < 270
    share = sum(choose({1: 90, 2: 10}, point("m", "t", f"session:{i}")) == 2 for i in range(20_000)) / 20_000
    assert abs(share - 0.1) < 0.01
    same = [point("a", "bc", str(i)) == point("ab", "c", str(i)) for i in range(200)]
    assert sum(same) < 20


def test_the_finest_name_of_a_conversation_decides() -> None:
    assert request_key(session="s", subject="p", request="r", label="l") == "session:s"
    assert request_key(subject="p", request="r", label="l") == "subject:p"
    assert request_key(request="r", label="l") == "request:r"
    assert request_key(label="l") == "label:l"
    assert request_key() == ""


def test_a_whole_move_peaks_a_quarter_higher_and_ends_with_nothing_old() -> None:
    found = forecast({1: 1000}, {1: 100}, {2: 100}, horizon=1200)
    assert (found[0].old_bytes, found[0].all_bytes) == (1000, 1000)
    assert (found[-1].seconds, found[-1].old_bytes, found[-1].all_bytes) == (1200, 0, 1000)
    assert max(p.all_bytes for p in found) == 1250


@given(st.dictionaries(st.integers(1, 4), st.integers(0, 10**12), max_size=4), SHARES, SHARES, st.integers(60, 10**6))
def test_forecasts_begin_at_what_is_held_and_never_lose_bytes(held, before, after, horizon) -> None:
    found = forecast(held, before, after, horizon=horizon)
    total = sum(held.values())
    assert found[0].all_bytes == total
    assert abs(found[-1].all_bytes - total) <= 1
    assert all(total - 1 <= p.all_bytes <= 1.25 * total + 1 for p in found)
    assert all(p.old_bytes >= 0 for p in found)
    assert [p.seconds for p in found] == sorted(p.seconds for p in found)
