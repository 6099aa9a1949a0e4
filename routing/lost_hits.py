"""Keeps the ledger of lost hits: of each measured decision, what could be reused, what was, and why the rest was not.

Outcomes are taken from the record of decisions once, in the order in which they were measured; a decision that stands
for others counts as often. Decisions whose hits nobody measured are in no figure. Called by tasks and REST.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

import msgspec
from django.db import connections, transaction

from kvconsole.infra.access import FLEET_PLANE
from kvconsole.infra.sql import named
from kvconsole.infra.statements import fetch
from kvcore.cards import HOLE, Ask, Choice, Held
from kvcore.lost_hits import CAUSES, Cause, Gap, Reach, Short, column, gap, limits_of
from routing.packing import unpack

LAG = timedelta(seconds=10)
"""An outcome is written within so long after it was measured; later ones are in no figure."""
LATE = timedelta(minutes=30)
"""Outcomes come at most so long after their decision."""
BATCH, KEPT = 1000, timedelta(days=30)
STEPS, MOST = 240, 50
"""Steps of time and namespaces of one view."""
ROLES = ("role", "no-decode")
"""Filters of who computes: what such a worker holds may be fetched from it all the same."""
COLUMNS = ("decisions", "available_tokens", "achieved_tokens", "beyond_tokens", *(column(cause) for cause in CAUSES))
Line = tuple[UUID, datetime, bytes]


class Made(Protocol):
    """What is known of a decision, recorded or remembered."""

    @property
    def ask(self) -> Ask:
        """The question."""

    @property
    def held(self) -> Sequence[Held]:
        """What each candidate held."""

    @property
    def choice(self) -> Choice | None:
        """What was chosen."""


class Lost(msgspec.Struct, frozen=True):
    """Tokens by cause over some time; `available` = `achieved` + the sum of `lost`."""

    decisions: int
    available: int
    achieved: int
    beyond: int
    lost: dict[str, int]


class LostView(msgspec.Struct, frozen=True):
    """The ledger over a time: all of it, by steps of time that have figures, and the namespaces that lost most."""

    total: Lost
    step_seconds: int
    steps: list[tuple[datetime, Lost]]
    namespaces: list[tuple[bytes, Lost]]


def lost_of(inputs: Made, *, answer: str, hit_tokens: int, short: Sequence[Short] = ()) -> Gap:
    """Where the hit tokens of one decision went.

    Args:
        inputs: what the decision was made from.
        answer: as recorded; `recompute`: the index might not be used.
        hit_tokens: as measured.
        short: what the target said of tokens that did not come.
    """
    ask, choice = inputs.ask, inputs.choice
    whole = (ask.prompt_tokens - 1) // ask.block_tokens * ask.block_tokens  # the last token is computed, always
    filtered = choice.filtered if choice else ()
    why = {one.candidate: one.filtered_by for one in filtered if one.filtered_by not in ROLES}
    reaches = [
        Reach(min(_depth(held.runs) * ask.block_tokens, whole), why.get(held.candidate, "")) for held in inputs.held
    ]
    card = choice.prefill if choice else None
    available, limits = limits_of(
        written=min(ask.session_floor_blocks * ask.block_tokens, whole),
        reaches=reaches,
        planned=min(card.overlap_blocks * ask.block_tokens, whole) if card else 0,
        barred=Cause.FENCE if answer == "recompute" else None,
        short=short,
    )
    return gap(available=available, limits=limits, achieved=hit_tokens)


def short_fits(inputs: Made, *, answer: str, hit_tokens: int, short: Sequence[Short]) -> bool:
    """Whether so many tokens can have been missed: no more than could have been reused and were not."""
    found = lost_of(inputs, answer=answer, hit_tokens=hit_tokens)
    return sum(one.tokens for one in short) <= found.available - found.achieved


def _depth(runs: Iterable[tuple[int, str]]) -> int:
    """Blocks from the beginning without a hole."""
    reached = 0
    for depth, tier in runs:
        if tier == HOLE:
            break
        reached = depth
    return reached


def lost_hits_tally(*, now: datetime) -> int:
    """Outcomes measured until `LAG` ago are in the ledger, each once; answers how many were taken now."""
    queries = named("routing", "ledger.sql")
    with transaction.atomic(using=FLEET_PLANE), connections[FLEET_PLANE].cursor() as cursor:
        cursor.execute(queries["lost_hits_mark"], (now - LAG,))
        upto = cursor.fetchone()[0]
        horizon = max(now - LAG, upto)
        cursor.execute(queries["lost_hits_measured"], (upto - LATE, upto, horizon, BATCH))
        came = cursor.fetchall()
        rows = _whole(came)
        lines = summed(rows)
        if lines:
            columns = [[key[i] for key in lines] for i in range(3)]
            counts = [[line[i] for line in lines.values()] for i in range(len(COLUMNS))]
            cursor.execute(queries["lost_hits_add"], (*columns, *counts))
        cursor.execute(queries["lost_hits_upto"], (rows[-1][0] if len(came) == BATCH else horizon,))
        cursor.execute(queries["lost_hits_forget"], (now - KEPT,))
    return len(rows)


def _whole(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """A full batch without those of its last moment, of which there may be more, unless all are of one."""
    if len(rows) < BATCH:
        return rows
    return [row for row in rows if row[0] < rows[-1][0]] or rows


def summed(rows: Iterable[tuple[Any, ...]]) -> Mapping[Line, list[int]]:
    """The rows' tokens, by tenant, minute and namespace, in the order of `COLUMNS`."""
    lines: dict[Line, list[int]] = {}
    for at, tenant, namespace, answer, stands_for, hit_tokens, short, blob in rows:
        inputs = unpack(bytes(blob))
        if inputs is None:
            continue
        found = lost_of(inputs, answer=answer, hit_tokens=hit_tokens, short=shorts(short))
        causes = dict(found.lost)
        told = [1, found.available, found.achieved, found.beyond, *(causes.get(cause, 0) for cause in CAUSES)]
        line = lines.setdefault((tenant, at.replace(second=0, microsecond=0), bytes(namespace)), [0] * len(told))
        for i, number in enumerate(told):
            line[i] += number * stands_for
    return lines


