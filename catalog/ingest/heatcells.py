"""Keeps the cells of the heat map that are not yet a column: which rows there are, and their figures since the last.

A row is a prefix family of a keyspace; the rest of a tenant's group (model and epoch) is one row `other`, never merged
across tenants. Rows keep their place while they live. Called by `catalog.ingest.pictures` alone.
"""

import zlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from math import isnan, nan
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import psycopg

from catalog.index.steps import NO_FAMILY
from catalog.ingest import picture_rows as sql
from catalog.models.pictures import LAYERS, METRICS

ROWS_DRAWN = 512
ROWS_MAX = 1_536
WIDTH = len(METRICS)
HITS, MISSES, STORES, EVICTIONS, SAVED = range(1, WIDTH)
_FADE = 0.985
"""What a row's score keeps from column to column: about 1/250 after an hour, when an empty row leaves the map."""
_FORGOTTEN = 1e-3
_INCUMBENT = 1.25


class Row(NamedTuple):
    """What a row stands for."""

    kind: str
    keyspace: int
    family: int
    tenant: UUID | None
    group: str


def row_id(*parts: object) -> int:
    """A positive 63-bit number that is the same for the same row after every restart."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "big") >> 1


class Cells:
    """The rows of one shard's map, their contents, and the sums of the open column."""

    def __init__(self, shard: int, families_max: int) -> None:
        self.shard, self.families_max = shard, families_max
        self.groups: dict[int, tuple[UUID | None, str]] = {}
        self.ids: dict[tuple[int, int | None], int] = {}
        self.rows: dict[int, Row] = {}
        self.owners: dict[tuple[int, str, int], dict[int, int]] = {}
        self.left: dict[tuple[int, str, int], int] = {}
        self.came: dict[tuple[int, str, int], dict[int, int]] = {}
        self.total: dict[int, int] = {}
        self.seeded = False
        self.sources: dict[int, set[int]] = {}
        self.fresh: dict[int, list[float]] = {}
        self.open: dict[int, list[float]] = {}
        self.score: dict[int, float] = {}
        self.members: dict[int, None] = {}
        self.others: dict[int, int] = {}
        self.version = 0
        self.written: set[int] = set()
        self.ranked_at = 0
        self.coarse: dict[int, dict[int, list[float]]] = {}

    # ---------------------------------------------------------------- what happened
    def name(self, keyspace: int, tenant: UUID, group: str) -> None:
        """Rows of the keyspace belong to this tenant and group."""
        self.groups[keyspace] = (tenant, group)

    def seed(self, contents: Iterable[tuple[int, str, int, int, int]]) -> None:
        """These contents are all there is, whatever was noted before."""
        self.owners, self.total = {}, {}
        for source, tier, keyspace, family, blocks in contents:
            self._hold((source, tier, keyspace), self._row(keyspace, family), blocks)
            self.sources.setdefault(keyspace, set()).add(source)
        self.seeded = True

    def added(self, source: int, tier: str, keyspace: int, family: int, blocks: int) -> None:
        """Blocks came."""
        row = self._row(keyspace, family)
        self._came((source, tier, keyspace), row, blocks)
        self._sums(row)[STORES] += blocks
        self.sources.setdefault(keyspace, set()).add(source)

    def moved(self, source: int, tier: str, to: str, keyspace: int, family: int, blocks: int) -> None:
        """Blocks went from one tier of a source to another: nothing was stored or evicted."""
        row = self._row(keyspace, family)
        self._hold((source, tier, keyspace), row, -blocks)
        self._came((source, to, keyspace), row, blocks)

    def dropped(self, source: int, tier: str, keyspace: int, family: int, blocks: int, *, evicted: bool) -> None:
        """Blocks went; `NO_FAMILY` = with their whole owner, so that families are not told."""
        at = (source, tier, keyspace)
        if family == NO_FAMILY:
            self.left[at] = self.left.get(at, 0) + blocks
            return
        row = self._row(keyspace, family)
        self._hold(at, row, -blocks)
        if evicted:
            self._sums(row)[EVICTIONS] += blocks

    def settle(self) -> None:
        """Owners that left a keyspace hold what came afterwards in the same batch.

        The batch tells sums, not an order. Whoever leaves leaves whole, so what stays is of what this batch brought;
        only if some of that came before is it a guess which, and never how much.
        """
        for at, blocks in self.left.items():
            held = self.owners.pop(at, {})
            stays = max(0, sum(held.values()) - blocks)
            came = self.came.get(at, {})
            for row, count in held.items():
                keep = min(came.get(row, 0), stays)
                stays -= keep
                self._total(row, keep - count)
                if keep:
                    self.owners.setdefault(at, {})[row] = keep
        self.left, self.came = {}, {}

    def used(self, source: int, keyspace: int, family: int | None, hits: int, misses: int, saved_ms: float) -> None:
        """A request read tokens of a family and computed the rest; without a hit it counts for the row `new`."""
        sums = self._sums(self._row(keyspace, family))
        sums[HITS] += hits
        sums[MISSES] += misses
        sums[SAVED] += saved_ms
        self.sources.setdefault(keyspace, set()).add(source)

    def merge(self) -> None:
        """What was noted since the last commit belongs to the open column."""
        for row, sums in self.fresh.items():
            have = self.open.get(row)
            self.open[row] = sums if have is None else [a + b for a, b in zip(have, sums, strict=True)]
        self.fresh = {}

    def _sums(self, row: int) -> list[float]:
        sums = self.fresh.get(row)
        if sums is None:
            sums = self.fresh[row] = [0.0] * WIDTH
        return sums

    def _came(self, at: tuple[int, str, int], row: int, blocks: int) -> None:
        came = self.came.setdefault(at, {})
        came[row] = came.get(row, 0) + blocks
        self._hold(at, row, blocks)

    def _hold(self, at: tuple[int, str, int], row: int, blocks: int) -> None:
        held = self.owners.setdefault(at, {})
        left = held.get(row, 0) + blocks
        if left:
            held[row] = left
        else:
            held.pop(row, None)
        self._total(row, blocks)

    def _total(self, row: int, blocks: int) -> None:
        left = self.total.get(row, 0) + blocks
        if left:
            self.total[row] = left
        else:
            self.total.pop(row, None)

    def _row(self, keyspace: int, family: int | None) -> int:
        row = self.ids.get((keyspace, family))
        if row is None:
            tenant, group = self.groups.get(keyspace, (None, ""))
            if len(self.ids) >= self.families_max:
                return self._other(tenant, group)
            kind = "new" if family is None else "family"
            row = self.ids[keyspace, family] = row_id(self.shard, keyspace, family)
            self.rows[row] = Row(kind, keyspace, -1 if family is None else family, tenant, group)
        return row

    def _other(self, tenant: UUID | None, group: str) -> int:
        row = row_id(self.shard, "other", str(tenant), group)
        self.rows[row] = Row("other", -1, -1, tenant, group)
        return row

    def _group(self, row: Row) -> tuple[UUID | None, str]:
        return self.groups.get(row.keyspace, (row.tenant, row.group))

    # ---------------------------------------------------------------- a column
    def close(self, slot: int, heard: set[int], now: datetime, *, whole: bool) -> sql.Rows:
        """The column that began at `slot` as rows; `heard` = sources heard in it, `whole` = all of it was seen."""
        values = {row: self._value(row, heard, whole) for row in {*self.total, *self.open, *self.members}}
        self._rate(values)
        changed = self._choose(values, slot)
        column: dict[int, list[float]] = {}
        merged: dict[int, int] = {}
        for row, value in values.items():
            if row in self.members:
                column[row] = value
                continue
            at = row if self.rows[row].kind == "other" else self._other(*self._group(self.rows[row]))
            merged[at] = merged.get(at, 0) + 1
            have = column.get(at)
            column[at] = value if have is None else [_plus(a, b) for a, b in zip(have, value, strict=True)]
        room = ROWS_MAX - len(self.members)
        kept = dict(sorted(merged.items(), key=lambda x: -x[1])[:room])
        column = {r: v for r, v in column.items() if r in self.members or r in kept}
        changed = changed or kept.keys() != self.others.keys()
        self.others = kept
        self.open = {}
        out: sql.Rows = []
        if changed or not self.version:
            self.version += 1
            out += self._axis(now)
        out.append(self._column(0, slot, column))
        self._accumulate(1, column)
        return out

    def _value(self, row: int, heard: set[int], whole: bool) -> list[float]:
        sources = self.sources.get(self.rows[row].keyspace)
        if sources and sources.isdisjoint(heard):
            return [nan] * WIDTH
        value = list(self.open.get(row) or [0.0] * WIDTH) if whole else [nan] * WIDTH
        value[0] = max(0, self.total.get(row, 0)) if self.seeded else nan
        return value

    def _rate(self, values: dict[int, list[float]]) -> None:
        """Scores fade, and grow by a row's largest share in any metric: what dominates one metric is drawn."""
        if not values:
            return
        table = np.nan_to_num(np.array(list(values.values())))
        totals = table.sum(axis=0)
        best = (table / np.where(totals > 0, totals, 1)).max(axis=1)
        for row, share in zip(values, best.tolist(), strict=True):
            self.score[row] = self.score.get(row, 0.0) * _FADE + share

    def _choose(self, values: dict[int, list[float]], slot: int) -> bool:
        """Which rows are drawn. New ones enter while there is room; once a minute the ranks decide."""
        before = list(self.members)
        open_rows = [r for r in values if r not in self.members and self.rows[r].kind != "other"]
        room = ROWS_DRAWN - len(self.members)
        if len(open_rows) <= room:
            self.members.update(dict.fromkeys(open_rows))
        elif slot - self.ranked_at >= LAYERS[1][0]:
            self.ranked_at = slot

            def weight(row: int) -> float:
                return self.score.get(row, 0.0) * (_INCUMBENT if row in self.members else 1.0)

            best = sorted([*self.members, *open_rows], key=weight, reverse=True)[:ROWS_DRAWN]
            chosen = set(best)
            stay = [r for r in self.members if r in chosen]
            self.members = dict.fromkeys([*stay, *(r for r in best if r not in self.members)])
        else:
            best = sorted(open_rows, key=lambda r: self.score.get(r, 0.0), reverse=True)[: max(0, room)]
            self.members.update(dict.fromkeys(best))
        if slot % LAYERS[1][0] == 0:
            self._forget(values)
        return before != list(self.members)

    def _forget(self, values: dict[int, list[float]]) -> None:
        """Rows that hold nothing and did nothing for about an hour leave the map and the memory."""
        for row in [r for r in self.rows if r not in self.total and self.score.get(r, 0.0) < _FORGOTTEN]:
            info = self.rows[row]
            if row in self.open or row in self.fresh or info.kind == "other":
                continue
            del self.rows[row]
            self.ids.pop((info.keyspace, None if info.kind == "new" else info.family), None)
            for memory in (self.members, self.score, values):
                memory.pop(row, None)
            self.written.discard(row)

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
            groups = [self._group(r) for r in rows]
            out.append(
                (
                    sql.HEAT_ROWS,
                    [
                        now,
                        told,
                        [g[0] for g in groups],
                        [r.kind for r in rows],
                        [g[1] for g in groups],
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
            best = sorted(column, key=lambda r: self.score.get(r, 0.0), reverse=True)[:ROWS_MAX]
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
            self.members = dict.fromkeys(r for r in order if r in known and known[r].kind != "other")
            self.score = dict.fromkeys(self.members, 1.0)
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
