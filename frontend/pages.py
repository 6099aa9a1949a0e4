"""Decides what each page shows: selectors' values, charts folded from them, and statements worded.

One function a page; each returns the template's context. Called by `views`.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from catalog import selectors
from catalog.selectors import FleetView, NodeView, TokenRow
from frontend import formats, pictures, sentences, wording
from frontend.problems import PROBLEMS

HOUR = timedelta(hours=1)
MINUTE = 60
NODE_RANGES = ("1h", "12h", "7d")
ROWS = 512
"""Of the heat map; what the browser asks for when it asks again."""
STRIP_MOST = 12
"""A node's page shows the tiles of a fleet up to this size above its own figures."""
DENSE_FROM = 50
"""More nodes than this are drawn as small squares, one for the worst tier each."""


def freshness(fleet: FleetView, now: datetime) -> dict[str, Any]:
    """Of when the figures are (the writer's last sign of life), and after how many seconds they are only last known."""
    as_of, promise = fleet.numbers.as_of, selectors.WRITER_SECONDS
    old = as_of is None or (now - as_of).total_seconds() > promise
    return {"as_of": as_of, "promise": promise, "old": old}


def overview(now: datetime) -> dict[str, Any]:
    """The fleet in one page: statement, numbers, tiers, nodes, alerts, families, evictions."""
    fleet = selectors.fleet_view(now=now)
    since = now - HOUR
    tokens = selectors.token_history(node=None, since=since, until=now, now=now)
    evictions = selectors.eviction_history(node=None, since=since, until=now, now=now)
    evicted = [None if e.reasons is None else sum(e.reasons.values()) / e.step_seconds for e in evictions]
    return {
        "live": freshness(fleet, now),
        "fleet": fleet,
        "answer": sentences.answer(fleet.answer),
        "alerts": [sentences.alert_line(a) for a in fleet.alerts],
        "kpis": kpis(fleet, tokens, evicted),
        "tokens": pictures.tokens(tokens, since, now),
        "past": selectors.fill_history(since=since, until=now, now=now),
        "evictions": pictures.evictions(evictions, since, now, 12),
        "families": selectors.top_families(now=now, limit=8),
        "missing": [n.name for n in fleet.nodes if n.stale and n.state != "joining"],
        "dense": len(fleet.nodes) > DENSE_FROM,
        "first_run": first_run(fleet, tokens),
    }


def kpis(fleet: FleetView, tokens: Sequence[TokenRow], evicted: Sequence[float | None]) -> list[dict[str, Any]]:
    """The number strip: value, unit, the last hour as a spark, one line of context."""
    numbers = fleet.numbers
    lags = [n.lag_ms for n in fleet.nodes if n.lag_ms is not None and not n.stale]

    def rate(name: str, value: float | None, spark: Sequence[float | None]) -> dict[str, Any]:
        number, prefix = (None, "") if value is None else formats.short(value)
        return {"name": name, "value": number, "unit": f"{prefix}/s", "spark": spark}

    def past(of: Any) -> list[float | None]:
        return [of(row) for row in tokens[-60:]] if len(tokens) > 1 else []

    ratio = None if numbers.hit_ratio is None else f"{100 * numbers.hit_ratio:.1f}"
    saved = None if numbers.saved_ms_per_s is None else formats.significant(numbers.saved_ms_per_s / 1000)
    known = numbers.complete or numbers.blocks > 0
    blocks, prefix = formats.short(numbers.blocks) if known else (None, "")
    return [
        {"name": "hit", "value": ratio, "unit": "%", "spark": past(_hit)},
        {"name": "saved", "value": saved, "unit": "s/s", "spark": past(lambda r: r.saved_ms)},
        rate("requests", numbers.requests_per_s, past(lambda r: r.requests)),
        {"name": "blocks", "value": blocks, "unit": prefix, "bound": not numbers.complete, "spark": []},
        rate("evictions", numbers.evictions_per_s, evicted[-60:]),
        {"name": "lag", "value": f"{max(lags) / 1000:.1f}" if lags else None, "unit": "s", "spark": []},
    ]


def _hit(row: TokenRow) -> float | None:
    if row.hit_tokens is None or not row.prompt_tokens:
        return None
    return sum(row.hit_tokens.values()) / row.prompt_tokens


def first_run(fleet: FleetView, tokens: Sequence[TokenRow]) -> list[tuple[str, str]] | None:
    """The steps until there is something to see, as `(step, done | now | next)`; None once all are done."""
    steps = {
        "console": True,
        "node": bool(fleet.nodes),
        "events": any(s.seq >= 0 and s.last_frame_at for n in fleet.nodes for s in n.sources),
        "hit": any(sum((row.hit_tokens or {}).values()) for row in tokens) or fleet.numbers.blocks > 0,
    }
    if all(steps.values()):
        return None
    current = next(name for name, done in steps.items() if not done)
    return [(name, "done" if done else "now" if name == current else "next") for name, done in steps.items()]


