"""Makes the columns of the heat map: which rows are drawn, their figures, and the coarser layers.

A row is a prefix family of a keyspace; the rest of a tenant's group (model and epoch) is one row `other`, never merged
across tenants. Rows keep their place while they live. Called by `catalog.ingest.pictures` alone.
"""

import zlib
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from math import isnan, nan
from typing import Any

import numpy as np
import psycopg

from catalog.ingest import picture_rows as sql
from catalog.ingest.heatcontents import WIDTH, Contents, Group, Row
from catalog.models.pictures import LAYERS

ROWS_DRAWN = 512
ROWS_MAX = 1_536
_FADE = 0.985
"""What a row's score keeps from column to column: about 1/250 after an hour, when an empty row leaves the map."""
_FORGOTTEN = 1e-3
_INCUMBENT = 1.25


class Cells(Contents):
    """The columns of one shard's map."""

    def __init__(self, shard: int, families_max: int) -> None:
        super().__init__(shard, families_max)
        self.score: dict[int, tuple[float, int]] = {}
        """Row → score, and the column it is of: it fades without being touched."""
        self.waiting: set[int] = set()
        """Rows that did something since the ranks were last decided, and are not drawn."""
        self.members: dict[int, None] = {}
        self.others: dict[int, int] = {}
        self.version = 0
        self.written: set[int] = set()
        self.ranked_at = 0
        self.coarse: dict[int, dict[int, list[float]]] = {}

    def close(self, slot: int, heard: set[int], now: datetime, *, whole: bool) -> sql.Rows:
        """The column that began at `slot` as rows; `heard` = sources heard in it, `whole` = all of it was seen.

        The work is by rows that are drawn or did something, not by all that hold blocks.
        """
        before = list(self.members)
        if slot % LAYERS[1][0] == 0:
            self._forget(slot)
        self._rank_loaded()
        values = {row: self._value(row, heard, whole) for row in {*self.open, *self.members}}
        self._rate(values, slot)
        self.waiting.update(r for r in self.open if r not in self.members and self.rows[r].kind != "other")
        self._choose(slot)
        column = {row: values.get(row) or self._value(row, heard, whole) for row in self.members}
        rest, merged = self._rest(values, heard, whole)
        column.update(rest)
        changed = before != list(self.members) or merged.keys() != self.others.keys()
        self.others, self.open = merged, {}
        out: sql.Rows = []
        if changed or not self.version or any(r not in self.written for r in column):
            self.version += 1
            out += self._axis(now)
        out.append(self._column(0, slot, column))
        self._accumulate(1, column)
        return out

    def _rank_loaded(self) -> None:
        """What was loaded is ranked by its size until it does something."""
        whole = sum(self.total.values()) or 1
        for row in self.loaded:
            if row not in self.members and row in self.rows:
                self.waiting.add(row)
                self.score.setdefault(row, (self.total.get(row, 0) / whole, 0))
        self.loaded = set()
        self.written -= self.untold
        self.untold = set()

    def _value(self, row: int, heard: set[int], whole: bool) -> list[float]:
        sources = self.sources.get(self.rows[row].keyspace)
        if sources and sources.isdisjoint(heard):
            return [nan] * WIDTH
        value = list(self.open.get(row) or [0.0] * WIDTH) if whole else [nan] * WIDTH
        value[0] = max(0, self.total.get(row, 0)) if self.seeded else nan
        return value

    def _rest(
        self, values: dict[int, list[float]], heard: set[int], whole: bool
    ) -> tuple[dict[int, list[float]], dict[int, int]]:
        """The merged row of each group that holds or did more than its drawn rows, and how many families it is."""
        held, count = Counter(self.group_total), Counter(self.group_rows)
        for row in self.members:
            group, own = self.rows[row].at, self.total.get(row, 0)
            held[group] -= own
            count[group] -= bool(own)
        busy: dict[Group, list[float]] = {}
        for row, value in values.items():
            if row not in self.members:
                group = self.rows[row].at
                have = busy.get(group)
                busy[group] = value if have is None else [_plus(a, b) for a, b in zip(have, value, strict=True)]
        silent = self._silent(heard)
        room = ROWS_MAX - len(self.members)
        wanted = sorted({*busy, *(g for g, n in held.items() if n > 0)}, key=lambda g: -held[g])[:room]
        rows, merged = {}, {}
        for group in wanted:
            row = self._other(*group)
            rates = busy.get(group, [0.0] * WIDTH)[1:] if whole else [nan] * (WIDTH - 1)
            resident = float(max(0, held[group])) if self.seeded else nan
            rows[row] = [nan] * WIDTH if group in silent else [resident, *rates]
            merged[row] = max(1, count[group])
        return rows, merged

    def _silent(self, heard: set[int]) -> set[Group]:
        """Groups of which no source spoke."""
        spoke: dict[Group, bool] = {}
        for keyspace, sources in self.sources.items():
            group = self.groups.get(keyspace, (None, ""))
            spoke[group] = spoke.get(group, False) or not sources.isdisjoint(heard)
        return {group for group, some in spoke.items() if not some}

    def _rate(self, values: dict[int, list[float]], slot: int) -> None:
        """Scores fade, and grow by a row's largest share in any metric: what dominates one metric is drawn."""
        if not values:
            return
        table = np.nan_to_num(np.array(list(values.values())))
        totals = table.sum(axis=0)
        best = (table / np.where(totals > 0, totals, 1)).max(axis=1)
        for row, share in zip(values, best.tolist(), strict=True):
            self.score[row] = (self._score(row, slot) + share, slot)

    def _score(self, row: int, slot: int) -> float:
        score, of = self.score.get(row, (0.0, slot))
        return score * _FADE ** max(0, (slot - of) // LAYERS[0][0]) if of else score

    def _choose(self, slot: int) -> None:
        """Which rows are drawn. New ones enter while there is room; once a minute the ranks decide."""
        room = ROWS_DRAWN - len(self.members)
        if len(self.waiting) <= room:
            self.members.update(dict.fromkeys(sorted(self.waiting, key=lambda r: -self._score(r, slot))))
            self.waiting = set()
            return
        if slot - self.ranked_at < LAYERS[1][0]:
            best = sorted(self.waiting, key=lambda r: -self._score(r, slot))[: max(0, room)]
            self.members.update(dict.fromkeys(best))
            self.waiting.difference_update(best)
            return
        self.ranked_at = slot

        def weight(row: int) -> float:
            return self._score(row, slot) * (_INCUMBENT if row in self.members else 1.0)

        chosen = sorted([*self.members, *self.waiting], key=weight, reverse=True)[:ROWS_DRAWN]
        kept = set(chosen)
        stay = [r for r in self.members if r in kept]
        self.members = dict.fromkeys([*stay, *(r for r in chosen if r not in self.members)])
        self.waiting = set()

    def _forget(self, slot: int) -> None:
        """Rows that hold nothing and did nothing for about an hour leave the map and the memory."""
        for row in [r for r in self.empty if self._score(r, slot) < _FORGOTTEN]:
            info = self.rows[row]
            if row in self.open or row in self.fresh or info.kind == "other":
                continue
            del self.rows[row]
            self.ids.pop((info.keyspace, None if info.kind == "new" else info.family), None)
            self.members.pop(row, None)
            self.score.pop(row, None)
            for memory in (self.empty, self.waiting, self.written):
                memory.discard(row)

    def drawn(self) -> list[int]:
        """The rows of the axis, in their order."""
        return [*self.members, *self.others]

    def _axis(self, now: datetime) -> sql.Rows:
        """The axis, and what those rows are that were never told before."""
        order = self.drawn()
        told = [r for r in order if r not in self.written]
        self.written.update(told)
        merged = [self.others.get(r, 0) for r in order]
        packed = zlib.compress(np.array(order, "<i8").tobytes(), 1), zlib.compress(np.array(merged, "<i4").tobytes(), 1)
        out: sql.Rows = [(sql.AXIS, [self.shard, self.version, now, *packed])]
        if told:
            rows = [self.rows[r] for r in told]
            out.append(
                (
                    sql.HEAT_ROWS,
                    [
                        now,
                        told,
                        [r.tenant for r in rows],
                        [r.kind for r in rows],
                        [r.group for r in rows],
                        [r.keyspace for r in rows],
                        [r.family for r in rows],
                    ],
                )
            )
        return out

    def _column(self, layer: int, t0: int, column: dict[int, list[float]]) -> tuple[str, Sequence[Any]]:
        """The row of one column. A row of zeros is left out: in a column that exists, what is missing is zero."""
        kept = {r: v for r, v in column.items() if any(v)}
        ids = zlib.compress(np.array(list(kept), "<i8").tobytes(), 1)
        values = zlib.compress(np.array(list(kept.values()), "<f4").tobytes(), 1)
        at = datetime.fromtimestamp(t0, UTC)
        return sql.COLUMN, [self.shard, layer, at, self.version, len(self.ids), ids, values]

    # ---------------------------------------------------------------- coarser layers
    def _accumulate(self, layer: int, column: dict[int, list[float]]) -> None:
        """Rates are summed, the gauge is the last one; unknown stays unknown only where nothing was known."""
        if layer >= len(LAYERS):
            return
        into = self.coarse.setdefault(layer, {})
        for row, have in into.items():
            if row not in column:
                have[0] = 0.0
        for row, value in column.items():
            before = into.get(row)
            if before is None:
                into[row] = list(value)
                continue
            into[row] = [value[0] if not isnan(value[0]) else before[0]] + [
                _plus(a, b) for a, b in zip(before[1:], value[1:], strict=True)
            ]

    def fold(self, layer: int, start: int) -> sql.Rows:
        """The column of `layer` that began at `start`, made of the finer ones since; none if there were none."""
        column = self.coarse.pop(layer, None)
        if column is None:
            return []
        if len(column) > ROWS_MAX:
            best = sorted(column, key=lambda r: self._score(r, start), reverse=True)[:ROWS_MAX]
            column = {r: column[r] for r in best}
        self._accumulate(layer + 1, column)
        return [self._column(layer, start, column)]

    def restore(self, connection: psycopg.Connection[Any], now: datetime) -> dict[int, int]:
        """Axis and open coarse columns are those the last writer left. Answers when each layer's open period began."""
        axis = connection.execute(sql.LOAD_AXIS, (self.shard,)).fetchone()
        if axis:
            self.version = axis[0]
            order = np.frombuffer(zlib.decompress(axis[1]), "<i8").tolist()
            known = {}
            for row, keyspace, family, kind, tenant, group in connection.execute(sql.LOAD_ROWS, (order,)):
                known[row] = Row(kind, _minus(keyspace), _minus(family), tenant, group)
                if kind != "other":
                    self.ids[keyspace, family] = row
                    self.groups.setdefault(keyspace, (tenant, group))
            self.rows.update(known)
            self.empty.update(known)
            self.members = dict.fromkeys(r for r in order if r in known and known[r].kind != "other")
            self.score = dict.fromkeys(self.members, (1.0, int(now.timestamp())))
            self.written = set(known)
        newest = {r[0]: int(r[1].timestamp()) for r in connection.execute(sql.LOAD_NEWEST, (self.shard,))}
        due = {}
        for layer in range(1, len(LAYERS)):
            step = LAYERS[layer][0]
            if layer - 1 in newest:
                due[layer] = max(newest[layer - 1] // step * step, newest.get(layer, -step) + step)
                period = [datetime.fromtimestamp(due[layer] + x, UTC) for x in (0, step)]
                for ids, values in connection.execute(sql.LOAD_COLUMNS, (self.shard, layer - 1, *period)):
                    self._accumulate(layer, unpack_column(ids, values))
        return due


def unpack_column(ids: bytes, values: bytes) -> dict[int, list[float]]:
    """A stored column as row id -> figures in the order of METRICS."""
    rows = np.frombuffer(zlib.decompress(ids), "<i8").tolist()
    table = np.frombuffer(zlib.decompress(values), "<f4").reshape(-1, WIDTH).tolist()
    return dict(zip(rows, table, strict=True))


def _plus(a: float, b: float) -> float:
    """A sum in which unknown counts nothing unless both are."""
    if isnan(a):
        return b
    return a if isnan(b) else a + b


def _minus(value: int | None) -> int:
    return -1 if value is None else value
