"""Bars of the waterfall: each begins where the one before ended; what nobody measured has none."""

from datetime import UTC, datetime
from itertools import pairwise
from uuid import UUID

import pytest

from frontend.routing import waterfall
from frontend.routing.wording import TERMS
from tests.frontend import plant_routing

CARD = plant_routing.recorded(UUID(int=1), datetime.now(UTC)).choice.prefill


def test_bars_follow_each_other_and_end_at_the_sum():
    rows = waterfall.rows(CARD, None, None)
    assert all(a.expected_at + a.expected == pytest.approx(b.expected_at) for a, b in pairwise(rows))
    assert rows[-1].expected_at + rows[-1].expected == pytest.approx(CARD.total_ms)
    assert {row.ghost for row in rows} == {None}


def test_behind_a_term_that_was_not_measured_no_bar_has_a_place():
    told = {"router": 1.0, "queue_p": 2.0, "prefill": 4.0}
    rows = {row.term: row for row in waterfall.rows(CARD, told, None)}
    assert (rows["queue_p"].measured_at, rows["cache_load"].measured, rows["prefill"].measured) == (1.0, None, 4.0)
    assert rows["prefill"].measured_at is None
    drawn = {one["term"]: one for one in waterfall.series(list(rows.values()), {name: name for name in TERMS})}
    assert (drawn["queue_p"]["measured"], drawn["cache_load"]["measured"], drawn["prefill"]["measured"]) == (
        [1.0, 2.0], None, None,
    )  # fmt: skip
