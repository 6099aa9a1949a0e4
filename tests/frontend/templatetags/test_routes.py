"""How amounts, terms and candidates of decisions are drawn."""

import itertools
import re
from types import SimpleNamespace

import pytest

from frontend import formats
from frontend.routing.wording import ANSWERS, PANELS, QUANTITIES, TERMS, UNITS
from frontend.templatetags import routes

MODEL = SimpleNamespace(bytes_per_token=163_840, block_tokens=16)


@pytest.mark.parametrize(
    ("ms", "told"), [(0.0, "0.0 ms"), (9.94, "9.9 ms"), (9.95, "10 ms"), (12.4, "12 ms"), (1408.8, "1,409 ms"),
                     (-3.21, "-3.2 ms")],
)  # fmt: skip
def test_a_tenth_below_ten_and_whole_above(ms, told):
    assert routes.precise(ms) == told


def test_what_is_unknown_is_no_number():
    assert {routes.precise(None), routes.signed(None), routes.part_of(None, 10), routes.part_of(3, 0)} == {
        formats.unknown()
    }
    assert routes.part_of(3, None) == formats.unknown()
    assert routes.part_of(0, 10) == formats.share(0.0) != formats.unknown()


def test_a_difference_has_its_sign():
    assert [routes.signed(ms) for ms in (12.0, -12.0, 0.01)] == ["+12 ms", "−12 ms", "±0.0 ms"]


def test_one_bar_has_a_part_for_each_term_that_takes_time_and_says_them_all():
    drawn = routes.contributions((1.0, 300.0, 0.0, 89.0, 0.0, 0.0, 10.0), 800.0)
    parts = re.findall(r'<rect class="([\w-]+)" x="([\d.]+)%" width="([\d.]+)%"', drawn)
    assert [name for name, *_ in parts] == [routes.colour(n) for n in (0, 1, 3, 6)]
    for (_, x, width), (_, after, _) in itertools.pairwise(parts):
        assert float(x) + float(width) == pytest.approx(float(after), abs=0.02)
    assert float(parts[-1][1]) + float(parts[-1][2]) == pytest.approx(50.0, abs=0.02), "half as long as the longest"
    label = re.search('aria-label="([^"]*)"', drawn)[1]
    assert label.count(" ms") == 4
    assert "takes no time" in routes.contributions((0.0,) * 7, 0.0)


def test_seven_terms_are_told_apart():
    assert len({routes.colour(n) for n in range(len(TERMS))}) == len(TERMS) == 7
    legend = routes.terms_legend()
    assert all(f">{word}<" in legend or f"{word}</li>" in legend for word in map(str, TERMS.values()))


def test_sizes_of_a_model():
    assert routes.block_size(MODEL) == formats.size(2_621_440)
    assert routes.context_size(MODEL) == formats.size(163_840 * 131_072)


def test_words_come_from_the_lists_of_words():
    code, name, quantity = next(iter(ANSWERS)), next(iter(PANELS)), next(iter(QUANTITIES))
    assert routes.answer_word(code) == ANSWERS[code].word
    assert routes.panel_words(name) == PANELS[name]
    label, hint = QUANTITIES[quantity]
    assert routes.quantity({"name": quantity, "value": "1"}) == {
        "name": quantity, "value": "1", "label": label, "hint": hint
    }  # fmt: skip
    assert routes.unit("furlong") == "furlong"
    assert all(routes.unit(known) == word for known, word in UNITS.items())
    assert routes.times(1.5) == "1.50 ×"
