"""What is announced is believed as far as it came true before, and never brings about more than its bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore import hints
from kvcore.hints import Allowed, Standing, Trust

COUNT = st.integers(0, 10**9)
SHARE = st.floats(0, 1)


@given(COUNT, COUNT)
def test_trust_is_a_share_and_grows_with_what_came(came, missed):
    trust = Trust(came, missed).share
    assert 0 < trust < 1
    assert Trust(came + 1, missed).share > trust or came > 10**8
    assert Trust(came, missed + 1).share < trust or missed > 10**8


def test_trust_of_who_is_not_known_and_of_who_was_right_or_wrong():
    assert Trust().share == 0.25
    assert Trust(96, 0).share == pytest.approx(0.97)
    assert Trust(0, 96).share == pytest.approx(0.01)


@given(COUNT, COUNT, st.floats(allow_nan=False))
def test_nobody_is_believed_further_than_they_believe_themselves(came, missed, confidence):
    believed = hints.weight(Trust(came, missed), confidence)
    assert 0 <= believed <= Trust(came, missed).share
    assert believed <= max(confidence, 0)


@given(st.floats(0, 1e12), SHARE)
def test_what_is_kept_is_bounded_in_time(eta, believed):
    assert hints.keep_seconds(eta, believed) <= min(hints.KEEP_MOST_S * believed, hints.window_seconds(eta))
    assert hints.window_seconds(eta) <= 7230


def test_windows_of_what_was_announced():
    assert hints.window_seconds(3000) == 36
    assert hints.keep_seconds(3000, 1.0) == 36
    assert hints.keep_seconds(3_600_000, 0.5) == 450


@given(SHARE, st.none() | COUNT, st.integers(-5, 20))
def test_bounds_grow_with_belief_and_stay_within_the_allowance(believed, limit, priority):
    most = hints.allowed(believed=believed, limit_bytes=limit, priority=priority)
    full = hints.allowed(believed=1.0, limit_bytes=limit)
    assert most.pins <= full.pins == 200
    assert most.prefetches <= full.prefetches == 30
    assert most.blocks <= full.blocks == 65_536
    assert (most.bytes is None) == (limit is None)
    assert limit is None or most.bytes <= limit * hints.SHARE_MOST


MOST = Allowed(pins=2, blocks=100, bytes=1000, prefetches=1)


@pytest.mark.parametrize(
    ("standing", "blocks", "size", "why"),
    [(Standing(), 100, 1000, ""), (Standing(pins=2), 1, 1, "announced-too-much"),
     (Standing(blocks=1), 100, 1, "announced-too-much"), (Standing(bytes=1), 1, 1000, "allowance-used")],
)  # fmt: skip
def test_more_than_that_is_not_kept(standing, blocks, size, why):
    assert hints.keep_refusal(standing, MOST, blocks=blocks, size_bytes=size) == why


def test_who_is_not_believed_keeps_and_fetches_nothing():
    none = hints.allowed(believed=0.0, limit_bytes=None)
    assert hints.keep_refusal(Standing(), none, blocks=1, size_bytes=1) == "trust-too-small"
    assert hints.prefetch_refusal(Standing(), none) == "trust-too-small"
    assert hints.prefetch_refusal(Standing(), MOST) == ""
    assert hints.prefetch_refusal(Standing(prefetches=1), MOST) == "rate-limit"
