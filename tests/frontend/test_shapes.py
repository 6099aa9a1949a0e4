"""Where lines and bars lie."""

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from frontend import shapes

numbers = st.floats(0, 1e9, allow_nan=False)


@given(st.floats(1e-6, 1e12))
def test_an_axis_covers_its_top_in_equal_steps(top):
    ticks = shapes.nice(top)
    assert ticks[0] == 0
    assert ticks[-1] >= top * (1 - 1e-9)
    assert ticks[-1] <= top * 5.0001
    assert len({round(b - a, 9) for a, b in pairwise(ticks)}) == 1 or top < 1e-3


@given(st.lists(st.none() | numbers, max_size=50))
def test_a_spark_stays_in_its_box(values):
    area, line, doubt = shapes.spark(values)
    assert not doubt
    points = [float(n) for n in re.findall(r"-?\d+\.\d+", line)]
    assert all(0 <= x <= 100 for x in points[::2])
    assert all(1.9 <= y <= 22.1 for y in points[1::2])
    assert bool(line) == (sum(v is not None for v in values) >= 2) == bool(area)


def test_a_gap_in_a_spark_stays_a_gap():
    """Time is not squeezed over what nobody reported, and no line crosses it."""
    _, line, _ = shapes.spark([1, 2, None, None, 3, 4])
    assert line == "M0.0 22.0L20.0 15.3M80.0 8.7L100.0 2.0"
    assert shapes.spark([1, None, 2])[1].count("M") == 2, "a value alone between gaps is a dot"


def test_a_value_that_is_not_whole_is_never_drawn_as_exact():
    _, line, doubt = shapes.spark([1, 2, 3, 4], [True, True, False, True])
    assert line == "M0.0 22.0L33.3 15.3"
    assert doubt == "M33.3 15.3L66.7 8.7M66.7 8.7L100.0 2.0"


@given(st.lists(st.lists(st.floats(0, 10), min_size=3, max_size=3), min_size=1, max_size=20))
def test_stacked_columns_never_overlap_or_leave_the_box(rows):
    drawn = shapes.columns(rows, 30)
    by_column: dict[str, float] = {}
    for _series, x, y, _width, height in drawn:
        assert -0.01 <= float(y) <= 100
        assert abs(float(y) + float(height) - by_column.get(x, 100.0)) < 0.03
        by_column[x] = float(y)


def test_no_columns_without_a_top():
    assert shapes.columns([], 1) == []
    assert shapes.columns([[1.0]], 0) == []
