"""The heat map's rows and figures, from columns the writer has made: never from segments or placements."""

from base64 import b64encode
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import numpy as np
from django.db import connections
from numpy.typing import NDArray

from catalog import heat as pictures
from catalog.models.pictures import LAYERS, METRICS
from catalog.selectors.columns import Axis, Column, axis_now, columns_of, last_hour
from catalog.selectors.fleet import WRITER_SECONDS, alerts
from catalog.selectors.views import Alert, FamilyView, HeatMatrix, HeatRow, Params, Sentence
from kvconsole.infra.access import FLEET_PLANE
from tenants.selectors import namespaces_by_digest, tenant_slugs

ROWS_DEFAULT, ROWS_MAX = 512, 1_536
LIVE_COLUMNS = 3
SCALES = 64
"""A version of the live picture is its axis times so much plus the exponent of its scale: a change of either is new."""

_ROWS = """
SELECT r.id, r.kind, r."group", r.tenant_id, k.digest, k.generation
FROM catalog_heatrow r LEFT JOIN catalog_keyspace k ON k.id = r.keyspace WHERE r.id = ANY(%s)"""
"""By primary key; at most the rows of one picture."""


class _Info(NamedTuple):
    kind: str
    tenant_id: UUID
    tenant: str
    group: str
    namespace: str


def heat(*, metric: str, since: datetime, until: datetime, rows: int, now: datetime) -> HeatMatrix:
    """The map of one metric over a time; at most `rows` rows besides the merged ones, which are never across tenants.

    Raises:
        KeyError: there is no such metric.
    """
    unit, column = pictures.UNITS[metric], METRICS.index(metric)
    layer, axis = pictures.layer_for(since, now), axis_now()
    columns = columns_of(layer, since - timedelta(seconds=LAYERS[layer][0]), until)
    times = pictures.times_of(since, until, layer, max(columns, default=None), now)
    step = LAYERS[layer][0]
    order, names, merged = _order(axis, columns, column, layer, min(rows, ROWS_MAX))
    figures = _figures(order, names, columns, times, column, step)
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
        honesty=[*_unsure(alerts(now=now)), *(_merged(drawn) if columns else ()), *_means(layer, step)],
        as_of=now,
        row_means=[_mean(x) for x in figures],
        row_now=[_known(x[-1]) if len(x) else None for x in figures],
    )


def heat_honesty(*, alerts: list[Alert], since: datetime, until: datetime, now: datetime) -> list[Sentence]:
    """What no picture of this time shows exactly, whatever its rows: known before a figure is read."""
    layer = pictures.layer_for(since, now)
    columns = len(pictures.times_of(since, until, layer, None, now))
    return [*_unsure(alerts), *_means(layer, LAYERS[layer][0] * pictures.neighbours(columns))]


def heat_live(*, metric: str, now: datetime) -> Params:
    """Axis and newest columns as the topic `map:<metric>` has them; their rows are those of `heat` with 512 rows."""
    column, axis = METRICS.index(metric), axis_now()
    columns = last_hour(now)
    order, names, _ = _order(axis, columns, column, 0, ROWS_DEFAULT)
    times = sorted(columns)[-LIVE_COLUMNS:]
    figures = _figures(order, names, columns, times, column, LAYERS[0][0])
    version, exponent = _version(axis, figures, column, now, live=True)
    drawn: Params = {}
    for i, t0 in enumerate(times):
        cells = pictures.levels(figures[:, i], 2.0**exponent)
        drawn[str(t0)] = {"axis": version, "levels": b64encode(cells).decode()}
    return {"axis": {"version": version}, "columns": drawn}


def top_families(*, now: datetime, limit: int) -> list[FamilyView]:
    """The families with the most hits in the last hour."""
    columns = last_hour(now)
    axis, hits, saved = axis_now(), METRICS.index("hits"), METRICS.index("saved")
    order, names, _ = _order(axis, columns, hits, 0, ROWS_DEFAULT)
    order = [r for r in order if names[r].kind == "family"]
    times = sorted(columns)
    by = [_figures(order, names, columns, times, m, LAYERS[0][0]) for m in (hits, saved, 0)]
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


def _version(axis: Axis, figures: pictures.Figures, column: int, now: datetime, *, live: bool) -> tuple[int, int]:
    """Number of the live picture, and the exponent of this one's scale: both are the last hour's where it is live."""
    tops = [float(c.tops[column]) for c in last_hour(now).values()]
    hour = pictures.exponent(np.array(tops, np.float32) / np.float32(1 if column == 0 else LAYERS[0][0]))
    return axis.version * SCALES + hour, hour if live else pictures.exponent(figures)


# --- rows ---------------------------------------------------------------------


