"""The reference's figures to the digit: sizes, crossovers, break-even, surge, links, scatter."""

import math

import pytest

from kvcore.cards import Curve
from kvcore.economics import (
    break_even_hit_rate,
    break_even_interval_s,
    crossover_bytes_per_ms,
    crossover_tokens,
    curve_through,
    decode_read,
    expected_value,
    exposed_ms,
    held_byte_seconds,
    link_budget,
    load_after,
    load_ms,
    prefill_flops,
    recompute_cost,
    saved,
    shed_share,
    storage_cost,
    surge,
    token_bytes,
    token_layer_bytes,
    usable_after_loss,
)
from tests.kvcore.workers import CURVE, TOKEN

CONTEXT = 131_072
R, T = recompute_cost(3, 2.5), 0.0003
S = storage_cost(25e9, 3, 60)
SESSION = TOKEN * CONTEXT


def test_sizes() -> None:
    assert token_layer_bytes(8, 128, 1) == 2_048
    assert token_bytes(80, 8, 128, 1) == TOKEN == 160 * 1024
    assert (TOKEN * 16, TOKEN * 256) == (2_621_440, 41_943_040)
    assert SESSION == 21_474_836_480 == 20 * 2**30
    assert TOKEN * 128_000 == 20_971_520_000
    assert SESSION * 1000 // (16 * TOKEN) == 8_192_000


def test_the_curve() -> None:
    assert round(CURVE.linear_ms, 8) == 0.00934232
    assert f"{CURVE.square_ms:.6e}" == "1.033468e-07"
    found = [round(CURVE.suffix_ms(0, n), 2) for n in (4096, 32_768, 80_000, CONTEXT)]
    assert found == [40.00, 417.10, 1408.80, 3000.00]
    assert round(CURVE.linear_ms / CURVE.square_ms) == 90_398
    for bad in ((0, 1.0), (4096, 40.0)):
        with pytest.raises(ValueError, match="two lengths"):
            curve_through((4096, 40.0), bad)


@pytest.mark.parametrize(
    ("tokens", "rate", "ms"),
    [
        (CONTEXT, 50e6, 429.50), (CONTEXT, 25e6, 858.99), (CONTEXT, 12.5e6, 1717.99),
        (4096, 50e6, 13.42), (4096, 25e6, 26.84), (4096, 12.5e6, 53.69), (32_768, 125e3, 42_949.67),
    ],
)  # fmt: skip
def test_transfers(tokens: int, rate: float, ms: float) -> None:
    assert round(load_ms(tokens * TOKEN, rate), 2) == ms


def test_layers_leave_while_others_are_computed() -> None:
    prefill, size = CURVE.suffix_ms(0, 32_768), 32_768 * TOKEN
    assert round(exposed_ms(prefill, load_ms(size, 50e6), 80), 3) == 1.342
    assert round(exposed_ms(prefill, load_ms(size, 12.5e6), 80), 2) == 17.61


def test_where_fetching_beats_computing() -> None:
    found = crossover_tokens(CURVE, TOKEN, 12.5e6)
    assert found is not None
    assert round(found) == 36_430
    # the reference's 717 and 330 leave attention's square out; with it the length is a little less
    assert round(crossover_tokens(CURVE, TOKEN, 25e6, 2.0) or 0) == 699
    assert round(crossover_tokens(CURVE, TOKEN, 50e6, 2.0) or 0) == 328
    flat = Curve(CURVE.linear_ms, 0.0)
    assert round(crossover_tokens(flat, TOKEN, 25e6, 2.0) or 0) == 717
    assert round(crossover_tokens(flat, TOKEN, 50e6, 2.0) or 0) == 330
    assert [round(crossover_bytes_per_ms(CURVE, TOKEN, n) / 1e6, 2) for n in (4096, 32_768, CONTEXT)] == [
        16.78, 12.87, 7.16,
    ]  # fmt: skip


def test_crossovers_at_the_ends() -> None:
    assert crossover_tokens(CURVE, TOKEN, 50e6) == 0
    assert crossover_tokens(Curve(CURVE.linear_ms, 0.0), TOKEN, 12.5e6) is None
    assert crossover_tokens(Curve(0.001, 0.0, 5.0), 1_000, 1e6, 3.0) == 0
    assert crossover_tokens(Curve(0.001, 0.0, 5.0), 1_000, 1e6, 7.0) is None
    assert crossover_tokens(Curve(0.01, 1e-7, 50.0), TOKEN, 25e6, 1.0) == 0


