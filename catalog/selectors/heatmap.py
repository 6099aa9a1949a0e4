"""The heat map's rows and figures, from columns the writer has made: never from segments or placements."""

import zlib
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Iterable
from datetime import datetime, timedelta
from threading import Lock
from typing import NamedTuple
from uuid import UUID

import numpy as np
from django.db import connections
from numpy.typing import NDArray

from catalog import heat as pictures
from catalog.models import HeatAxis, HeatColumn
from catalog.models.pictures import LAYERS, METRICS
from catalog.selectors.fleet import WRITER_SECONDS, alerts
from catalog.selectors.views import FamilyView, HeatMatrix, HeatRow, Params, Sentence
from kvconsole.infra.access import FLEET_PLANE
from tenants.selectors import namespaces_by_digest, tenant_slugs

ROWS_DEFAULT, ROWS_MAX = 512, 1_536
LIVE_COLUMNS = 3
SCALES = 64
"""A version of the live picture is its axis times so much plus the exponent of its scale: a change of either is new."""
_SETTLED = timedelta(minutes=2)
_CACHED = 1_200

_ROWS = """
SELECT r.id, r.kind, r."group", r.tenant_id, k.digest, k.generation
FROM catalog_heatrow r LEFT JOIN catalog_keyspace k ON k.id = r.keyspace WHERE r.id = ANY(%s)"""
"""By primary key; at most the rows of one picture."""


class _Column(NamedTuple):
    ids: NDArray[np.int64]
    values: NDArray[np.float32]
    families: int


class _Info(NamedTuple):
    kind: str
    tenant_id: UUID
    tenant: str
    group: str
    namespace: str


class _Axis(NamedTuple):
    version: int
    order: list[int]
    merged: dict[int, int]


_cache: "OrderedDict[tuple[int, int, datetime], _Column]" = OrderedDict()
_lock = Lock()


def heat(*, metric: str, since: datetime, until: datetime, rows: int, now: datetime) -> HeatMatrix:
    """The map of one metric over a time; at most `rows` rows besides the merged ones, which are never across tenants.

    Raises:
        KeyError: there is no such metric.
    """
    unit, column = pictures.UNITS[metric], METRICS.index(metric)
    layer, axis = pictures.layer_for(since, now), _axis()
    columns = _columns(layer, since - timedelta(seconds=LAYERS[layer][0]), until)
    times = pictures.times_of(since, until, layer, max(columns, default=None), now)
    step = LAYERS[layer][0]
    order, names, merged = _order(axis, columns, column, layer, min(rows, ROWS_MAX))
    figures = _figures(order, names, columns, times, column, step, strict=layer == 0)
    version, exponent = _version(axis, figures, column, now, live=layer == 0)
    figures, times, step = pictures.thin(figures, times, step, gauge=column == 0)
    drawn = [_row(row, names[row], merged.get(row, 0)) for row in order]
    return HeatMatrix(
        metric=metric,
        unit=unit,
        layer=layer,
        step_seconds=step,
        axis=version,
        rows=drawn,
        columns=times,
        levels=pictures.levels(figures, 2.0**exponent),
        scale_max=2.0**exponent,
        scale_linear=pictures.LINEAR,
        honesty=_honesty(columns, drawn, merged, layer, step, now),
        as_of=now,
        row_means=[_mean(x) for x in figures],
        row_now=[_known(x[-1]) if len(x) else None for x in figures],
    )


def heat_live(*, metric: str, now: datetime) -> Params:
    """Axis and newest columns as the topic `map:<metric>` has them; their rows are those of `heat` with 512 rows."""
    column, axis = METRICS.index(metric), _axis()
    columns = _columns(0, now - timedelta(seconds=LAYERS[0][0] * LAYERS[0][1]), now)
    order, names, _ = _order(axis, columns, column, 0, ROWS_DEFAULT)
    times = sorted(columns)[-LIVE_COLUMNS:]
    figures = _figures(order, names, columns, times, column, LAYERS[0][0], strict=True)
    version, exponent = _version(axis, figures, column, now, live=True)
    drawn: Params = {}
    for i, t0 in enumerate(times):
        cells = pictures.levels(figures[:, i], 2.0**exponent)
        drawn[str(t0)] = {"axis": version, "levels": b64encode(cells).decode()}
    return {"axis": {"version": version}, "columns": drawn}