def shorts(said: Any) -> list[Short]:
    """What the target said of tokens that did not come; what is none of it is left out.

    Args:
        said: as it was kept; Django's cursors hand out JSON as text.
    """
    found = []
    try:
        said = msgspec.json.decode(said) if isinstance(said, str) else said
    except msgspec.DecodeError:
        return []
    for one in said if isinstance(said, list) else ():
        try:
            found.append(msgspec.convert(one, Short))
        except msgspec.ValidationError:
            continue
    return found


def lost_hits(
    *, since: datetime, until: datetime, tenant: UUID | None = None, namespace: bytes | None = None
) -> LostView:
    """The ledger from `since` until before `until`, as far as the current plane shows it."""
    queries, step = named("routing", "ledger.sql"), max(timedelta(minutes=1), (until - since) / STEPS)
    step = timedelta(minutes=-(-step // timedelta(minutes=1)))
    given = [since, until, tenant, tenant, namespace, namespace]
    steps = [(row[0], _lost(row[1:])) for row in fetch(queries["lost_hits_by_step"], [step, since, *given])]
    worst = [(bytes(row[0]), _lost(row[1:])) for row in fetch(queries["lost_hits_by_namespace"], [*given, MOST])]
    total = [sum(numbers) for numbers in zip(*(_line(lost) for _, lost in steps), strict=True)] or [0] * len(COLUMNS)
    return LostView(_lost(total), int(step.total_seconds()), steps, worst)


def _lost(line: Sequence[Any]) -> Lost:
    causes = {cause.value: int(line[4 + i]) for i, cause in enumerate(CAUSES)}
    return Lost(int(line[0]), int(line[1]), int(line[2]), int(line[3]), causes)


def _line(lost: Lost) -> list[int]:
    return [lost.decisions, lost.available, lost.achieved, lost.beyond, *lost.lost.values()]
