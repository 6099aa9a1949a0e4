"""The fleet and its nodes as they are now: ten small queries for all nodes, none over placements."""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from catalog.models import Node, Pulse, Shard
from catalog.selectors.alerts import alerts_of, answer_of, fill_state
from catalog.selectors.facts import Facts, Source, Tier, facts_of
from catalog.selectors.views import (
    Alert,
    FleetView,
    LadderStep,
    NodeView,
    Numbers,
    SourceView,
    TierView,
)
from kvconsole.infra.access import FLEET_PLANE
from kvcore.blocks import TIERS

SILENT_SECONDS = 10.0
"""Not heard for longer: everything said of the node is last known."""
WRITER_SECONDS = 15.0
"""A writer that showed no life for longer is away: rates are unknown, not zero."""
WORST_FIRST = ("lost", "degraded", "recovering", "exact")
GONE = frozenset({"lost"})


def node_names(*, ids: Collection[UUID] | None = None) -> dict[str, str]:
    """Name → id of all nodes, sorted by name; with `ids`, of these."""
    rows = Node.objects.using(FLEET_PLANE).order_by("name")
    rows = rows if ids is None else rows.filter(id__in=ids)
    return {name: str(pk) for name, pk in rows.values_list("name", "id")}


def fleet_view(*, now: datetime) -> FleetView:
    """The whole fleet, nodes sorted by name."""
    nodes = _nodes(Node.objects.order_by("name"), now)
    pulses = list(Pulse.objects.all())
    writer_at = _writer_at(pulses)
    numbers = _numbers(nodes, pulses, writer_at, now)
    alerts = alerts_of(nodes, writer_at=writer_at, now=now, away=timedelta(seconds=WRITER_SECONDS))
    return FleetView(
        nodes=nodes,
        ladder=[step for tier in TIERS if (step := _step(tier, nodes))],
        numbers=numbers,
        alerts=alerts,
        answer=answer_of(nodes, alerts, numbers),
        complete=numbers.complete,
        as_of=now,
    )


def node_views(nodes: Iterable[Any], *, now: datetime) -> list[NodeView]:
    """These nodes (or rows of them), in their order: seven queries for all of them, whatever else the fleet has."""
    return _nodes(nodes, now)


def node_view(*, name: str, now: datetime) -> NodeView | None:
    """One node; None if there is none of that name."""
    found = _nodes(Node.objects.filter(name=name), now)
    return found[0] if found else None


def alerts(*, now: datetime) -> list[Alert]:
    """What is wrong at `now`, worst first."""
    nodes = _nodes(Node.objects.order_by("name"), now)
    return alerts_of(nodes, writer_at=_writer_at(Pulse.objects.all()), now=now, away=timedelta(seconds=WRITER_SECONDS))


# --- nodes --------------------------------------------------------------------


def _nodes(rows: Iterable[Any], now: datetime) -> list[NodeView]:
    nodes = list(rows)
    if not nodes:
        return []
    facts = facts_of([n.id for n in nodes], now)
    return [_node(n, facts, now) for n in nodes]


def _node(node: Any, facts: Facts, now: datetime) -> NodeView:
    sources = facts.sources[node.id]
    pulses = [p for s in sources if (p := facts.pulses.get(s.id))]
    heard = max((t for t in (node.last_heard_at, *(p.at for p in pulses)) if t), default=None)
    age = _ms(now, heard)
    stale = age is None or age > SILENT_SECONDS * 1000 or node.state in GONE
    worst = min((s.state for s in sources), key=WORST_FIRST.index, default=None)
    tiers = _tiers(node, facts, stale, now)
    counted = [t.blocks for t in tiers if t.blocks is not None]
    lags = [p.lag_ms for p in pulses if p.lag_ms is not None]
    return NodeView(
        id=str(node.id),
        name=node.name,
        region=node.region,
        zone=node.zone,
        rack=node.rack,
        role=node.role,
        state=node.state,
        source_state=worst,
        reason=next((s.reason for s in sources if s.state == worst), ""),
        age_ms=age,
        lag_ms=int(max(lags)) if lags else None,
        blocks=sum(counted) if counted else None,
        stale=stale,
        tiers=tiers,
        sources=[_source(s, facts, now) for s in sources],
        agent_url=node.agent_url,
        agent_version=node.agent_version,
        engine=node.engine,
        enrolled_at=node.enrolled_at,
        last_heard_at=heard,
    )


def _tiers(node: Any, facts: Facts, stale: bool, now: datetime) -> list[TierView]:
    declared = {t.tier: t for t in facts.tiers[node.id]}
    numbers = [s.id for s in facts.sources[node.id]]

    def known(tier: str) -> bool:
        places = [(n, tier) for n in numbers]
        return tier in declared or any(p in facts.blocks or p in facts.marks for p in places)

    return [_tier(tier, node, declared.get(tier), numbers, facts, stale, now) for tier in TIERS if known(tier)]


