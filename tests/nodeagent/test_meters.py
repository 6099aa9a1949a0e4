"""What is fitted is what was measured, and nothing is told before."""

import random

import pytest

from nodeagent.meters import ENOUGH, Meters

DECLARED = (0.009342, 1.0335e-7)


def test_before_anything_was_measured_the_declared_curve_stands_with_no_samples():
    meters = Meters(DECLARED)
    assert meters.curve() == (0.0, *DECLARED, 0)
    assert meters.prefill_ms(0, 1000) == pytest.approx(0.009342 * 1000 + 1.0335e-7 * 1e6)
    assert meters.tiers() == meters.edges() == {}
    assert meters.first_decode_ms is None
    for _ in range(ENOUGH - 1):
        meters.prefill(0, 500, 50.0)
    assert meters.curve()[3] == 0


def test_the_curve_of_prefills_behind_cached_tokens_is_found():
    meters, rnd = Meters(DECLARED), random.Random(3)
    for _ in range(200):
        m, n = rnd.randrange(0, 60_000), rnd.randrange(16, 8_000)
        meters.prefill(m, n, (3.0 + 0.02 * n + 4e-7 * ((m + n) ** 2 - m**2)) * rnd.uniform(0.98, 1.02))
    base, linear, square, samples = meters.curve()
    assert samples == 200
    assert linear == pytest.approx(0.02, rel=0.15)
    assert square == pytest.approx(4e-7, rel=0.15)
    assert min(base, linear, square) >= 0
    assert meters.prefill_ms(20_000, 4_000) == pytest.approx(3 + 80 + 4e-7 * (24_000**2 - 20_000**2), rel=0.05)


def test_what_changed_is_learnt_anew():
    meters = Meters(DECLARED)
    for speed in (0.02, 0.08):
        for n in range(100, 8_000, 50):
            meters.prefill(0, n, speed * n)
    assert meters.prefill_ms(0, 4_000) == pytest.approx(320, rel=0.1)


def test_one_length_again_and_again_is_no_reason_to_say_nonsense():
    meters = Meters(DECLARED)
    for _ in range(50):
        meters.prefill(0, 1_000, 40.0)
    assert meters.prefill_ms(0, 1_000) == pytest.approx(40, rel=0.01)
    assert all(x >= 0 for x in meters.curve())


def test_tiers_and_edges_have_a_rate_and_a_latency():
    meters = Meters(DECLARED)
    for size in range(10_000, 200_000, 10_000):
        meters.loaded("ssd", size, 0.5 + size / 5_000)
        meters.fetched("n2", size, 2.0 + size / 800)
    rate, latency, samples = meters.tiers()["ssd"]
    assert (rate, latency, samples) == (pytest.approx(5_000, rel=0.01), pytest.approx(0.5, rel=0.02), 19)
    assert meters.edges()["n2"][:2] == (pytest.approx(800, rel=0.01), pytest.approx(2.0, rel=0.02))


def test_first_decodes_are_a_moving_mean():
    meters = Meters(DECLARED)
    meters.decoded(10.0)
    meters.decoded(20.0)
    assert meters.first_decode_ms == pytest.approx(11.0)
