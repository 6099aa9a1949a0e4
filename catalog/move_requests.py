"""Writes of intent: migrations, drains and prefetches are asked for, with the routes they take, and ordered.

A move fences nothing and destroys no last copy, so nobody has to agree to it, but for a drain that may let go what has
no room (`catalog.letting_go`); it has its order in the log like every
operation, as a node gives blocks to nobody without one. What is pinned stays. Called by REST.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from django.db import transaction

from audit.standing import need_log
from catalog import operation_owners as owners
from catalog.draining import HEARD, drain_begin
from catalog.letting_go import losses, need_agreed, need_destroyer
from catalog.models import Node, NodeTier, Operation, OperationTarget, TierMark
from catalog.operation_orders import (
    kept,
    operation_record,
    operation_wake,
    order_record,
    selector_hash,
)
from catalog.operation_plans import finer, namespaces_of, selector_of, tenant_of, upto
from catalog.pins import pins_in_force
from catalog.placing import bars, class_rules, places, tenants_of
from kvconsole.infra.access import FLEET_PLANE, Principal, plane
from kvconsole.infra.rest import Problem, add_codes
from kvconsole.infra.sql import uuid7
from kvcore.blocks import TIERS, Tier
from kvcore.move_steps import Route
from kvcore.plan_kinds import KINDS
from kvcore.risk import Risk
from tenants.erasing import Erasable, namespaces_selected
from tenants.placing import namespace_places

add_codes(
    {
        "no-slack": (409, "It cannot be there before it is needed"),
        "no-route": (409, "There is no place that this could go to"),
        "all-pinned": (409, "All that is meant is pinned where it lies"),
    }
)
DEADLINE = timedelta(hours=1)
ORDER_WITHIN, LATEST = timedelta(days=1), timedelta(days=30)
"""How long after its deadline a move may be ordered to its end, and how far ahead that deadline is at most."""
SLACK_SECONDS, SLACK_BYTES_PER_S = 3.0, 20 * 2**20
"""What a prefetch is taken to need: the time of its order, and so many bytes a second."""
SHUT = ("cordoned", "draining", "fenced")
"""What is wanted of nodes that take nothing of others."""
UNHEARD = ("joining", "lost")
"""States of nodes that take nothing either, unless they are heard: a worker keeps the state, and may be late."""


class Asked(NamedTuple):
    """What a move is about, before it is one."""

    kind: str
    rows: list[Erasable]
    routes: list[Route]
    selector: dict[str, Any]
    more: dict[str, Any]
    risk: Risk = Risk.R0


def migration_request(
    *, selector: Mapping[str, Any], from_tier: str, to_tier: str, to_node: str = "", throttle: int | None = None,
    deadline: datetime | None = None, reason: str = "", actor: Principal, now: datetime,
) -> Operation:  # fmt: skip
    """What the selector means goes from a tier to another: on each node, or all of it to one node.

    Raises:
        Problem: as `selector_of`; selector-unsupported, nothing-selected, no-route, all-pinned or audit-unavailable.
    """
    _need_near("deadline", deadline, now)
    said = selector_of(dict(selector), actor)
    if finer(said):
        raise Problem("selector-unsupported", "Moves mean whole namespaces.")
    rows = _unpinned(namespaces_of(said), now)
    there = _Fleet(rows)
    to = there.node(to_node) if to_node else None
    routes = []
    for place in there.holding(from_tier):
        target = there.place(to or place.node, to_tier, near=place)
        if target is not None and target.owner != place.owner:
            routes.append(Route(source=place.owner, target=target.owner))
    asked = Asked("migration", rows, routes, msgspec.to_builtins(said), {})
    return _request(asked, there, throttle, deadline, reason, actor, now)


def drain_request(
    *, node: str, recompute: bool = False, throttle: int | None = None, deadline: datetime | None = None,
    reason: str = "", confirm_phrase: str = "", actor: Principal, now: datetime,
) -> Operation:  # fmt: skip
    """All blocks of a node go to nodes that may hold them and have room; with `recompute` the rest is let go.

    From commit on the node is draining: nothing is sent there any more. In the end it is cordoned. What is let go is
    gone: that asks who it is for, proof, reason and phrase as a deletion does, and goes no further than was seen then.

    Raises:
        Problem: not-found, nothing-selected (it is not known what is there), no-route, node-draining, node-fenced or
            audit-unavailable; with `recompute` as `need_destroyer` and `need_agreed`; the node is as it was.
    """
    _need_near("deadline", deadline, now)
    if recompute:
        need_destroyer(actor, now)
    with transaction.atomic(using=plane()):
        rows = namespaces_of_all()
        there = _Fleet(rows)
        mine = there.node(node)
        more = {"node": str(mine), "wanted": drain_begin(node=mine, actor=actor, now=now)}
        held = there.digests_on(mine)
        rows = [row for row in rows if row.digest in held]
        routes, risk = [], Risk.R0
        for place in [p for p in there.all if p.node == mine] if rows else []:
            routes += there.share_out(place)
        if recompute:
            lost = losses(there.short, rows, there.held)
            whose, name = tenant_of(rows, actor), there.name(mine)
            risk = need_agreed(lost, node=name, phrase=confirm_phrase, reason=reason, tenant_id=whose, now=now)
            routes += [Route(source=loss.place.owner, target=0, most_bytes=loss.bytes) for loss in lost]
        asked = Asked("drain", rows, routes, {"node": there.name(mine)}, more, risk)
        return _request(asked, there, throttle, deadline, reason, actor, now)


def prefetch_request(
    *, namespace: str, prefix: Sequence[str], to_node: str, to_tier: str, need_at: datetime,
    throttle: int | None = None, actor: Principal, now: datetime,
) -> Operation:  # fmt: skip
    """The blocks of a prefix are copied to a node's tier before they are needed, if there is time for it.

    Raises:
        Problem: not-found, no-slack, no-route, nothing-selected or audit-unavailable; nothing was begun.
    """
    _need_near("need_at", need_at, now)
    said = selector_of({"namespace": namespace}, actor)
    rows = namespaces_of(said)
    there = _Fleet(rows)
    to = there.node(to_node)
    size = len(prefix) * there.block_bytes()
    rate = min(throttle or SLACK_BYTES_PER_S, SLACK_BYTES_PER_S)
    needs = timedelta(seconds=SLACK_SECONDS + size / rate)
    if now + needs > need_at:
        raise Problem("no-slack", f"It would take {needs.total_seconds():.0f} s.")
    target = there.place(to, to_tier)
    routes = [
        Route(source=place.owner, target=target.owner)
        for place in there.all
        if target is not None and there.held_bytes(place) and place.owner != target.owner
    ]
    more = {"only": [key.lower()[:32] for key in prefix], "keep": True, "need_at": need_at.timestamp()}
    asked = Asked("prefetch", rows, routes, msgspec.to_builtins(said), more)
    return _request(asked, there, throttle, need_at, "", actor, now)


def _need_near(field: str, at: datetime | None, now: datetime) -> None:
    if at is not None and at > now + LATEST:
        detail = f"It must be within {LATEST.days} days."
        raise Problem("validation-failed", errors=[{"pointer": f"/{field}", "code": "invalid", "detail": detail}])


def namespaces_of_all() -> list[Erasable]:
    """All namespaces of the fleet."""
    return namespaces_selected()


def _unpinned(rows: list[Erasable], now: datetime) -> list[Erasable]:
    """Those of which something may move: what is pinned as a whole stays."""
    pins = pins_in_force(now).filter(keys__isnull=True, namespace__in=[row.id for row in rows])
    whole = set(pins.values_list("namespace", flat=True))
    left = [row for row in rows if row.id not in whole]
    if rows and not left:
        raise Problem("all-pinned")
    return left


LOWER = {
    tier.value: [lower.value for lower in TIERS[at + 1 :] if lower is not Tier.REMOTE] for at, tier in enumerate(TIERS)
}
"""What a drained tier's blocks may go down to. A remote store is shared: what it has need not be brought there."""


