"""Windows in which nothing starts: what a cron line means, from which risk on, and until when."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.windows import BadCron, Window, cron_check, denied_until

NIGHT = Window(cron="30 22 * * 1-5", minutes=8 * 60)
"""From Monday to Friday at 22:30, until 6:30."""
MONDAY = datetime(2026, 11, 30, tzinfo=UTC)


def at(hour: int, minute: int = 0, *, days: int = 0) -> datetime:
    return MONDAY + timedelta(days=days, hours=hour, minutes=minute)


@pytest.mark.parametrize(
    ("moment", "until"),
    [
        (at(22, 29), None),
        (at(22, 30), at(6, 30, days=1)),
        (at(6, 29, days=1), at(6, 30, days=1)),
        (at(6, 30, days=1), None),
        (at(3), None),  # the Sunday before has none
        (at(23, days=5), None),  # Saturday
        (at(3, days=5), at(6, 30, days=5)),  # of Friday
    ],
)
def test_a_window_lasts_from_its_minute_on(moment: datetime, until: datetime | None) -> None:
    assert denied_until([NIGHT], "R1", moment) == until


def test_it_means_its_risk_and_all_above() -> None:
    high = Window(cron="* * * * *", minutes=1, from_risk="R3")
    assert denied_until([high], "R2", MONDAY) is None
    assert denied_until([high], "R3", MONDAY) == at(0, 1)
    assert denied_until([NIGHT], "R0", at(23)) is None


def test_the_last_to_end_counts() -> None:
    long = Window(cron="0 0 * * *", minutes=120)
    assert denied_until([Window(cron="0 1 * * *", minutes=30), long], "R1", at(1, 10)) == at(2)


@pytest.mark.parametrize(
    ("line", "means"),
    [
        ("*/15 * * * *", [0, 15, 30, 45]),
        ("5-7 * * * *", [5, 6, 7]),
        ("10/20 * * * *", [10, 30, 50]),
        ("1,3-5/2 * * * *", [1, 3, 5]),
    ],
)
def test_fields(line: str, means: list[int]) -> None:
    window = Window(cron=line, minutes=1)
    assert [m for m in range(60) if denied_until([window], "R1", at(0, m))] == means


def test_either_day_is_enough_where_both_are_named() -> None:
    window = Window(cron="0 0 15 * 1", minutes=1)
    assert [d for d in range(28) if denied_until([window], "R1", at(0, days=d))] == [0, 7, 14, 15, 21]
    assert denied_until([Window(cron="0 0 * * 7", minutes=1)], "R1", at(0, days=6))


@pytest.mark.parametrize("line", ["", "* * * *", "60 * * * *", "* * 0 * *", "a * * * *", "5-1 * * * *", "*/0 * * * *",
                                  "* * * * 8", "1- * * * *", "-1 * * * *", "1/ * * * *"])  # fmt: skip
def test_what_is_no_line(line: str) -> None:
    with pytest.raises(BadCron):
        cron_check(line)


@given(st.text(alphabet="0123456789*/-, x", max_size=30))
def test_any_text_is_read_or_refused(line: str) -> None:
    try:
        cron_check(line)
    except BadCron:
        return
    denied_until([Window(cron=line, minutes=10)], "R1", MONDAY)
