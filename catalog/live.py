"""The live topics of the catalog: `tiles`, `watermarks`, `node:<name>`, `map:<metric>`, `operation:<id>`; the same
entities as REST.

Ages and lags are rounded so coarsely that a fleet in which nothing happens sends next to nothing.
"""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from catalog.heat import UNITS
from catalog.operation_orders import OPERATIONS
from catalog.operation_views import operation_view
from catalog.operations.observing import operation_of
from catalog.selectors import FleetView, NodeView, TierView, fleet_view, heat_live, node_view
from kvconsole.infra import nudge
from kvconsole.infra.live import TopicKind, View, register

FLEET_ROLES = frozenset({"viewer", "operator", "destructive-operator", "approver", "auditor"})
_STEPS_MS = (0, 2_000, 5_000, 10_000, 20_000, 30_000)


def coarse_age(ms: int | None) -> int | None:
    """The age rounded down: steps of seconds, then whole minutes."""
    if ms is None:
        return None
    return ms // 60_000 * 60_000 if ms >= 60_000 else max(s for s in _STEPS_MS if s <= ms)


def coarse_lag(ms: int | None) -> int | None:
    """The lag to 100 ms, from a second on to one and a half digits."""
    if ms is None or ms < 1_000:
        return None if ms is None else round(ms, -2)
    return round(ms / 500) * 500 if ms < 10_000 else round(ms, -3)


def tier_entity(tier: TierView) -> dict[str, Any]:
    """One tier of a tile; null where unknown."""
    return {
        "used": tier.used_bytes,
        "capacity": tier.capacity_bytes,
        "high": tier.high,
        "low": tier.low,
        "blocks": tier.blocks,
        "emulated": tier.emulated,
        "state": tier.state,
        "stale": tier.stale,
    }


def node_tile(node: NodeView) -> dict[str, Any]:
    """One node's tile."""
    return {
        "id": node.id,
        "name": node.name,
        "region": node.region,
        "zone": node.zone,
        "rack": node.rack,
        "role": node.role,
        "state": node.state,
        "source_state": node.source_state,
        "reason": node.reason,
        "age_ms": coarse_age(node.age_ms),
        "lag_ms": coarse_lag(node.lag_ms),
        "blocks": node.blocks,
        "stale": node.stale,
        "tiers": {t.tier: tier_entity(t) for t in node.tiers},
    }


def source_entity(source: msgspec.Struct) -> dict[str, Any]:
    """One source of a node's page."""
    entity: dict[str, Any] = msgspec.to_builtins(source)
    entity["age_ms"], entity["lag_ms"] = coarse_age(entity["age_ms"]), coarse_lag(entity["lag_ms"])
    for name in ("last_frame_at", "queue_ms", "running"):
        del entity[name]
    return entity


def tiles_view(fleet: FleetView) -> View:
    """The topic `tiles` and `GET /map/tiles`."""
    ladder = {
        s.tier: {
            "used": s.used_bytes,
            "last_known": s.last_known_bytes,
            "capacity": s.capacity_bytes,
            "low": s.low,
            "high": s.high,
            "blocks": s.blocks,
            "reporting": s.reporting,
            "nodes": s.nodes,
            "emulated": s.emulated,
            "complete": s.complete,
        }
        for s in fleet.ladder
    }
    return {
        "nodes": {n.name: node_tile(n) for n in fleet.nodes},
        "fleet": {"ladder": ladder, "numbers": msgspec.to_builtins(fleet.numbers)},
    }


def marks_view(fleet: FleetView) -> View:
    """The topic `watermarks`: every fill with the time it was said for (seconds)."""
    as_of = int(fleet.as_of.timestamp())
    marks = {
        f"{n.name}/{t.tier}": {
            "t": as_of - (t.age_ms or 0) // 1000,
            "used": None if t.stale else t.used_bytes,
            "capacity": t.capacity_bytes,
            "high": t.high,
            "low": t.low,
        }
        for n in fleet.nodes
        for t in n.tiers
        if t.age_ms is not None
    }
    return {"marks": marks}


def _tiles(_: str, now: datetime) -> View:
    return tiles_view(fleet_view(now=now))


def _marks(_: str, now: datetime) -> View:
    return marks_view(fleet_view(now=now))


def _node(name: str, now: datetime) -> View | None:
    node = node_view(name=name, now=now)
    if node is None:
        return None
    return {"nodes": {name: {**node_tile(node), "sources": [source_entity(s) for s in node.sources]}}}


def _map(metric: str, now: datetime) -> View | None:
    return heat_live(metric=metric, now=now) if metric in UNITS else None


def _operation(text: str, now: datetime) -> View | None:
    """One operation: itself, its cells by node, source and tier, its conditions by type."""
    try:
        found = operation_of(UUID(text))
    except ValueError:
        return None
    if found is None:
        return None
    shown = operation_view(found, now=now)
    far, facts = shown.pop("progress"), shown.pop("conditions")
    cells = {f"{c['node']}/{c['source']}/{c['tier']}": c for c in far["cells"]}
    return {
        "operation": {text: {**shown, "percent": far["percent"]}},
        "cells": cells,
        "conditions": {one["type"]: one for one in facts},
    }


_WAKES = frozenset({nudge.LEDGER, nudge.NODES})
for _kind in (
    TopicKind("tiles", _tiles, _WAKES, FLEET_ROLES),
    TopicKind("watermarks", _marks, _WAKES, FLEET_ROLES),
    TopicKind("node", _node, _WAKES, FLEET_ROLES, takes=True),
    TopicKind("map", _map, _WAKES, FLEET_ROLES, takes=True),
    TopicKind("operation", _operation, frozenset({OPERATIONS, nudge.LEDGER, nudge.NODES}), FLEET_ROLES, takes=True),
):
    register(_kind)