class _Fleet:
    """Where blocks of some namespaces are, and where they may go."""

    def __init__(self, rows: Sequence[Erasable]) -> None:
        self.all = [place for place in owners.places() if not place.retired]
        self.held = owners.held([(row.digest, upto(row)) for row in rows])
        self.short: list[tuple[owners.Place, int]] = []
        """Places of which so many bytes found no room when they were shared out."""
        self._rows = rows
        self._nodes = {n.id: n for n in Node.objects.using(FLEET_PLANE).exclude(enrolled_at=None)}
        tiers = NodeTier.objects.using(FLEET_PLANE).values_list("node_id", "tier", "capacity_bytes", "high")
        self._capacity = {(node, tier): int(size * high) for node, tier, size, high in tiers}
        marks = TierMark.objects.using(FLEET_PLANE).values_list("source", "tier", "used")
        self._used = {(source, tier): used for source, tier, used in marks}
        self._bars: dict[UUID, set[str]] = {}

    def node(self, name: str) -> UUID:
        """The node of this name or id.

        Raises:
            Problem: not-found.
        """
        for node in self._nodes.values():
            if name in (node.name, str(node.id)):
                found: UUID = node.id
                return found
        raise Problem("not-found")

    def name(self, node: UUID) -> str:
        """What the node is called."""
        return str(self._nodes[node].name)

    def known(self, node: UUID) -> bool:
        """Whether all that is on the node is in the catalog: where nothing is, there is nothing to move."""
        mine = [p for p in self.all if p.node == node]
        return (bool(mine) or self._nodes[node].state in HEARD) and all(p.reachable and not p.gap for p in mine)

    def shut(self, node: UUID) -> bool:
        """Whether nothing of others may go there. A node that is silent for a moment is waited for."""
        row = self._nodes[node]
        heard = any(p.reachable for p in self.all if p.node == node)
        return row.wanted in SHUT or (row.state in UNHEARD and not heard)

    def held_bytes(self, place: owners.Place) -> int:
        """What of the namespaces is believed there."""
        at = place.source_id, place.tier
        return sum(by[at].bytes for by in self.held.values() if at in by)

    def block_bytes(self) -> int:
        """The largest block of the namespaces that is known."""
        return max((h.bytes // h.blocks for by in self.held.values() for h in by.values() if h.blocks), default=0)

    def digests_on(self, node: UUID) -> set[bytes]:
        """The namespaces of which the node is believed to hold something."""
        mine = {(p.source_id, p.tier) for p in self.all if p.node == node}
        return {digest for digest, by in self.held.items() if mine & by.keys()}

    def holding(self, tier: str) -> list[owners.Place]:
        """Places of the tier where something of the namespaces is."""
        return [p for p in self.all if p.tier == tier and self.held_bytes(p)]

    def place(self, node: UUID, tier: str, near: owners.Place | None = None) -> owners.Place | None:
        """The node's place of a tier, of the same source if it can be; None if it may not hold the namespaces.

        What is on a node may go to another of its tiers whatever the node's state is.
        """
        if (near is None or near.node != node) and self.shut(node):
            return None
        found = [p for p in self.all if p.node == node and p.tier == tier]
        found.sort(key=lambda p: (near is None or p.source != near.source, p.source, p.dp_rank))
        return found[0] if found and tier not in self.barred(node) else None

    def barred(self, node: UUID) -> set[str]:
        """Tiers of the node that may hold none of the namespaces' blocks."""
        if node not in self._bars:
            spaces = list(namespace_places([row.digest for row in self._rows]).values())
            rules, at = class_rules(tenants_of(spaces)), places([node]).get(node)
            said = [set(bars(space, at, rules)) for space in spaces] if at else []
            self._bars[node] = set.intersection(*said) if said else set()
        return self._bars[node]

    def share_out(self, place: owners.Place) -> list[Route]:
        """Routes for all that is in a place, to the same tier of nodes with room, the emptiest first.

        A place that seems empty has one, too: what came meanwhile goes the same way. A node that is silent just now is
        waited for, so that nothing is let go for a moment's silence. What finds no room there, as arenas keep some of
        it to themselves or it has filled up since, goes to the lower tiers, one after the other.
        """
        left = max(self.held_bytes(place), 1)
        routes = self._same_tier(place, left)
        left -= sum(left if route.most_bytes is None else route.most_bytes for route in routes)
        for turn, tier in enumerate(LOWER[place.tier] if self.held_bytes(place) else (), 1):
            below = max(self._others(place, tier), key=self.room, default=None)
            if below is not None and (room := self.room(below)) > 0:
                routes.append(Route(source=place.owner, target=below.owner, most_bytes=room, turn=turn))
                if left > 0:
                    self._fill(below, min(left, room))
                    left -= room
        if left > 0 and self.held_bytes(place):
            self.short.append((place, left))
        return routes

    def _same_tier(self, place: owners.Place, left: int) -> list[Route]:
        routes = list[Route]()
        for other in sorted(self._others(place, place.tier), key=lambda p: -self.room(p)):
            room = self.room(other)
            if left <= 0 or room <= 0:
                break
            routes.append(Route(source=place.owner, target=other.owner, most_bytes=None if room >= 2 * left else room))
            self._fill(other, min(left, room))
            left -= room
        return routes

    def _others(self, place: owners.Place, tier: str) -> list[owners.Place]:
        return [
            p for p in self.all
            if p.tier == tier and p.node != place.node and not self.shut(p.node) and tier not in self.barred(p.node)
        ]  # fmt: skip

    def _fill(self, place: owners.Place, size: int) -> None:
        self._capacity[place.node, place.tier] = self._capacity.get((place.node, place.tier), 0) - size

    def room(self, place: owners.Place) -> int:
        """Bytes that would still fit, as far as is known."""
        return self._capacity.get((place.node, place.tier), 0) - self._used.get((place.source_id, place.tier), 0)


def _request(
    asked: Asked, there: _Fleet, throttle: int | None, deadline: datetime | None, reason: str, actor: Principal,
    now: datetime,
) -> Operation:  # fmt: skip
    empty = asked.kind == "drain" and not asked.rows and there.known(UUID(asked.more["node"]))
    if not empty and (not asked.rows or not any(there.held_bytes(p) for p in there.all)):
        raise Problem("nothing-selected")
    if not empty and not asked.routes:
        raise Problem("no-route")
    reached = sorted({n for route in asked.routes for n in (route.source, route.target) if n})
    payers = {d.hex(): n.payer.hex for d, n in namespace_places([row.digest for row in asked.rows]).items()}
    operation = Operation(
        id=uuid7(),
        tenant_id=tenant_of(asked.rows, actor),
        kind=asked.kind,
        selector=asked.selector,
        options={
            "routes": [msgspec.to_builtins(route) for route in asked.routes],
            "places": reached,
            "tenants": payers,
            **asked.more,
        },
        plan_hash=b"",
        risk=str(asked.risk),
        requested_by=actor.subject,
        requester=kept(actor),
        reason=reason,
        finalizers=list(KINDS[asked.kind].finalizers),
        throttle=throttle,
        deadline=deadline or now + DEADLINE,
        not_after=max(deadline or now, now) + ORDER_WITHIN,
        created_at=now,
        fenced_at=now,
        due_at=now,
    )
    operation.plan_hash = selector_hash(operation)
    with transaction.atomic(using=plane()):
        need_log()
        operation.save(force_insert=True)
        OperationTarget.objects.bulk_create(
            OperationTarget(
                operation=operation.id, tenant_id=operation.tenant_id, namespace=row.id, digest=row.digest,
                min_gen=row.generation + 1, fence_seq=0,
            )
            for row in asked.rows
        )  # fmt: skip
        _record(operation, len(asked.rows), actor)
        if plane() == FLEET_PLANE:
            order_record(operation, actor)
        operation_wake(operation.id)
    return operation


def _record(operation: Operation, namespaces: int, actor: Principal) -> None:
    body = {
        "kind": operation.kind,
        "trigger": operation.trigger,
        "plan_hash": bytes(operation.plan_hash),
        "selector_hash": selector_hash(operation),
        "risk": operation.risk,
        "namespaces": namespaces,
        "fence_seq": 0,
        "reason": operation.reason,
        "approval": None,
        "grace_seconds": 0.0,
    }
    operation_record("operation.requested", operation, actor, body)