def top_families(*, now: datetime, limit: int) -> list[FamilyView]:
    """The families with the most hits in the last hour."""
    columns = _columns(0, now - timedelta(seconds=LAYERS[0][0] * LAYERS[0][1]), now)
    axis, hits, saved = _axis(), METRICS.index("hits"), METRICS.index("saved")
    order, names, _ = _order(axis, columns, hits, 0, ROWS_DEFAULT)
    order = [r for r in order if names[r].kind == "family"]
    times = sorted(columns)
    by = [_figures(order, names, columns, times, m, LAYERS[0][0], strict=True) for m in (hits, saved, 0)]
    rates = [(_mean(by[0][i]), _mean(by[1][i]), i) for i in range(len(order))]
    found = []
    for hit, save, i in sorted(rates, key=lambda x: -(x[0] or 0))[:limit]:
        row = _row(order[i], names[order[i]], 0)
        resident = _known(by[2][i][-1]) if times else None
        found.append(
            FamilyView(
                id=row.id,
                tenant=row.tenant,
                model=row.model,
                namespace=row.namespace,
                family=row.family,
                label=row.label,
                resident_blocks=None if resident is None else int(resident),
                hit_tokens_per_s=hit,
                saved_ms_per_s=save,
            )
        )
    return found


# --- columns ------------------------------------------------------------------


def _columns(layer: int, since: datetime, until: datetime) -> dict[int, _Column]:
    """The columns of a window by their begin; what is old does not change and is kept in memory."""
    keys = HeatColumn.objects.filter(layer=layer, t0__gte=since, t0__lt=until).values_list("shard", "layer", "t0")
    wanted = list(keys)
    with _lock:
        have = {k: _cache[k] for k in wanted if k in _cache}
    missing = [k[2] for k in wanted if k not in have]
    if missing:
        rows = HeatColumn.objects.filter(layer=layer, t0__gte=min(missing), t0__lte=max(missing))
        for row in rows.iterator():
            have[row.shard, row.layer, row.t0] = _unpack(row)
        settled = until - _SETTLED
        with _lock:
            _cache.update({k: c for k, c in have.items() if k[2] < settled})
            while len(_cache) > _CACHED:
                _cache.popitem(last=False)
    found: dict[int, _Column] = {}
    for (_, _, t0), column in have.items():
        at = int(t0.timestamp())
        found[at] = _join(found[at], column) if at in found else column
    return found


def _unpack(row: HeatColumn) -> _Column:
    ids = np.frombuffer(zlib.decompress(row.rows), "<i8")
    values = np.frombuffer(zlib.decompress(row.values), "<f4").reshape(-1, len(METRICS))
    return _Column(ids, values, row.families)


def _join(a: _Column, b: _Column) -> _Column:
    """Columns of two shards: rows belong to one each."""
    return _Column(np.concatenate([a.ids, b.ids]), np.concatenate([a.values, b.values]), a.families + b.families)


def _axis() -> _Axis:
    version, order = 0, []
    merged: dict[int, int] = {}
    for row in HeatAxis.objects.order_by("shard"):
        ids = np.frombuffer(zlib.decompress(row.rows), "<i8").tolist()
        version += row.version
        order += ids
        merged.update(zip(ids, np.frombuffer(zlib.decompress(row.merged), "<i4").tolist(), strict=True))
    return _Axis(version, order, merged)


def _version(axis: _Axis, figures: pictures.Figures, column: int, now: datetime, *, live: bool) -> tuple[int, int]:
    """Number of the live picture, and the exponent of this one's scale: both are the last hour's where it is live."""
    columns = _columns(0, now - timedelta(seconds=LAYERS[0][0] * LAYERS[0][1]), now)
    tops = [_top(c, column) for c in columns.values()]
    hour = pictures.exponent(np.array(tops, np.float32) / np.float32(1 if column == 0 else LAYERS[0][0]))
    return axis.version * SCALES + hour, hour if live else pictures.exponent(figures)


def _top(column: _Column, metric: int) -> float:
    return float(np.nanmax(column.values[:, metric], initial=0.0)) if len(column.ids) else 0.0


# --- rows ---------------------------------------------------------------------


