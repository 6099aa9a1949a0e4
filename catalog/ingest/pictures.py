"""Turns what the writer sees into the rows the pictures are drawn from, as extras of the writer's own transactions.

Called by the pipeline, in order: `batch` and the notes of a batch, `rows(now)` for its commit, `committed()` when that
is durable; the next batch may be noted meanwhile. A commit that failed is told by `failed()`, and its rows come with
the next one, so that it loses and doubles nothing. Usage, evictions and
refusals are exact: they go with the commit of the frame that told them. Fills, rates and heat are pictures: they are
kept for up to one column of 10 s, and a column the writer did not live through is left out, so it shows as unknown.
Not thread-safe: one pipeline calls it.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg

from catalog.index.steps import Keyspace, Touched
from catalog.ingest import picture_rows as sql
from catalog.ingest.heatcells import Cells
from catalog.models.pictures import ALL_KEYSPACES, LAYERS
from kvcore.events import REASONS, Load, Mark, Use

Rows = sql.Rows
STEP = LAYERS[0][0]
PULSE_SECONDS = 0.5
HEARD_SECONDS = 1.0


class Pictures:
    """The notes of one shard's writer that became rows, or will with the next commits."""

    def __init__(self, shard: int = 0, *, families_max: int = 65_536) -> None:
        self.shard = shard
        self.cells = Cells(shard, families_max)
        self.marks: dict[tuple[int, str], Mark] = {}
        self.peaks: dict[tuple[int, str], int] = {}
        self.fresh_marks: dict[tuple[int, str], tuple[Mark, datetime]] = {}
        self.evictions: dict[tuple[int, str, str], list[int]] = {}
        self.usage: dict[tuple[int, int, str], list[float]] = {}
        self.tenants: dict[int, UUID] = {}
        self.refusals: dict[tuple[int, str], tuple[int, datetime, str]] = {}
        self.pulses: dict[int, tuple[datetime, float | None]] = {}
        self.told: dict[int, datetime] = {}
        self.loads: dict[int, tuple[Load, datetime]] = {}
        self.heard: dict[int, set[int]] = {}
        self.totals = [0.0] * 6
        self.window: deque[tuple[datetime, list[float]]] = deque()
        self.slot: int | None = None
        self.born: datetime | None = None
        self.pulse_at: datetime | None = None
        self.due: dict[int, int] = {}
        self.pending: Rows = []
        self.sent: deque[Rows] = deque()

    # ---------------------------------------------------------------- once, at the start of a writer
    def restore(self, connection: psycopg.Connection[Any], now: datetime) -> None:
        """What an earlier writer left open is known: fills, the axis, and the columns that wait to be folded."""
        for source, tier, used, capacity, high, low in connection.execute(sql.LOAD_MARKS):
            self.marks[source, tier] = Mark(tier=tier, used=used, capacity=capacity, high=high, low=low)
        self.due = self.cells.restore(connection, now)

    def resident(self, contents: Iterable[tuple[int, str, int, int, int]]) -> None:
        """What is stored is known: (source, tier, keyspace, family, blocks) of everything the writer loaded.

        Until this was called, resident blocks are unknown in the map, not zero.
        """
        self.cells.seed(contents)

    def keyspace(self, keyspace: int, *, tenant_id: UUID, group: str) -> None:
        """The keyspace's rows belong to `tenant_id` and stand under `group` (model and epoch). Repeating is free."""
        self.tenants[keyspace] = tenant_id
        self.cells.name(keyspace, tenant_id, group)

    # ---------------------------------------------------------------- notes
    def seen(self, source: int, now: datetime, sent_at: float | None = None) -> None:
        """The source was heard: call it for each frame (with its `ts`) and each heartbeat (without)."""
        lag = None if sent_at is None else max(0.0, (now.timestamp() - sent_at) * 1000)
        before = self.pulses.get(source)
        self.pulses[source] = (now, lag if lag is not None or before is None else before[1])
        self.heard.setdefault(_slot(now), set()).add(source)

    def mark(self, source: int, tier: str, item: Mark, now: datetime) -> None:
        """The tier's fill is `item`."""
        self.fresh_marks[source, tier] = (item, now)
        self.heard.setdefault(_slot(now), set()).add(source)

    def use(self, source: int, keyspace: int, item: Use, now: datetime, family: int | None = None) -> None:
        """One request read the cache. `family` is that of the item's `head`, None where it hit nothing."""
        measured = 1 if item.measured else 0
        totals = (1, item.prompt_tokens, item.hit_tokens, item.saved_ms, measured)
        for at in (keyspace, ALL_KEYSPACES):
            _add(self.usage.setdefault((at, source, ""), [0.0] * 5), totals)
            for tier, tokens in item.tiers.items():
                self.usage.setdefault((at, source, tier), [0.0] * 5)[2] += tokens
        _add(self.totals, (1, item.prompt_tokens, item.hit_tokens, item.saved_ms))
        missed = max(0, item.prompt_tokens - item.hit_tokens)
        self.cells.used(source, keyspace, family, item.hit_tokens, missed, item.saved_ms)

    def batch(self, touched: Touched, keyspaces: Mapping[int, Keyspace]) -> None:
        """Everything a folded batch brought and took is counted: stores, evictions by reason, what is resident."""
        for at in {k[2] for k in touched.added} | {k[3] for k in touched.dropped} | {k[3] for k in touched.moved}:
            if at not in self.tenants:
                self.keyspace(at, tenant_id=keyspaces[at].tenant_id, group="")
        for (source, tier, keyspace, family), blocks in touched.added.items():
            self.added(keyspace, family, blocks, source=source, tier=tier)
        for (source, tier, to, keyspace, family), blocks in touched.moved.items():
            self.cells.moved(source, tier, to, keyspace, family, blocks)
        for (source, tier, reason, keyspace, family), blocks in touched.dropped.items():
            self.dropped(source, tier, reason, blocks, blocks * keyspaces[keyspace].block_bytes, keyspace, family)
        self.cells.settle()

    def added(self, keyspace: int, family: int, blocks: int, *, source: int, tier: str) -> None:
        """`blocks` blocks of a family came to an owner."""
        self.cells.added(source, tier, keyspace, family, blocks)

    def dropped(
        self, source: int, tier: str, reason: str, blocks: int, size_bytes: int, keyspace: int, family: int
    ) -> None:
        """`blocks` blocks left an owner; only the reasons of a `drop` item are evictions, a clear or a loss is not.

        Family `NO_FAMILY`: a whole keyspace left the owner in one row.
        """
        evicted = reason in REASONS
        if evicted:
            _add(self.evictions.setdefault((source, tier, reason), [0, 0]), (blocks, size_bytes))
            self.totals[5] += blocks
        self.cells.dropped(source, tier, keyspace, family, blocks, evicted=evicted)

    def events(self, count: int) -> None:
        """`count` items were folded."""
        self.totals[4] += count

    def refused(self, source: int, code: str, detail: str, now: datetime, count: int = 1) -> None:
        """Something of the source was refused; the last detail is kept."""
        before = self.refusals.get((source, code))
        self.refusals[source, code] = (count + (before[0] if before else 0), now, detail[:200])

    def load(self, source: int, item: Load, now: datetime) -> None:
        """The source is as busy as `item` says."""
        self.loads[source] = (item, now)
        self.pulses.setdefault(source, (now, None))

    # ---------------------------------------------------------------- the commit
    def rows(self, now: datetime) -> Rows:
        """Statements for the commit at `now`."""
        slot = _slot(now)
        if self.slot is None:
            self.slot, self.born = slot, now
        while self.slot < slot:
            self._close(self.slot, now)
            self.slot = self.slot + STEP if slot - self.slot <= LAYERS[0][0] * LAYERS[0][1] else slot
        self.cells.merge()
        self._exact(now, slot)
        self._current(now)
        self._pulse(now)
        self.sent.append(self.pending)
        self.pending = []
        return list(self.sent[-1])

    def committed(self) -> None:
        """The rows of the oldest `rows()` that was not answered yet are durable."""
        self.sent.popleft()

    def failed(self) -> None:
        """Nothing that is not answered yet was written: it comes with the next `rows()`, in its order."""
        self.pending = [row for rows in self.sent for row in rows] + self.pending
        self.sent.clear()

    # ---------------------------------------------------------------- parts
    def _exact(self, now: datetime, slot: int) -> None:
        if self.evictions:
            keys, sums = zip(*self.evictions.items(), strict=True)
            self.pending.append((sql.EVICTIONS, [_time(slot), *_columns(keys, 3), *_columns(sums, 2)]))
            self.evictions = {}
        if self.usage:
            keys, sums = zip(*self.usage.items(), strict=True)
            minute = _time(slot - slot % LAYERS[1][0])
            tenants = [self.tenants.get(k[0]) for k in keys]
            counts = [[int(x[i]) if i != 3 else x[i] for x in sums] for i in range(5)]
            self.pending.append((sql.USAGE, [minute, *_columns(keys, 3), tenants, *counts]))
            self.usage = {}
        if self.refusals:
            keys, values = zip(*self.refusals.items(), strict=True)
            self.pending.append((sql.REFUSALS, [*_columns(keys, 2), *_columns(values, 3)]))
            self.refusals = {}

    def _current(self, now: datetime) -> None:
        if self.fresh_marks:
            keys, values = zip(*self.fresh_marks.items(), strict=True)
            marks, times = zip(*values, strict=True)
            self.pending.append((sql.MARKS, [*_columns(keys, 2), *_fills(marks), list(times)]))
            for at, mark in zip(keys, marks, strict=True):
                self.marks[at] = mark
                self.peaks[at] = max(mark.used, self.peaks.get(at, 0))
            self.fresh_marks = {}
        if self.loads:
            loads = [(s, at, x.queue_ms, x.running, *x.prefill_curve, x.measured) for s, (x, at) in self.loads.items()]
            self.pending.append((sql.LOADS, _columns(loads, 7)))
            self.loads = {}
        old = now - timedelta(seconds=HEARD_SECONDS)
        due = [
            (s, at, lag) for s, (at, lag) in self.pulses.items() if (told := self.told.get(s)) is None or told <= old
        ]
        if due:
            self.pending.append((sql.HEARD, _columns(due, 3)))
            for source, _, _ in due:
                del self.pulses[source]
                self.told[source] = now

    def _pulse(self, now: datetime) -> None:
        if self.pulse_at is not None and now - self.pulse_at < timedelta(seconds=PULSE_SECONDS):
            return
        self.pulse_at = now
        self.window.append((now, self.totals))
        self.totals = [0.0] * 6
        while len(self.window) > 1 and now - self.window[0][0] > timedelta(seconds=STEP):
            self.window.popleft()
        lived = (now - (self.born or now)).total_seconds()
        sums = [sum(x[1][i] for x in self.window) for i in range(6)]
        seconds = min(float(STEP), max(1.0, lived))
        values = [int(x) if i != 3 else x for i, x in enumerate(sums)]
        self.pending.append((sql.PULSE, [self.shard, now, seconds, *values]))

    def _close(self, slot: int, now: datetime) -> None:
        """The column that began at `slot` is over: its samples and its heat become rows, coarser columns fold."""
        heard = self.heard.pop(slot, set())
        for old in [s for s in self.heard if s < slot]:
            del self.heard[old]
        marks = [(at, m) for at, m in self.marks.items() if at[0] in heard]
        if marks:
            keys, values = zip(*marks, strict=True)
            peaks = [max(self.peaks.get(at, 0), m.used) for at, m in marks]
            self.pending.append((sql.SAMPLES, [_time(slot), *_columns(keys, 2), *_fills(values), peaks]))
        self.peaks = {}
        # the column in which the writer was born was not seen whole: its sums would be too small, so they are unknown
        whole = self.born is None or self.born.timestamp() <= slot
        self.pending += self.cells.close(slot, heard, now, whole=whole)
        for layer in range(1, len(LAYERS)):
            self._fold(layer, slot + STEP)

    def _fold(self, layer: int, upto: int) -> None:
        """Fold the period of `layer` that ended at or before `upto`, once; drop what the finer layer kept too long."""
        step, finer = LAYERS[layer][0], LAYERS[layer - 1]
        start = self.due.setdefault(layer, (upto - STEP) // step * step)
        if start + step > upto:
            return
        period = [layer, layer - 1, _time(start), _time(start + step)]
        self.pending += [(sql.FOLD_MARKS, period), (sql.FOLD_EVICTIONS, period)]
        if layer > 1:
            self.pending.append((sql.FOLD_USAGE, period))
        self.pending += self.cells.fold(layer, start)
        old = [(layer - 1, finer[0] * finer[1])]
        if layer == len(LAYERS) - 1:
            kept = step * LAYERS[layer][1]
            old.append((layer, kept))
            self.pending.append((sql.EXPIRE_ROWS, [_time(upto - kept), self.cells.drawn()]))
        for which, kept in old:
            self.pending += [(s, [which, _time(upto - kept)]) for s in sql.EXPIRE]
        self.due[layer] = upto // step * step


def _slot(now: datetime) -> int:
    return int(now.timestamp()) // STEP * STEP


def _time(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _add(into: list[Any], values: Sequence[float]) -> None:
    for i, value in enumerate(values):
        into[i] += value


def _columns(rows: Iterable[Sequence[Any]], width: int) -> list[list[Any]]:
    table = list(rows)
    return [[row[i] for row in table] for i in range(width)]


def _fills(marks: Iterable[Mark]) -> list[list[Any]]:
    return _columns([(m.used, m.capacity, m.high, m.low) for m in marks], 4)
