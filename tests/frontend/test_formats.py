"""Numbers, bytes, ages and names as people read them."""

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import translation
from hypothesis import given
from hypothesis import strategies as st

from frontend import formats

SHOW = (
    formats.number,
    formats.size,
    formats.share,
    formats.duration,
    formats.clock,
    formats.stamp,
    formats.milliseconds,
)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0 B"), (999, "999 B"), (1024, "1 KiB"), (1536, "1.50 KiB"), (64 << 20, "64 MiB"), (389 << 20, "389 MiB"),
     (5018 << 30, "4.90 TiB"), (2**63, "8 EiB")],
)  # fmt: skip
def test_bytes_have_iec_units(value, shown):
    assert formats.size(value) == shown


def test_a_unit_can_be_fixed_to_that_of_the_capacity():
    assert formats.iec(1 << 20, like=8 << 30) == ("0.00", "GiB")
    assert formats.iec(3 << 30, like=8 << 30) == ("3", "GiB")


@pytest.mark.parametrize("show", SHOW)
def test_unknown_is_a_word_and_never_a_zero(show):
    text = show(None)
    assert "unknown" in text
    assert "0" not in text
    assert 'class="unk"' in text


@pytest.mark.parametrize(
    ("seconds", "english", "chinese"),
    [(0.61, "0.6 s", "0.6 秒"), (12, "12 s", "12 秒"), (660, "11 min", "11 分钟"), (7200, "2 h", "2 小时"),
     (3 * 86400, "3 days", "3 天"), (-5, "0.0 s", "0.0 秒")],
)  # fmt: skip
def test_ages_use_the_largest_unit_that_says_enough(seconds, english, chinese):
    assert formats.duration(seconds) == english
    with translation.override("zh-hans"):
        assert formats.duration(seconds) == chinese


def test_short_lags_stay_milliseconds():
    assert formats.milliseconds(12) == "12 ms"
    assert formats.milliseconds(310) == "0.3 s"
    assert formats.milliseconds(0) == "0.0 s"


@pytest.mark.parametrize(
    ("value", "shown"), [(48.2, ("48.2", "")), (1284, ("1.28", "k")), (19_611_234, ("19.6", "M")), (7, ("7", ""))]
)
def test_rates_have_three_digits_that_matter(value, shown):
    assert formats.short(value) == shown


@given(st.floats(0, 1e15))
def test_a_short_number_is_never_far_off(value):
    number, prefix = formats.short(value)
    back = float(number.replace(",", "")) * 1000 ** formats.SI.index(prefix)
    assert abs(back - value) <= max(0.006, value * 0.006)


def test_times_are_utc():
    at = datetime(2026, 11, 29, 14, 32, 7, tzinfo=UTC)
    assert formats.clock(at) == "14:32:07"
    assert formats.clock(at + timedelta(hours=1), seconds=False) == "15:32"
    assert formats.stamp(at) == "2026-11-29 14:32:07 UTC"


def test_ids_are_shortened_in_the_middle():
    assert formats.middle("b7e2d1c0-914c-7000-8000-0000000000aa") == "b7e2d1c0…00aa"
    assert formats.middle("short") == "short"


def test_lists_are_joined_as_people_write_them():
    assert formats.joined(["a"]) == "a"
    assert formats.joined(["a", "b"]) == "a and b"
    assert formats.joined(["a", "b", "c"]) == "a, b and c"
    with translation.override("zh-hans"):
        assert formats.joined(["a", "b", "c"]) == "a、b 和 c"