def _order(
    axis: _Axis, columns: dict[int, _Column], metric: int, layer: int, limit: int
) -> tuple[list[int], dict[int, _Info], dict[int, int]]:
    """Which rows are drawn, in their order, what they are, and how many families each merged one stands for."""
    ids = list(dict.fromkeys(axis.order))
    if layer:
        ids = list(dict.fromkeys([*ids, *(int(i) for c in columns.values() for i in c.ids)]))
    names = _names(ids)
    ids = [i for i in ids if i in names]
    families = [i for i in ids if names[i].kind != "other"]
    merged = dict(axis.merged)
    if len(families) > limit:
        weight = dict.fromkeys(families, 0.0)
        for column in columns.values():
            for row, value in zip(column.ids.tolist(), np.nan_to_num(column.values[:, metric]).tolist(), strict=True):
                if row in weight:
                    weight[row] += value
        kept = set(sorted(families, key=lambda i: -weight[i])[:limit])
        others = {(names[i].tenant_id, names[i].group): i for i in ids if names[i].kind == "other"}
        for row in [i for i in families if i not in kept]:
            info = names[row]
            at = others.get((info.tenant_id, info.group))
            if at is None:
                at = others[info.tenant_id, info.group] = -1 - row
                names[at] = info._replace(kind="other", namespace="")
            merged[at] = merged.get(at, 0) + 1
        ids = [*(i for i in ids if i in kept), *others.values()]
    place = {row: n for n, row in enumerate(ids)}
    ids.sort(key=lambda i: (names[i].tenant, names[i].group, names[i].kind == "other", names[i].namespace, place[i]))
    return ids, names, merged


def _names(ids: Iterable[int]) -> dict[int, _Info]:
    with connections[FLEET_PLANE].cursor() as cursor:
        cursor.execute(_ROWS, [list(ids)])
        rows = cursor.fetchall()
    known = namespaces_by_digest(list({bytes(r[4]) for r in rows if r[4] is not None}))
    slugs = tenant_slugs({r[3] for r in rows})
    names = {}
    for row, kind, group, tenant, digest, generation in rows:
        namespace = ""
        if digest is not None:
            found = known.get(bytes(digest))
            label = (found.label if found else "") or bytes(digest).hex()[:8]
            namespace = label if found is None or found.generation == generation else f"{label} · {generation}"
        names[row] = _Info(kind, tenant, slugs.get(tenant, ""), group, namespace)
    return names


def _row(row: int, info: _Info, merged: int) -> HeatRow:
    family = f"pfx_{row:016x}"[:12] if info.kind == "family" else ""
    label = f"{info.namespace}/{family}" if family else info.namespace
    return HeatRow(
        id=f"{row & (2**64 - 1):016x}", kind=info.kind, tenant=info.tenant, model=info.group,
        namespace=info.namespace, family=family, label=label, merged=merged,
    )  # fmt: skip


def _figures(
    order: list[int], names: dict[int, _Info], columns: dict[int, _Column], times: list[int], metric: int, step: int,
    *, strict: bool,
) -> pictures.Figures:  # fmt: skip
    """Rows by columns: rates per second, the gauge as it is. A column that is not there is unknown in every row.

    What has no row of its own goes to its group's merged row; `strict` leaves it out where there is none.
    """
    out = np.full((len(order), len(times)), np.nan, np.float32)
    place = {row: i for i, row in enumerate(order)}
    others = {(names[r].tenant_id, names[r].group): i for i, r in enumerate(order) if names[r].kind == "other"}
    for i, t0 in enumerate(times):
        column = columns.get(t0)
        if column is None:
            continue
        sums, known = np.zeros(len(order)), np.ones(len(order), bool)
        for row, value in zip(column.ids.tolist(), column.values[:, metric].tolist(), strict=True):
            at = place.get(row)
            if at is None and row in names:
                at = others.get((names[row].tenant_id, names[row].group))
            if at is None:
                continue
            if np.isnan(value):
                known[at] = False
            else:
                sums[at] += value
        out[:, i] = np.where(known | (sums > 0), sums, np.nan)
    return out if metric == 0 else (out / np.float32(step)).astype(np.float32)


# --- what is not exact --------------------------------------------------------


def _honesty(
    columns: dict[int, _Column], rows: list[HeatRow], merged: dict[int, int], layer: int, step: int, now: datetime
) -> list[Sentence]:
    wrong = alerts(now=now)
    said = []
    silent = sorted({a.node for a in wrong if a.code in ("node-silent", "node-lost") and a.node})
    unsure = sorted({a.node for a in wrong if a.code.startswith("source-") and a.node})
    if any(a.code == "writer-away" for a in wrong):
        said.append(Sentence(code="writer-away", params={"seconds": WRITER_SECONDS}))
    if silent:
        said.append(Sentence(code="nodes-silent", params={"nodes": silent}))
    if unsure:
        said.append(Sentence(code="sources-recovering", params={"nodes": unsure}))
    if any(r.merged for r in rows) and columns:
        families = sum(r.merged or (r.kind == "family") for r in rows)
        said.append(Sentence(code="rows-merged", params={"families": families, "rows": len(rows)}))
    if layer or step > LAYERS[layer][0]:
        said.append(Sentence(code="means", params={"seconds": step}))
    return said


def _mean(figures: NDArray[np.float32]) -> float | None:
    known = figures[np.isfinite(figures)]
    return float(known.mean()) if known.size else None


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
