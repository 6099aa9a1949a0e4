"""How fills, evictions and tokens went over time, in the finest layer that still holds the window's begin.

A time is unknown, not zero, where the writer made no column or, for one node, where the node reported no fill.
"""

from collections import defaultdict
from datetime import UTC, datetime

from django.db.models import Count, Max, Sum

from catalog.heat import layer_for, times_of
from catalog.models import Eviction, HeatColumn, MarkSample, Node, Source, Usage
from catalog.models.pictures import ALL_KEYSPACES, LAYERS
from catalog.selectors.views import EvictionRow, FillRow, Sample, TokenRow


def watermark_history(*, node: str, tier: str, since: datetime, until: datetime, now: datetime) -> list[Sample]:
    """Fill of one tier of one node; several sources of the node add up. Gaps are samples of None."""
    layer = layer_for(since, now)
    rows = MarkSample.objects.filter(
        source__in=_sources(node), tier=tier, layer=layer, t0__gte=_floor(since, layer), t0__lt=until
    )
    by_time: dict[int, list[MarkSample]] = defaultdict(list)
    for row in rows.order_by("t0"):
        by_time[int(row.t0.timestamp())].append(row)
    return [_sample(t, by_time.get(t, [])) for t in _window(since, until, layer, now)]


def _sample(t: int, rows: list[MarkSample]) -> Sample:
    at = datetime.fromtimestamp(t, UTC)
    if not rows:
        return Sample(t=at, used_bytes=None, peak_bytes=None, capacity_bytes=None, high=None, low=None)
    return Sample(
        t=at,
        used_bytes=sum(r.used for r in rows),
        peak_bytes=sum(r.peak for r in rows),
        capacity_bytes=sum(r.capacity for r in rows),
        high=min(r.high for r in rows),
        low=min(r.low for r in rows),
    )


def fill_history(*, since: datetime, until: datetime, now: datetime) -> dict[str, list[FillRow]]:
    """Fill of every tier over all nodes, in steps of a minute or more; a tier that nobody reported is absent."""
    layer = max(1, layer_for(since, now))
    rows = MarkSample.objects.filter(layer=layer, t0__gte=_floor(since, layer), t0__lt=until)
    sums = rows.values_list("tier", "t0").annotate(n=Count("source"), used=Sum("used"), capacity=Sum("capacity"))
    found: dict[str, dict[int, tuple[int, int, int]]] = defaultdict(dict)
    for tier, t0, *values in sums:
        found[tier][int(t0.timestamp())] = (values[0], values[1], values[2])
    window = _window(since, until, layer, now)
    return {tier: _fills(window, by_time) for tier, by_time in found.items()}


def _fills(window: list[int], by_time: dict[int, tuple[int, int, int]]) -> list[FillRow]:
    most = max(n for n, _, _ in by_time.values())
    out = []
    for t in window:
        n, used, capacity = by_time.get(t, (0, 0, 0))
        share = used / capacity if capacity else None
        out.append(FillRow(t=datetime.fromtimestamp(t, UTC), share=share, complete=n == most))
    return out


def eviction_history(*, node: str | None, since: datetime, until: datetime, now: datetime) -> list[EvictionRow]:
    """Evictions of one node, or of all (None), by reason."""
    layer = layer_for(since, now)
    rows = Eviction.objects.filter(layer=layer, t0__gte=_floor(since, layer), t0__lt=until)
    if node is not None:
        rows = rows.filter(source__in=_sources(node))
    reasons: dict[int, dict[str, int]] = defaultdict(dict)
    for t0, reason, blocks in rows.values_list("t0", "reason").annotate(n=Sum("blocks")).order_by("t0"):
        reasons[int(t0.timestamp())][reason] = blocks
    known = _reported(node, layer, since, until) | reasons.keys()
    step = LAYERS[layer][0]
    return [
        EvictionRow(
            t=datetime.fromtimestamp(t, UTC),
            step_seconds=step,
            reasons=dict(reasons.get(t, {})) if t in known else None,
        )
        for t in _window(since, until, layer, now)
    ]


def token_history(*, node: str | None, since: datetime, until: datetime, now: datetime) -> list[TokenRow]:
    """Prompt tokens by where they came from, of one node or all; the finest step is a minute."""
    layer = max(1, layer_for(since, now))
    rows = Usage.objects.filter(keyspace=ALL_KEYSPACES, layer=layer, t0__gte=_floor(since, layer), t0__lt=until)
    if node is not None:
        rows = rows.filter(source__in=_sources(node))
    sums = rows.values_list("t0", "tier").annotate(
        n=Sum("requests"), prompt=Sum("prompt_tokens"), hit=Sum("hit_tokens"), saved=Sum("saved_ms")
    )
    found: dict[int, dict[str, tuple[int, int, int, float]]] = defaultdict(dict)
    for t0, tier, *values in sums.order_by("t0"):
        found[int(t0.timestamp())][tier] = (values[0], values[1], values[2], values[3])
    known = _reported(node, layer, since, until) | found.keys()
    return [_tokens(t, layer, found.get(t, {}), t in known) for t in _window(since, until, layer, now)]


def _window(since: datetime, until: datetime, layer: int, now: datetime) -> list[int]:
    """Begins of the columns, up to the newest that a writer made."""
    made = HeatColumn.objects.filter(layer=layer, t0__gte=_floor(since, layer), t0__lt=until)
    newest = made.aggregate(at=Max("t0"))["at"]
    return times_of(since, until, layer, int(newest.timestamp()) if newest else None, now)


def _tokens(t: int, layer: int, tiers: dict[str, tuple[int, int, int, float]], known: bool) -> TokenRow:
    at, step = datetime.fromtimestamp(t, UTC), LAYERS[layer][0]
    if not known:
        return TokenRow(t=at, step_seconds=step, requests=None, prompt_tokens=None, hit_tokens=None, saved_ms=None)
    requests, prompt, _, saved = tiers.get("", (0, 0, 0, 0.0))
    hits = {tier: values[2] for tier, values in tiers.items() if tier}
    return TokenRow(t=at, step_seconds=step, requests=requests, prompt_tokens=prompt, hit_tokens=hits, saved_ms=saved)


def _reported(node: str | None, layer: int, since: datetime, until: datetime) -> set[int]:
    """Begins of the columns in which the writer lived, or in which this node reported a fill."""
    window = {"layer": layer, "t0__gte": _floor(since, layer), "t0__lt": until}
    if node is None:
        lived = HeatColumn.objects.filter(**window).values_list("t0", flat=True).distinct()
        return {int(t.timestamp()) for t in lived}
    reported = MarkSample.objects.filter(source__in=_sources(node), **window).values_list("t0", flat=True).distinct()
    return {int(t.timestamp()) for t in reported}


def _sources(node: str) -> list[int]:
    of = Node.objects.filter(name=node).values("id")
    return list(Source.objects.filter(node_id__in=of).values_list("id", flat=True))


def _floor(since: datetime, layer: int) -> datetime:
    step = LAYERS[layer][0]
    return datetime.fromtimestamp(int(since.timestamp()) // step * step, UTC)
