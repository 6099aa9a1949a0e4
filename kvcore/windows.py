"""Decides when destructive operations may not start: windows that begin as a cron line says and last some minutes.

Times are UTC, in whole minutes. Deny beats everything but a second person, who may let one operation through. Called by
the console where an operation starts; nothing here asks a clock.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from kvcore.risk import Risk

MOST_MINUTES = 7 * 24 * 60
"""Longest window."""
_FIELDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
"""Least and most of minute, hour, day of the month, month, day of the week (0 and 7 are Sunday)."""
_MINUTE = timedelta(minutes=1)


class BadCron(ValueError):
    """The line cannot be read."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """From each minute that `cron` means, for `minutes`, nothing of `from_risk` or more starts."""

    cron: str
    minutes: int
    from_risk: str = Risk.R1


class _Cron(msgspec.Struct, frozen=True):
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool
    """Both days are narrowed: one of them is enough, as everywhere."""

    def means(self, at: datetime) -> bool:
        """Whether this minute is meant."""
        if at.minute not in self.minutes or at.hour not in self.hours or at.month not in self.months:
            return False
        month, week = at.day in self.days, at.isoweekday() % 7 in self.weekdays
        return month or week if self.either else month and week


def cron_check(line: str) -> None:
    """The line can be read: five fields of `*`, numbers, `a-b`, `/n` and commas.

    Raises:
        BadCron: it cannot; says why.
    """
    _parse(line)


def _parse(line: str) -> _Cron:
    fields = line.split()
    if len(fields) != len(_FIELDS):
        raise BadCron("five fields: minute, hour, day of the month, month, day of the week")
    minutes, hours, days, months, week = (
        _field(text, low, high) for text, (low, high) in zip(fields, _FIELDS, strict=True)
    )
    narrowed = not fields[2].startswith("*") and not fields[4].startswith("*")
    return _Cron(minutes, hours, days, months, frozenset(day % 7 for day in week), narrowed)


def _field(text: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, dash, last = span.partition("-")
        if span == "*":
            start, end = low, high
        elif first.isdecimal() and (not dash or last.isdecimal()):
            start = int(first[:4])
            end = int(last[:4]) if dash else high if step else start
        else:
            raise BadCron(f"{part!r} is no number, span or star")
        if not low <= start <= end <= high or ("/" in part and not (step.isdecimal() and int(step[:4]))):
            raise BadCron(f"{part!r} is not within {low} to {high}")
        found |= set(range(start, end + 1, int(step[:4]) if step else 1))
    return frozenset(found)


def denied_until(windows: Iterable[Window], risk: str, at: datetime) -> datetime | None:
    """When the last window that is open now and means this risk ends; None = none is.

    Raises:
        BadCron: of a window that nobody checked.
    """
    ends = [end for window in windows if risk >= window.from_risk and (end := _open_until(window, at))]
    return max(ends, default=None)


def _open_until(window: Window, at: datetime) -> datetime | None:
    """Its end, if it is open; where windows of the line overlap, that of the last which began."""
    cron, minute = _parse(window.cron), at.replace(second=0, microsecond=0)
    for back in range(min(window.minutes, MOST_MINUTES)):
        began = minute - back * _MINUTE
        if cron.means(began):
            return began + window.minutes * _MINUTE
    return None