def test_what_a_hit_saves() -> None:
    turn = saved(CURVE, TOKEN, 80_300, 82_300)
    assert (turn.tokens, turn.size_bytes, round(turn.ms, 3)) == (80_300, 13_156_352_000, 1416.577)
    assert round(CURVE.suffix_ms(80_300, 82_300), 3) == 52.293
    assert round(CURVE.suffix_ms(0, 82_300), 3) == 1468.870
    shared = saved(CURVE, TOKEN, 26_208, 32_768)
    assert (round(shared.ms, 2), round(CURVE.suffix_ms(26_208, 32_768), 2)) == (315.83, 101.27)
    assert TOKEN * 80_000 / 1e9 == 13.1072
    assert round(held_byte_seconds(TOKEN * 80_000, 3) / 1e9, 2) == 39.32


def test_prices() -> None:
    assert [round(v, 8) for v in (R, S, T, T + S)] == [0.00208333, 0.00173611, 0.0003, 0.00203611]
    assert round(recompute_cost(3, 2.5, 8), 8) == 0.01666667


@pytest.mark.parametrize(
    ("gpus", "rate", "seconds"), [(1, 49.329, 61.632), (2, 30.99, None), (4, 17.77, None), (8, 9.59, 565.632)]
)
def test_break_even(gpus: int, rate: float, seconds: float | None) -> None:
    again = recompute_cost(3, 2.5, gpus)
    found = break_even_hit_rate(S, again, T)
    assert found is not None
    assert round(found * 100, 3 if gpus == 1 else 2) == rate
    if seconds is not None:
        assert break_even_interval_s(again, T, 25e9, 3) == pytest.approx(seconds, abs=5e-4)


def test_break_even_of_other_sizes_and_tiers() -> None:
    moved = T * SESSION / 25e9  # the price of a transfer goes with the bytes
    rate = break_even_hit_rate(storage_cost(SESSION, 3, 60), R, moved)
    assert rate is not None
    assert round(rate * 100, 2) == 44.96
    assert break_even_interval_s(R, moved, SESSION, 3) == pytest.approx(73.451, abs=5e-4)
    assert (break_even_interval_s(R, T, 25e9, 0.10) or 0) / 60 == pytest.approx(30.816, abs=5e-4)
    assert break_even_hit_rate(S, T, T) is None
    assert break_even_interval_s(T, R, 25e9, 3) is None
    assert break_even_interval_s(R, T, 25e9, 0) == math.inf
    at = break_even_hit_rate(S, R, T)
    assert at is not None
    # who keeps one for so long breaks even where its hits pay what storage costs those that were not hit
    assert expected_value(at, R, T, S * (1 - at)) == pytest.approx(0.0, abs=1e-12)


def test_surge() -> None:
    at90, at94 = surge(0.9, curve=CURVE, tokens=80_000), surge(0.942, curve=CURVE, tokens=80_000)
    assert (round(at90.linear, 3), round(at90.quadratic, 3), round(at90.model or 0, 3)) == (10.0, 5.263, 7.030)
    assert (round(at94.linear, 3), round(at94.quadratic, 3), round(at94.model or 0, 3)) == (17.241, 8.878, 11.954)
    assert surge(0.9, lost=0.25).linear == pytest.approx(3.25)
    work = prefill_flops(32e9, 80, 64, 128)
    assert round(surge(0.942, curve=work, tokens=80_000).model or 0, 1) == 10.9
    assert f"{work.suffix_ms(0, CONTEXT):.2e}" == "3.09e+16"
    assert surge(0.0).linear == 1 == surge(0.9, lost=0.0).quadratic
    for bad in ({"hit_rate": 1.0}, {"hit_rate": -0.1}, {"hit_rate": 0.5, "lost": 1.1}, {"hit_rate": math.nan}):
        with pytest.raises(ValueError, match="hit rate"):
            surge(**bad)


def test_shedding() -> None:
    assert [round(shed_share(0.6, 1 / (1 - h)) * 100, 2) for h in (0.9, 0.942)] == [83.33, 90.33]
    assert round(load_after(0.6, 1 / (1 - 0.942)), 2) == 10.34
    assert shed_share(0.6, 1.5) == 0


def test_links() -> None:
    assert link_budget(25e9, 1000, 50e9).links == 500
    budget = link_budget(SESSION, 1000, 50e9, 859)
    assert round(budget.links, 1) == 429.5
    assert round(budget.headroom or 0, 3) == 0.5
    assert link_budget(1, 1, 1).headroom is None
    assert link_budget(1, 1, 1, 0).headroom == -math.inf
    assert round(decode_read(SESSION, 0.05) / 1e9, 3) == 429.497
    assert round(decode_read(SESSION, 0.05, 1000) / 176e12, 3) == 2.440


def test_scatter() -> None:
    assert round(usable_after_loss(32, 5000), 3) == 31.0
    assert 31 * 16 == 496
    assert round(usable_after_loss(64, 5000)) == 63
    assert usable_after_loss(1, 5000) == 0
