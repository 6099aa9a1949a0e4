"""Decides whether an event is missing: numbers that a producer left out, events that neither wait nor are sealed.

A tree proves that what is in it was not changed, never that all is in it. Each minute: the producers' numbers in the
leaves that came since, by index; and that events are in the queue or in the log, which one snapshot must show: the
newest ones each time, all others in turn, round after round. Where the turn is says only where the next look begins,
never that what lies behind is there: an event that was committed late, at whatever number or time, is met by the next
round. What is explained by then (it came late, or was sealed meanwhile) is closed, as an event. Run by the sequencer's
process.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from django.db import connections, transaction

from audit.findings import finding_open, findings_settle
from audit.tree import Ask, asked

EVERY_SECONDS = 60.0
RECENT = 200_000
"""So many of the newest events are looked for in queue and log each time."""
IN_TURN = 500_000
"""And so many of all events, where the last look ended: ten million take twenty minutes."""
LEAVES = 20_000
"""Leaves that are read at once."""
QUEUE = 50_000
"""With more events waiting, the newest numbers of producers are not compared this time."""
MOST_TIME = 2**63 - 1
NAMED = 20
"""So many findings of one look are told singly."""
_IN_NEITHER = (
    "NOT EXISTS (SELECT FROM audit_leaf_all l WHERE l.event = e.id AND l.time_us = e.time_us)"
    " AND NOT EXISTS (SELECT FROM audit_pending p WHERE p.event = e.id AND p.time_us = e.time_us)"
)


class Hole(NamedTuple):
    """Numbers that a producer gave and no leaf has."""

    producer: int
    first: int
    last: int
    at: int
    """Of the leaf that shows it: the first one with a higher number, or where it would have come."""


class Tally:
    """Which numbers of each producer were seen, as runs; it stays small while nothing is missing."""

    def __init__(self, runs: Mapping[str, Sequence[Sequence[int]]] | None = None) -> None:
        self._runs = {int(p): [(a, b, i) for a, b, i in of] for p, of in (runs or {}).items()}
        self.doubled: list[tuple[int, int, int]] = []
        """(producer, number, index) of what came twice."""

    def add(self, numbers: Iterable[tuple[int, int, int]]) -> None:
        """These were seen: (producer, number, index of the leaf), in any order."""
        run: list[int] = []
        for producer, seq, index in sorted(numbers):
            if run and run[0] == producer and seq == run[2] + 1:
                run[2] = seq
                run[3] = min(run[3], index)
                continue
            if run:
                self._merge(*run)
            run = [producer, seq, seq, index]
        if run:
            self._merge(*run)

    def span(self, producer: int, first: int, last: int, index: int) -> None:
        """A whole run of numbers was seen."""
        self._merge(producer, first, last, index)

    def newest(self, producer: int) -> int:
        """The highest number seen, 0 if none was."""
        runs = self._runs.get(producer)
        return runs[-1][1] if runs else 0

    def newest_of_all(self) -> dict[str, int]:
        """The highest number of each producer, as JSON keeps it."""
        return {str(producer): runs[-1][1] for producer, runs in sorted(self._runs.items()) if runs}

    def holes(self) -> list[Hole]:
        """What lies between the numbers that were seen."""
        found = []
        for producer, runs in sorted(self._runs.items()):
            end = 0
            for first, last, index in runs:
                if first > end + 1:
                    found.append(Hole(producer, end + 1, first - 1, index))
                end = last
        return found

    def copy(self) -> "Tally":
        """Another one that saw the same."""
        made = Tally()
        made._runs = {producer: list(runs) for producer, runs in self._runs.items()}
        return made

    def pack(self) -> str:
        """As JSON, for the row that keeps it."""
        return json.dumps({str(p): runs for p, runs in self._runs.items()})

    def _merge(self, producer: int, first: int, last: int, index: int) -> None:
        runs = self._runs.setdefault(producer, [])
        if runs and runs[-1][1] + 1 == first:
            runs[-1] = (runs[-1][0], last, runs[-1][2])
            return
        at = bisect_right(runs, (first,))
        before, after = runs[at - 1] if at else None, runs[at] if at < len(runs) else None
        if (before and before[1] >= first) or (after and after[0] <= last):
            self.doubled.append((producer, first, index))
            return
        if before and before[1] + 1 == first:
            first, index, at = before[0], before[2], at - 1
            del runs[at]
        if after and after[0] == last + 1:
            last = after[1]
            del runs[at]
        runs.insert(at, (first, last, index))


def look(ask: Ask | None = None) -> int:
    """What is missing now is found: a row and an event each. How many findings were new.

    Works on one snapshot of the database; the cursor over the leaves is kept in the same transaction.
    """
    with transaction.atomic(), connections["default"].cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        ask = ask or asked()
        tally, size = _walked(ask)
        (holes, all_known), unlogged = _holes(ask, tally, size), [*_unlogged(ask), *_in_turn(ask)]
        waiting = _still_unlogged(ask)
        cursor.execute(
            "UPDATE audit_walk SET next = %s, tally = %s, done_at = clock_timestamp(), done_size = %s"
            " WHERE name = 'gaps'",
            (size, tally.pack(), size),
        )
    new = gaps_tell(holes, tally.doubled)
    findings_settle(kinds=("event-unsealed",), but=waiting, why="sealed")
    if all_known:
        findings_settle(kinds=("producer-gap",), but=[_about(hole) for hole in holes], why="came-late")
    for id_, event_id in dict(unlogged[: 2 * NAMED]).items():
        new += finding_open(
            kind="event-unsealed",
            subject=str(id_),
            first_index=None,
            detail=f"the event {event_id} is neither waiting nor in the log",
            event_type="log.divergence_found",
            body={"kind": "event-unsealed", "index": None, "detail": str(event_id)},
        )
    return new


def gaps_tell(holes: Sequence[Hole], doubled: Sequence[tuple[int, int, int]]) -> int:
    """Numbers that are missing or came twice are a row and an event each; how many were new."""
    new = 0
    for hole in holes[:NAMED]:
        new += finding_open(
            kind="producer-gap",
            subject=_about(hole),
            first_index=hole.at,
            detail=f"producer {hole.producer}: the numbers {hole.first} to {hole.last} are in no leaf",
            event_type="log.gap_found",
            body={"producer": hole.producer, "expected": hole.first, "found": hole.last + 1},
        )
    for producer, seq, index in doubled[:NAMED]:
        new += finding_open(
            kind="producer-doubled",
            subject=f"{producer}/{seq}",
            first_index=index,
            detail=f"producer {producer}: the number {seq} is in two leaves",
            event_type="log.gap_found",
            body={"producer": producer, "expected": seq + 1, "found": seq},
        )
    return new


def _about(hole: Hole) -> str:
    return f"{hole.producer}/{hole.first}"


def _walked(ask: Ask) -> tuple[Tally, int]:
    """What the leaves up to now have, how many there are, and whether any came since."""
    ((next_, kept),) = ask("SELECT next, tally FROM audit_walk WHERE name = 'gaps'", ())
    ((size,),) = ask("SELECT size FROM audit_tree", ())
    tally = Tally(kept if isinstance(kept, dict) else json.loads(kept))
    _read(ask, tally, next_, size)
    return tally, max(size, next_)


def tally_of(ask: Ask, end: int) -> Tally:
    """The numbers in the first leaves of the log, and in those of the logs before it."""
    ((next_, kept),) = ask("SELECT next, tally FROM audit_walk WHERE name = 'gaps'", ())
    if next_ <= end:
        return _read(ask, Tally(kept if isinstance(kept, dict) else json.loads(kept)), next_, end)
    return _read(ask, tally_begun(ask), 0, end)


def tally_begun(ask: Ask) -> Tally:
    """The numbers in the logs before the present one, as far as they were kept."""
    rows = ask("SELECT tally FROM audit_epoch ORDER BY number DESC LIMIT 1", ())
    return Tally((rows[0][0] if isinstance(rows[0][0], dict) else json.loads(rows[0][0])) if rows else None)


def _read(ask: Ask, tally: Tally, first: int, end: int) -> Tally:
    for at in range(first, end, LEAVES):
        rows = ask(
            "SELECT idx, substring(data FROM 75 FOR 10) FROM audit_leaf WHERE idx >= %s AND idx < %s",
            (at, min(end, at + LEAVES)),
        )
        numbers = ((idx, bytes(said)) for idx, said in rows)
        tally.add((int.from_bytes(said[:2]), int.from_bytes(said[2:]), idx) for idx, said in numbers)
    return tally


def _holes(ask: Ask, tally: Tally, size: int) -> tuple[list[Hole], bool]:
    """Numbers that were given and are neither in the log nor on the way there, and whether the way was looked at."""
    waiting = ask(
        "SELECT e.producer_id, e.producer_seq FROM audit_pending p"
        " JOIN audit_event e ON e.id = p.event AND e.time_us = p.time_us LIMIT %s",
        (QUEUE + 1,),
    )
    if len(waiting) > QUEUE:
        return tally.holes(), False
    seen = tally.copy()
    seen.add((producer, seq, size) for producer, seq in waiting)
    given = ask("SELECT id, seq FROM audit_producer WHERE seq > 0", ())
    newest = [(p, seen.newest(p), seq) for p, seq in given]
    return [*seen.holes(), *(Hole(p, last + 1, seq, size) for p, last, seq in newest if seq > last)], True


def _unlogged(ask: Ask) -> list[tuple[int, str]]:
    """Recent events that are in neither queue nor log: one snapshot has each in exactly one of them."""
    return ask(
        "SELECT e.id, e.event_id::text FROM audit_event e WHERE e.id > (SELECT max(id) FROM audit_event) - %s"  # noqa: S608
        f" AND {_IN_NEITHER} ORDER BY e.id LIMIT %s",
        (RECENT, NAMED),
    )


def _in_turn(ask: Ask) -> list[tuple[int, str]]:
    """The same of the next events by their time, and the next look begins behind them. Index: audit_event_time."""
    ((since,),) = ask("SELECT next FROM audit_walk WHERE name = 'events'", ())
    end = "SELECT time_us FROM audit_event WHERE time_us >= %s ORDER BY time_us OFFSET %s LIMIT 1"
    rows = ask(end, (since, IN_TURN))
    until = max(rows[0][0], since + 1) if rows else None
    found = ask(
        "SELECT e.id, e.event_id::text FROM audit_event e WHERE e.time_us >= %s AND e.time_us < %s"  # noqa: S608
        f" AND {_IN_NEITHER} ORDER BY e.id LIMIT %s",
        (since, MOST_TIME if until is None else until, NAMED),
    )
    ask(
        "UPDATE audit_walk SET next = coalesce(%s, 0), done_at = CASE WHEN %s THEN clock_timestamp() ELSE done_at END"
        " WHERE name = 'events' RETURNING next",
        (until, until is None),
    )
    return found


def _still_unlogged(ask: Ask) -> list[str]:
    """Of the events that were found missing, those that still are; what is no event any more is missing for good."""
    rows = ask(
        "SELECT f.subject FROM audit_finding f WHERE f.resolved_at IS NULL AND f.kind = 'event-unsealed'"  # noqa: S608
        " AND (NOT EXISTS (SELECT FROM audit_event e WHERE e.id = f.subject::bigint)"
        f" OR EXISTS (SELECT FROM audit_event e WHERE e.id = f.subject::bigint AND {_IN_NEITHER}))",
        (),
    )
    return [row[0] for row in rows]