def _order(
    axis: Axis, columns: dict[int, Column], metric: int, layer: int, limit: int
) -> tuple[list[int], dict[int, _Info], dict[int, int]]:
    """Which rows are drawn, in their order, what they are, and how many families each merged one stands for."""
    ids = list(dict.fromkeys(axis.order))
    if layer:
        seen = np.unique(np.concatenate([c.ids for c in columns.values()])) if columns else np.empty(0, np.int64)
        ids = list(dict.fromkeys([*ids, *seen.tolist()]))
    names = _names(ids)
    ids = [i for i in ids if i in names]
    families = [i for i in ids if names[i].kind != "other"]
    merged = dict(axis.merged)
    if len(families) > limit:
        weight = _weights(families, columns, metric)
        kept = {families[i] for i in np.argsort(-weight, kind="stable")[:limit].tolist()}
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
    order: list[int], names: dict[int, _Info], columns: dict[int, Column], times: list[int], metric: int, step: int
) -> pictures.Figures:
    """Rows by columns: rates per second, the gauge as it is. A column that is not there is unknown in every row.

    What has no row of its own goes to its group's merged row, and is left out where there is none.
    """
    out = np.full((len(order), len(times)), np.nan, np.float32)
    there = [(i, column) for i, t0 in enumerate(times) if (column := columns.get(t0)) is not None]
    if not there or not order:
        return out
    at, values = _places(order, names, [c for _, c in there], metric)
    width = len(there)
    cell = at * width + np.repeat(np.arange(width), [len(c.ids) for _, c in there])
    drawn, unknown = at >= 0, np.isnan(values)
    size = len(order) * width
    sums = np.bincount(cell[drawn & ~unknown], weights=values[drawn & ~unknown], minlength=size)
    holes = np.bincount(cell[drawn & unknown], minlength=size) > 0
    table = np.where(holes & (sums == 0), np.nan, sums).reshape(len(order), width)
    out[:, [i for i, _ in there]] = table if metric == 0 else table / step
    return out


def _places(
    order: list[int], names: dict[int, _Info], columns: list[Column], metric: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Row (or −1) and figure of every entry of the columns, one after the other."""
    others = {(names[r].tenant_id, names[r].group): i for i, r in enumerate(order) if names[r].kind == "other"}
    place = {r: others.get((info.tenant_id, info.group), -1) for r, info in names.items()}
    place.update({row: i for i, row in enumerate(order)})
    known = np.array(sorted(place), np.int64)
    target = np.array([place[r] for r in known.tolist()], np.int64)
    ids = np.concatenate([c.ids for c in columns])
    found = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    at = np.where(known[found] == ids, target[found], -1)
    return at, np.concatenate([c.values[:, metric] for c in columns])


def _weights(families: list[int], columns: dict[int, Column], metric: int) -> NDArray[np.float64]:
    """What each family sums up to over the columns."""
    known = np.array(families, np.int64)
    by = np.argsort(known)
    weight = np.zeros(len(families))
    if not columns:
        return weight
    ids = np.concatenate([c.ids for c in columns.values()])
    values = np.nan_to_num(np.concatenate([c.values[:, metric] for c in columns.values()]))
    found = by[np.minimum(np.searchsorted(known[by], ids), len(known) - 1)]
    same = known[found] == ids
    return np.bincount(found[same], weights=values[same], minlength=len(families)).astype(np.float64)


# --- what is not exact --------------------------------------------------------


def _unsure(wrong: list[Alert]) -> list[Sentence]:
    said = []
    silent = sorted({a.node for a in wrong if a.code in ("node-silent", "node-lost") and a.node})
    unsure = sorted({a.node for a in wrong if a.code.startswith("source-") and a.node})
    if any(a.code == "writer-away" for a in wrong):
        said.append(Sentence(code="writer-away", params={"seconds": WRITER_SECONDS}))
    if silent:
        said.append(Sentence(code="nodes-silent", params={"nodes": silent}))
    if unsure:
        said.append(Sentence(code="sources-recovering", params={"nodes": unsure}))
    return said


def _merged(rows: list[HeatRow]) -> list[Sentence]:
    if not any(r.merged for r in rows):
        return []
    families = sum(r.merged or (r.kind == "family") for r in rows)
    return [Sentence(code="rows-merged", params={"families": families, "rows": len(rows)})]


def _means(layer: int, step: int) -> list[Sentence]:
    exact = not layer and step == LAYERS[layer][0]
    return [] if exact else [Sentence(code="means", params={"seconds": step})]


def _mean(figures: NDArray[np.float32]) -> float | None:
    known = figures[np.isfinite(figures)]
    return float(known.mean()) if known.size else None


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
