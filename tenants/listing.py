"""Reads lists a page at a time: each page begins behind a row, so that none is left out, however long the list is.

How many rows there are in all is not counted. What is listed is what the current plane shows.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from django.db.models import Q, QuerySet

PAGE = 50
MARK_CHARS = 400
Keys = Sequence[tuple[str, Callable[[str], Any]]]
"""Columns that order a list, `-` for descending, each with what reads its value again; the last one is unique."""

BY_NAME: Keys = (("username", str),)
ACTIVE_FIRST: Keys = (("rank", int), ("-created_at", datetime.fromisoformat), ("-id", str))
NEWEST_FIRST: Keys = (("-requested_at", datetime.fromisoformat), ("-id", UUID))


class Listing(msgspec.Struct, frozen=True):
    """One page. `after` and `before` ask for the neighbouring pages, "" = there is none."""

    items: list[Any]
    after: str
    before: str

    @property
    def whole(self) -> bool:
        """Whether this is all there is."""
        return not self.after and not self.before


def listing(rows: QuerySet[Any], *, keys: Keys, after: str = "", before: str = "", limit: int = PAGE) -> Listing:
    """The page behind `after`, before `before`, or the first one.

    Args:
        rows: in any order; `keys` are columns or annotations of theirs.
        keys: how they are ordered.
        after: a mark of another page; what is none is the first page, and so is one behind which nothing is left.
        before: as `after`; it counts first.
        limit: rows of a page.
    """
    back, place = bool(before), _place(before or after, keys)
    if place is None:
        back = False
    order = [_turned(name) if back else name for name, _ in keys]
    part = rows.filter(_beyond(order, place)) if place is not None else rows
    found = list(part.order_by(*order)[: limit + 1])
    if not found and place is not None:
        return listing(rows, keys=keys, limit=limit)
    more, found = len(found) > limit, found[:limit]
    if back:
        found.reverse()
    first, last = (_mark(found[0], keys), _mark(found[-1], keys)) if found else ("", "")
    if back:
        return Listing(found, last, first if more else "")
    return Listing(found, last if more else "", first if place is not None else "")


def _turned(name: str) -> str:
    return name[1:] if name.startswith("-") else f"-{name}"


def _beyond(order: Sequence[str], place: Sequence[Any]) -> Q:
    """Rows that come behind the place in this order."""
    found, same = Q(), Q()
    for name, value in zip(order, place, strict=True):
        column, way = (name[1:], "lt") if name.startswith("-") else (name, "gt")
        found |= same & Q(**{f"{column}__{way}": value})
        same &= Q(**{column: value})
    return found


def _mark(row: Any, keys: Keys) -> str:
    values = (getattr(row, name.removeprefix("-")) for name, _ in keys)
    return "~".join(v.isoformat() if isinstance(v, datetime) else str(v) for v in values)


def _place(mark: str, keys: Keys) -> list[Any] | None:
    parts = mark.split("~")
    if not mark or len(parts) != len(keys) or len(mark) > MARK_CHARS or "\0" in mark:
        return None
    try:
        values = [read(part) for (_, read), part in zip(keys, parts, strict=True)]
    except ValueError:
        return None
    late = [v for v in values if isinstance(v, datetime) and v.tzinfo is None]
    return None if late or any(isinstance(v, int) and abs(v) > 2**31 - 1 for v in values) else values