def _tier(
    tier: str, node: Any, declared: Tier | None, numbers: list[int], facts: Facts, stale: bool, now: datetime
) -> TierView:
    """Fills of several sources of one node add up: each has its own arena."""
    marks = [m for n in numbers if (m := facts.marks.get((n, tier)))]
    used = sum(m.used for m in marks) if marks else None
    capacity = sum(m.capacity for m in marks) if marks else (declared.capacity_bytes if declared else None)
    high = min((m.high for m in marks), default=declared.high if declared else None)
    low = min((m.low for m in marks), default=declared.low if declared else None)
    # the owners of a lost node are retired: what it holds is not known, and must not read as nothing
    blocks = None if node.state in GONE or not numbers else sum(facts.blocks.get((n, tier), 0) for n in numbers)
    share = used / capacity if used is not None and capacity else None
    reached = [p for n in numbers if (p := facts.peaks.get((n, tier))) is not None]
    peak = max([*reached, *([] if share is None else [share])], default=None)
    return TierView(
        tier=tier,
        used_bytes=used,
        capacity_bytes=capacity,
        high=high,
        low=low,
        blocks=blocks,
        emulated=bool(declared and declared.emulated),
        encrypted=bool(declared and declared.encrypted),
        state=fill_state(share, high, stale),
        age_ms=_ms(now, min((m.at for m in marks), default=None)),
        stale=stale,
        peak=None if stale else peak,
    )


def _source(row: Source, facts: Facts, now: datetime) -> SourceView:
    pulse = facts.pulses.get(row.id)
    heard = max((t for t in (row.last_frame_at, pulse.at if pulse else None) if t), default=None)
    return SourceView(
        id=row.id,
        name=row.name,
        dp_rank=row.dp_rank,
        state=row.state,
        reason=row.reason,
        since=row.since,
        boot=row.boot,
        stream=row.stream,
        seq=row.seq,
        can_list=row.can_list,
        gaps=row.gaps,
        last_verified_at=row.last_verified_at,
        last_frame_at=row.last_frame_at,
        age_ms=_ms(now, heard),
        lag_ms=int(pulse.lag_ms) if pulse and pulse.lag_ms is not None else None,
        queue_ms=pulse.queue_ms if pulse else None,
        running=pulse.running if pulse else None,
        refusals=facts.refusals[row.id],
    )


# --- sums ---------------------------------------------------------------------


def _step(tier: str, nodes: list[NodeView]) -> LadderStep | None:
    with_tier = [(n, t) for n in nodes if (t := n.tier(tier))]
    if not with_tier:
        return None
    fresh = [t for _, t in with_tier if not t.stale and t.used_bytes is not None]
    old = [t for _, t in with_tier if t.stale]
    capacities = [t.capacity_bytes for _, t in with_tier if t.capacity_bytes is not None]
    return LadderStep(
        tier=tier,
        used_bytes=sum(t.used_bytes or 0 for t in fresh) if fresh else None,
        last_known_bytes=sum(t.used_bytes or 0 for t in old),
        capacity_bytes=sum(capacities) if capacities else None,
        low=min((t.low for _, t in with_tier if t.low is not None), default=None),
        high=min((t.high for _, t in with_tier if t.high is not None), default=None),
        blocks=sum(t.blocks or 0 for _, t in with_tier),
        reporting=len(fresh),
        nodes=len(with_tier),
        emulated=any(t.emulated for _, t in with_tier),
        complete=len(fresh) == len(with_tier),
    )


def _writer_at(pulses: Iterable[Pulse]) -> datetime | None:
    """When the writers were last known to live: the one that was silent longest counts."""
    told = {p.shard: p.at for p in pulses}
    seen = [max((t for t in (s.seen_at, told.get(s.id)) if t), default=None) for s in Shard.objects.all()]
    return None if not seen or None in seen else min(t for t in seen if t)


def _numbers(nodes: list[NodeView], pulses: list[Pulse], writer_at: datetime | None, now: datetime) -> Numbers:
    joined = [n for n in nodes if n.state != "joining"]
    complete = all(not n.stale and n.source_state in (None, "exact") for n in joined)
    blocks = sum(n.blocks or 0 for n in nodes)
    away = writer_at is None or (now - writer_at).total_seconds() > WRITER_SECONDS
    if away or (joined and all(n.stale for n in joined)):
        # Nobody who could have told us did: what happens there is unknown, not nothing.
        return Numbers(
            requests_per_s=None, hit_ratio=None, saved_ms_per_s=None, events_per_s=None, evictions_per_s=None,
            blocks=blocks, complete=False, as_of=writer_at,
        )  # fmt: skip
    fresh = [p for p in pulses if (now - p.at).total_seconds() <= WRITER_SECONDS]
    prompt = sum(p.prompt_tokens for p in fresh)

    def rate(name: str) -> float:
        return round(sum(float(getattr(p, name)) / p.window_seconds for p in fresh), 3)

    return Numbers(
        requests_per_s=rate("requests"),
        hit_ratio=round(sum(p.hit_tokens for p in fresh) / prompt, 4) if prompt else None,
        saved_ms_per_s=rate("saved_ms"),
        events_per_s=rate("events"),
        evictions_per_s=rate("evictions"),
        blocks=blocks,
        complete=complete,
        as_of=writer_at,
    )


def _ms(now: datetime, at: datetime | None) -> int | None:
    return None if at is None else max(0, int((now - at).total_seconds() * 1000))