def window(since: str, until: str, now: datetime) -> tuple[int, int] | None:
    """The time a map's address names, in seconds; None where it names none, or none that has been."""
    if not all(text.isascii() and text.isdecimal() and len(text) <= 11 for text in (since, until)):
        return None
    asked = int(since), int(until)
    return asked if 0 < asked[0] < asked[1] <= now.timestamp() + MINUTE else None


def fleet_map(now: datetime, metric: str, span: str, asked: tuple[int, int] | None = None) -> dict[str, Any]:
    """The map's frame and its tiles, of the last `span` or of the time `asked` for; the browser brings the matrix."""
    fleet = selectors.fleet_view(now=now)
    families = selectors.top_families(now=now, limit=10)
    end = int(now.timestamp())
    first, last = asked or (end - wording.RANGES[span][0], end)
    since, until = datetime.fromtimestamp(first, UTC), datetime.fromtimestamp(last, UTC)
    unsure = selectors.heat_honesty(alerts=fleet.alerts, since=since, until=until, now=now)
    query = {"metric": metric, "layer": "auto", "from": first, "to": last, "rows": ROWS}
    return {
        "live": freshness(fleet, now),
        "fleet": fleet,
        "families": families,
        "honesty": sentences.honesty(unsure),
        "picture": f"{reverse('map-heat')}?{urlencode(query)}",
        "notes": notes(fleet),
        "metric": metric,
        "metrics": wording.METRICS,
        "metric_word": wording.METRICS[metric],
        "span": span,
        "ranges": wording.RANGES,
        "answer": sentences.map_answer(families, fleet),
        "dense": len(fleet.nodes) > DENSE_FROM,
    }


def notes(fleet: FleetView) -> list[dict[str, Any]]:
    """The vertical lines over the map: since when a node says nothing."""
    word = wording.NODE_STATES["silent"].word
    away = [a for a in fleet.alerts if a.code in ("node-silent", "node-lost")]
    return [{"t": int(a.since.timestamp()), "text": f"{a.node} {word}"} for a in away if a.since and a.node]


def nodes(now: datetime) -> dict[str, Any]:
    """All nodes: statement, tiles, table."""
    fleet = selectors.fleet_view(now=now)
    answer = sentences.answer(fleet.answer)
    return {"live": freshness(fleet, now), "fleet": fleet, "answer": answer, "dense": len(fleet.nodes) > DENSE_FROM}


def node(now: datetime, view: NodeView, span: str) -> dict[str, Any]:
    """One node: tiers, history, evictions, sources, refusals, what it is."""
    since = now - timedelta(seconds=wording.RANGES[span][0])
    history = {
        tier.tier: selectors.watermark_history(node=view.name, tier=tier.tier, since=since, until=now, now=now)
        for tier in view.tiers
    }
    evictions = selectors.eviction_history(node=view.name, since=since, until=now, now=now)
    fleet = selectors.fleet_view(now=now)
    return {
        "live": freshness(fleet, now),
        "fleet": fleet if len(fleet.nodes) <= STRIP_MOST else None,
        "current": view.name,
        "node": view,
        "answer": sentences.node_answer(view),
        "steps": [(t, [s.used_bytes for s in history[t.tier]][-120:]) for t in view.tiers],
        "fills": pictures.fills(history),
        "fill_rows": pictures.fill_rows(history),
        "evictions": pictures.evictions(evictions, since, now, 60 if span == "1h" else 72),
        "refusals": refusals(view),
        "span": span,
        "ranges": {name: wording.RANGES[name] for name in NODE_RANGES},
    }


def refusals(view: NodeView) -> list[dict[str, Any]]:
    """What was refused of all sources of a node, most first."""
    rows = [
        {"source": s, "code": r.code, "count": r.count, "last_at": r.last_at, "said": sentences.reason(r.code)}
        for s in view.sources
        for r in s.refusals
    ]
    return sorted(rows, key=lambda row: -row["count"])


def component_sheet() -> dict[str, Any]:
    """Every part once, with samples that are of no node."""
    return {
        "tones": wording.NODE_STATES,
        "source_tones": wording.SOURCE_STATES,
        "tier_tones": wording.TIER_STATES,
        "tiers": wording.TIERS,
        "colours": [
            "page",
            "card",
            "sunken",
            "hover",
            "selected",
            "line",
            "text",
            "muted",
            "link",
            "ok",
            "info",
            "warn",
            "danger",
            "unknown",
        ],
        "icons": [
            "overview",
            "map",
            "node",
            "tiers",
            "prefix",
            "docs",
            "fault",
            "search",
            "theme",
            "clock",
            "filter",
            "pin",
            "link",
            "copy",
            "ok",
            "warn",
            "danger",
            "info",
            "unknown",
            "fence",
            "work",
            "lock",
        ],
        "code": "unavailable",
        "problem": PROBLEMS["unavailable"],
    }
