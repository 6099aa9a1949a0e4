"""Reads everything that is known of an operation: what is intended, where its blocks can be, what was answered.

Any process may ask at any time; nothing is written here. Rows of tenants are read on the fleet's connection, as who may
see the operation was decided before. Called by the engine and by whoever shows an operation.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from catalog import operation_owners as owners
from catalog.models import Operation, OperationTarget, Step
from catalog.operation_plans import finer
from catalog.operation_reach import target_of, targets_of
from catalog.operation_starting import WAITS
from catalog.operations.shared import Shared
from kvconsole.infra.access import FLEET_PLANE
from kvcore.plan_kinds import KINDS
from kvcore.plan_steps import Intent, Observed, OwnerSeen, StepSeen
from kvcore.plans import Selector

ORDER_GENERATION = 1
"""Steps belong to the order, which is given once: a change of mind makes no new ones of what was done."""
ENDED = frozenset({"done", "partial", "failed", "refused"})
COLUMNS = (
    *("id", "operation", "kind", "owner", "boot", "attempt", "state", "code", "done_at", "at_boot", "at_stream"),
    *("at_seq", "total_blocks", "total_bytes", "done_bytes", "done_blocks", "args", "told"),
)
"""Of steps; receipts are not read."""


class Seen(NamedTuple):
    """All that is known of one operation."""

    operation: Operation
    intent: Intent
    observed: Observed
    places: dict[int, owners.Place]
    targets: list[OperationTarget]
    rows: list[Any]
    """Its steps, `COLUMNS` of each, in the order of their attempts."""


def observe(operation: Operation, *, now: datetime) -> Seen:
    """The operation as it stands."""
    return observe_all([operation], now=now)[0]


def observe_all(operations: Sequence[Operation], *, now: datetime) -> list[Seen]:
    """Operations as they stand, in their order; what is the same for all of them is read once."""
    ids = [operation.id for operation in operations]
    targets = _by_operation(targets_of(ids))
    rows = Step.objects.using(FLEET_PLANE).filter(operation__in=ids).order_by("attempt")
    steps = _by_operation(rows.values_list(*COLUMNS, named=True))
    shared = Shared(operations, targets, now)
    return [
        Seen(
            one,
            _intent(one, targets.get(one.id, []), shared),
            _observed(one, targets.get(one.id, []), _reached(one, shared.places), steps.get(one.id, []), shared),
            shared.places,
            targets.get(one.id, []),
            steps.get(one.id, []),
        )
        for one in operations
    ]


def _reached(operation: Operation, places: dict[int, owners.Place]) -> dict[int, owners.Place]:
    """Those of the places that the operation asks: all, or those that it was started for."""
    if KINDS[operation.kind].fences:
        return places
    return {owner: places[owner] for owner in operation.options.get("places", ()) if owner in places}


def _by_operation(rows: Iterable[Any]) -> dict[UUID, list[Any]]:
    found: dict[UUID, list[Any]] = {}
    for row in rows:
        found.setdefault(row.operation, []).append(row)
    return found


def _intent(operation: Operation, targets: Sequence[OperationTarget], shared: Shared) -> Intent:
    options = operation.options
    return Intent(
        operation=str(operation.id),
        kind=operation.kind,
        generation=ORDER_GENERATION,
        targets=tuple(target_of(target) for target in targets),
        approved=operation.fenced_at is not None or not operation.needs_approval or operation.problem in WAITS,
        failed=operation.problem if operation.outcome == "failed" else "",
        denied=operation.outcome == "denied",
        expired=operation.outcome == "expired",
        paused=operation.paused,
        held=operation.concluded_at is None and any(t.namespace in shared.on_hold for t in targets),
        stopped=operation.stopped_at is not None or operation.outcome == "stopped",
        waits=operation.problem if operation.problem in WAITS else "",
        finer=finer(msgspec.convert(operation.selector, Selector)) and options.get("collateral") == "none",
        crypto_erase=bool(options.get("crypto_erase")),
        grace_until=operation.grace_until.timestamp() if operation.grace_until else 0.0,
        deadline=operation.deadline.timestamp() if KINDS[operation.kind].fences else 0.0,
        rate_bytes_per_s=operation.throttle,
    )


def _observed(
    operation: Operation,
    targets: Sequence[OperationTarget],
    places: dict[int, owners.Place],
    rows: Sequence[Any],
    shared: Shared,
) -> Observed:
    whole = [t for t in targets if not t.keys_hash]  # what is finer raises no fence of a generation
    known = shared.known(operation, off=any(not place.reachable for place in places.values()))
    planned = operation.fenced_at is None  # then what is shown is what the plan saw
    keyed = _keyed(operation, rows, shared) if planned or len(whole) < len(targets) else {}
    at_first = _at_first(rows)
    return Observed(
        now=shared.now.timestamp(),
        owners=tuple(
            _owner(
                place,
                {} if planned and keyed else known.held,
                shared.acknowledged.get(str(place.node), -1) >= operation.fence_seq,
                at_first,
                _at(known.leases.get(str(place.node))),
                keyed.get(place.owner),
            )
            for place in places.values()
        ),
        steps=tuple(step_seen(row) for row in rows),
        fenced_at=_at(operation.fenced_at),
        order_logged=operation.order_event in shared.signed,
        probes=len(whole) == len(targets),
        routers_waiting=shared.behind(operation.fence_seq) if whole else 0,
        gateways_waiting=known.keys.gateways,
        lease_ends_at=_at(known.keys.until),
        keys_destroyed=any(row.kind == "keys" and row.state == "done" for row in rows),
        requested_at=_at(operation.created_at),
        concluded_at=_at(operation.concluded_at) if operation.outcome.startswith("completed") else None,
        exceptions=("exceptions",) if operation.outcome == "completed_with_exceptions" else (),
    )


def _keyed(operation: Operation, rows: Sequence[Any], shared: Shared) -> dict[int, owners.Held]:
    """Place → what the plan saw there of the keys, until the writer has dropped what receipts cover.

    What is there now of some keys would cost a look at each of them, and what was made anew since is none of it.
    """
    if operation.plan is None:
        return {}
    body = shared.plans.get(operation.plan, {})
    dropped = {row.owner for row in rows if row.kind == "purge" and row.state == "done"}
    cells = [cell for cell in body.get("cells", ()) if cell["owner"] not in dropped]
    return {cell["owner"]: owners.Held(cell["blocks"], cell["bytes"]) for cell in cells}


def _at_first(rows: Sequence[Any]) -> dict[int, int]:
    """Place → bytes that were believed there when its first step was made."""
    found: dict[int, int] = {}
    for row in rows:
        found[row.owner] = max(found.get(row.owner, 0), row.total_bytes)
    return found


def _owner(
    place: owners.Place,
    believed: Mapping[bytes, Mapping[tuple[int, str], owners.Held]],
    fenced: bool,
    at_first: dict[int, int],
    lease_end: float | None,
    keyed: owners.Held | None,
) -> OwnerSeen:
    here = [by[place.source_id, place.tier] for by in believed.values() if (place.source_id, place.tier) in by]
    here += [keyed] if keyed else []
    return OwnerSeen(
        owner=place.owner,
        node=place.node_name,
        source=place.source,
        tier=place.tier,
        dp_rank=place.dp_rank,
        host=place.host,
        boot=place.boot,
        stream=place.stream,
        seq=place.seq,
        reachable=place.reachable,
        fenced=fenced,
        gap=place.gap,
        encrypted=place.encrypted,
        lease_end=lease_end,
        retired=place.retired,
        blocks=sum(one.blocks for one in here),
        bytes=sum(one.bytes for one in here),
        total_bytes=at_first.get(place.owner, 0),
        last_heard=place.last_heard.timestamp() if place.last_heard else 0.0,
    )


def step_seen(row: Any) -> StepSeen:
    """The step, a row of `COLUMNS`, as the rules see it."""
    left = row.told.get("remaining") or {}
    return StepSeen(
        step=str(row.id),
        kind=row.kind,
        owner=row.owner,
        boot=row.boot,
        attempt=row.attempt,
        outcome=row.state if row.state in ENDED else "",
        at=row.done_at.timestamp() if row.done_at else 0.0,
        position_boot=row.at_boot,
        position_stream=row.at_stream,
        position_seq=row.at_seq,
        found=int(row.told.get("found_blocks") or 0) if row.kind == "verify" else 0,
        left=int(left.get("blocks") or 0),
        leased_until=float(left["leased_until"]) if left.get("leased_until") else None,
        blocks=row.done_blocks,
        bytes=row.done_bytes,
        bad=row.code.startswith("contradicted"),
    )


def operation_of(operation: UUID) -> Operation | None:
    """The operation of this id, whoever's it is."""
    return Operation.objects.using(FLEET_PLANE).filter(id=operation).first()


def _at(time: datetime | None) -> float | None:
    return time.timestamp() if time else None
