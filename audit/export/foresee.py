"""Decides what is told of an export before it is asked for: how many events of which time, and what of it is personal.

Counting and looking end at a limit, so that the answer comes at once however long the log is. Nothing is recorded: of
the events themselves nothing is told.
"""

from datetime import datetime

import msgspec

from audit.disclosure import sealed_of
from audit.selectors import EventFilter, moment, place_of, places, selected
from kvconsole.infra import keystore
from kvcore.leaf import PII

COUNTED = 200_000
"""So many events are counted; more are told as this many."""
LOOKED = 1_000
"""Of so many, the newest, it is told whether they have personal data that can be read."""


class Foreseen(msgspec.Struct, frozen=True):
    """What an export would hold."""

    count: int
    exact: bool
    """False: about so many, as some may not be under the checkpoint yet."""
    more: bool
    """At least so many."""
    since: datetime | None
    until: datetime | None
    looked: int
    """Of so many, the newest, the next two are told."""
    personal: int
    """Have personal data."""
    readable: int
    """Have personal data that can still be read."""


def foresee(asked: EventFilter, *, size: int, whole: bool) -> Foreseen:
    """What of the log would be exported, as the current plane shows it.

    Args:
        asked: which events.
        size: of the checkpoint.
        whole: every event is the reader's, so that without a filter it is every leaf.
    """
    rows = selected(asked)
    newest = list(rows.order_by("-time_us", "-id").values_list("id", "time_us", "flags")[:LOOKED])
    oldest = rows.order_by("time_us", "id").values_list("time_us", flat=True).first()
    count = rows.values("id")[: COUNTED + 1].count()
    few, every = count == len(newest), whole and not (asked.narrows() or asked.since or asked.until)
    found = places([row[0] for row in newest])
    at = [place_of(row[0], row[1], found) for row in newest]
    newest = [row for row, place in zip(newest, at, strict=True) if place and place.index < size]
    if every:
        count = size
    elif few:
        count, oldest = len(newest), newest[-1][1] if newest else None
    personal = {event: time_us for event, time_us, flags in newest if flags & PII}
    return Foreseen(
        count=min(count, COUNTED) if not every else count,
        exact=every or few,
        more=count > COUNTED and not every,
        since=moment(oldest) if oldest is not None else None,
        until=moment(newest[0][1]) if newest else None,
        looked=len(newest),
        personal=len(personal),
        readable=_readable(personal),
    )


def _readable(personal: dict[int, int]) -> int:
    """Of how many of these events (id → time) the key is still there."""
    keys = [one.key for one in sealed_of(personal).values()]
    there = {key: keystore.keystore().exists(f"subject-{key.hex()}") for key in set(keys)}
    return sum(there[key] for key in keys)
