"""Makes a move true: what is known of it is read, the rules plan it, its steps are sent like any other, and it ends
when no route of it wants anything more.

The same rows, leases, orders and receipts as every operation; only what is asked for follows other rules
(`kvcore.move_steps`). Called by `engine` and by whoever shows an operation.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import transaction

from catalog.models import Node, Operation
from catalog.operation_orders import OPERATIONS, operation_conclude
from catalog.operation_plans import holds_on
from catalog.operations.dispatching import dispatch, steps_keep
from catalog.operations.observing import ENDED, ORDER_GENERATION, Seen, observe
from kvconsole.infra import nudge
from kvconsole.infra.access import FLEET_PLANE, plane
from kvcore.move_steps import MoveIntent, MoveObserved, MovePlace, MoveSeen, Route, done, left_behind, stands
from kvcore.move_steps import steps as wanted

SOON, WHILE_WAITING = timedelta(seconds=0.1), timedelta(seconds=1)


class Moving(NamedTuple):
    """A move as it stands."""

    intent: MoveIntent
    observed: MoveObserved


def moving_of(seen: Seen) -> Moving:
    """The move as the rules see it."""
    operation, options = seen.operation, seen.operation.options
    intent = MoveIntent(
        operation=str(operation.id),
        generation=ORDER_GENERATION,
        kind=operation.kind,
        routes=tuple(Route(**route) for route in options.get("routes", ())),
        tenants=options.get("tenants", {}),
        only=tuple(options.get("only", ())),
        keep=bool(options.get("keep")),
        spare=_on_hold(seen),
        paused=operation.paused,
        stopped=operation.stopped_at is not None,
        deadline=operation.deadline.timestamp(),
        rate_bytes_per_s=operation.throttle,
    )
    observed = MoveObserved(
        now=seen.observed.now,
        places=_places(seen),
        steps=tuple(_step(row) for row in seen.rows),
        order_logged=seen.observed.order_logged,
    )
    return Moving(intent, observed)


def _on_hold(seen: Seen) -> tuple[str, ...]:
    """The namespaces that a legal hold keeps now, by digest."""
    if not seen.intent.held:
        return ()
    mine = {target.namespace: bytes(target.digest).hex() for target in seen.targets if target.namespace}
    return tuple(sorted({mine[one] for _, covered in holds_on(set(mine)) for one in covered}))


def _places(seen: Seen) -> dict[int, MovePlace]:
    believed = {owner.owner: owner for owner in seen.observed.owners}
    mine = {number: seen.places[number] for number in believed if number in seen.places}
    nodes: Mapping[Any, Node] = Node.objects.using(FLEET_PLANE).in_bulk({place.node for place in mine.values()})
    return {
        number: MovePlace(
            owner=number,
            node=str(place.node),
            name=place.node_name,
            source=place.source,
            tier=place.tier,
            dp_rank=place.dp_rank,
            boot=place.boot,
            stream=place.stream,
            seq=place.seq,
            reachable=place.reachable and not place.retired,
            public_key=bytes(nodes[place.node].public_key or b"").hex(),
            url=nodes[place.node].agent_url,
            blocks=believed[number].blocks,
            bytes=believed[number].bytes,
        )
        for number, place in mine.items()
        if place.node in nodes
    }


def _step(row: Any) -> MoveSeen:
    detail: dict[str, Any] = row.told
    at = detail.get("stream_pos") or {}
    return MoveSeen(
        step=str(row.id),
        kind=row.kind,
        pair=int(row.args.get("pair", 0)),
        attempt=row.attempt,
        outcome=row.state if row.state in ENDED else "",
        code=row.code,
        at=row.done_at.timestamp() if row.done_at else 0.0,
        runs=int(detail.get("runs") or 0),
        blocks=int(detail.get("blocks") or 0),
        bytes=int(detail.get("bytes") or 0),
        offer=str(row.args.get("offer") or ""),
        left=tuple(detail.get("left") or ()),
        spared=int(detail.get("spared") or 0),
        refused={str(code): int(blocks) for code, blocks in (detail.get("refused") or {}).items()},
        position_boot=str(at.get("boot") or ""),
        position_stream=str(at.get("stream") or ""),
        position_seq=int(at.get("seq", -1)),
    )


def moves_round(operation: Operation, holder: str, now: datetime) -> tuple[bool, timedelta]:
    """Whether something came of it that asks for another round at once; else after how long one is worth it."""
    seen = observe(operation, now=now)
    move = moving_of(seen)
    wishes = wanted(move.intent, move.observed)
    steps_keep(seen, wishes, now=now)
    sent = dispatch(seen, wishes, holder=holder, now=now)
    if sent.kept:
        nudge.wake(OPERATIONS)
        return True, SOON
    return _settle(operation, move, now), SOON if wishes else WHILE_WAITING


def _settle(operation: Operation, move: Moving, now: datetime) -> bool:
    """It ends where no route wants anything more; what stayed where it was is an exception."""
    rows = Operation.objects.filter(id=operation.id, concluded_at=None, generation=operation.generation)
    rows.update(observed_generation=operation.generation)
    found = stands(move.intent, move.observed)
    if not done(found) or move.intent.paused:
        return False
    left = left_behind(found)
    with transaction.atomic(using=plane()):
        row = Operation.objects.select_for_update(no_key=True).filter(id=operation.id, concluded_at=None).first()
        if row is None:
            return True
        outcome = "completed_with_exceptions" if left else "completed"
        steps = sum(step.outcome != "" for step in move.observed.steps)
        operation_conclude(row, outcome, now, steps=steps, flags=sorted(left))
    return True
