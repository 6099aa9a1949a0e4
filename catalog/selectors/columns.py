"""The columns of the heat map as the writer made them; what is old does not change and is kept in memory."""

import zlib
from collections import OrderedDict
from datetime import datetime, timedelta
from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from catalog.models import HeatAxis, HeatColumn
from catalog.models.pictures import LAYERS, METRICS
from kvconsole.infra.access import FLEET_PLANE

_SETTLED = timedelta(minutes=2)
"""A writer that takes over may write a column once more, but none that is so old."""
_CACHED = 1_200


class Column(NamedTuple):
    """All figures of one time: ids of rows, figures by metric, and the highest figure of each metric."""

    ids: NDArray[np.int64]
    values: NDArray[np.float32]
    tops: NDArray[np.float32]


class Axis(NamedTuple):
    """The rows that are drawn now, and how many families each merged one stands for."""

    version: int
    order: list[int]
    merged: dict[int, int]


_cache: "OrderedDict[tuple[int, int, datetime], Column]" = OrderedDict()
_lock = Lock()


def forget() -> None:
    """Nothing is in memory: a process that has just begun."""
    with _lock:
        _cache.clear()


def columns_of(layer: int, since: datetime, until: datetime) -> dict[int, Column]:
    """The columns of a window by their begin."""
    told = HeatColumn.objects.using(FLEET_PLANE)
    wanted = list(told.filter(layer=layer, t0__gte=since, t0__lt=until).values_list("shard", "layer", "t0"))
    with _lock:
        have = {k: _cache[k] for k in wanted if k in _cache}
    missing = [k[2] for k in wanted if k not in have]
    if missing:
        rows = told.filter(layer=layer, t0__gte=min(missing), t0__lte=max(missing))
        fields = rows.values_list("shard", "layer", "t0", "rows", "values")
        for shard, of, t0, ids, values in fields.iterator():
            have[shard, of, t0] = _unpack(ids, values)
        settled = until - _SETTLED
        with _lock:
            _cache.update({k: c for k, c in have.items() if k[2] < settled})
            while len(_cache) > _CACHED:
                _cache.popitem(last=False)
    found: dict[int, Column] = {}
    for (_, _, t0), column in have.items():
        at = int(t0.timestamp())
        found[at] = _join(found[at], column) if at in found else column
    return found


def last_hour(now: datetime) -> dict[int, Column]:
    """The columns of the live picture."""
    return columns_of(0, now - timedelta(seconds=LAYERS[0][0] * LAYERS[0][1]), now)


def _unpack(ids: bytes | memoryview, values: bytes | memoryview) -> Column:
    table = np.frombuffer(zlib.decompress(values), "<f4").reshape(-1, len(METRICS))
    return Column(np.frombuffer(zlib.decompress(ids), "<i8"), table, np.fmax.reduce(table, axis=0, initial=0.0))


def _join(a: Column, b: Column) -> Column:
    """Columns of two shards: rows belong to one each."""
    values = np.concatenate([a.values, b.values])
    return Column(np.concatenate([a.ids, b.ids]), values, np.fmax(a.tops, b.tops))


def axis_now() -> Axis:
    """The axis of all shards."""
    version, order = 0, []
    merged: dict[int, int] = {}
    for row in HeatAxis.objects.order_by("shard"):
        ids = np.frombuffer(zlib.decompress(row.rows), "<i8").tolist()
        version += row.version
        order += ids
        merged.update(zip(ids, np.frombuffer(zlib.decompress(row.merged), "<i4").tolist(), strict=True))
    return Axis(version, order, merged)
