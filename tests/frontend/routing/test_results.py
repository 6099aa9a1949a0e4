"""Results of the calculators that have no figure: each says so, none is 0."""

import pytest

from frontend.routing import results


def of(found):
    return {one.code: one for one in found}


def test_a_curve_of_nothing_has_no_bandwidth_at_which_both_are_equal():
    found = of(results.crossover({"linear_us": 0, "square_ns": 0, "bandwidth": 1, "token_bytes": 1, "latency_ms": 1,
                                  "fetch_tokens": 10}))  # fmt: skip
    assert (found["even_bandwidth"].value, found["crossover_tokens"].value) == (None, None)
    assert str(found["crossover_tokens"].text) == "never"


def test_a_fast_link_wins_at_every_length():
    found = of(results.crossover({"linear_us": 100, "square_ns": 1, "bandwidth": 1000, "token_bytes": 10,
                                  "latency_ms": 0, "fetch_tokens": 10}))  # fmt: skip
    assert (found["crossover_tokens"].value, found["crossover_tokens"].text) == (0, "every length")


@pytest.mark.parametrize(("seconds", "text"), [(61.632, "61.632 s"), (1848.96, "30.816 min"), (None, "never")])
def test_intervals(seconds, text):
    assert results._interval(seconds) == text


def test_bytes_are_told_to_the_last_one():
    assert results.exact_bytes("token", 163840, "").text == "163,840 B = 160 KiB"
    assert results.exact_bytes("token", 0.5, "").text == "0.50 B"
