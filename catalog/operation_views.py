"""The one shape in which an operation is shown: state, conditions and progress, computed from what is observed.

Called by REST, pages and the live topic. Which operations somebody sees is decided by the plane; what is known of one
is read on the fleet's connection.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
from django.db.models import QuerySet

from audit.services import portable
from catalog.models import Operation, Plan, Step
from catalog.operation_veil import all_veiled, veiled
from catalog.operations.certificate import grades
from catalog.operations.moving import moving_of
from catalog.operations.observing import Seen, observe, observe_all
from kvconsole.infra.rest import CODES
from kvcore import move_steps, plans
from kvcore.erasure import Graded
from kvcore.plan_kinds import KINDS
from kvcore.plan_state import CellProgress, conditions, operation_state, progress
from kvcore.plan_steps import OwnerSeen
from kvcore.risk import friction

PLAIN = ("id", "kind", "trigger", "paused", "created_at", "requested_by", "selector", "generation")


def operations(open_: bool = False, outcome: Any = "") -> QuerySet[Operation]:
    """Those that the current plane shows: all, open ones, or those that ended so. Index: of the key."""
    found = Operation.objects.filter(concluded_at=None) if open_ else Operation.objects.all()
    return found.filter(outcome=outcome) if outcome != "" else found


def operation_view(operation: Operation, *, now: datetime, whole: bool = True) -> dict[str, Any]:
    """The operation as it is shown; `whole`: with its cells and conditions also when it has ended."""
    if operation.concluded_at is not None and not whole:
        return portable(_plain(operation) | _ended(operation))  # type: ignore[no-any-return]
    return portable(veiled(_plain(operation) | _observed(observe(operation, now=now))))  # type: ignore[no-any-return]


def operations_shown(operations: Sequence[Operation], *, now: datetime) -> list[dict[str, Any]]:
    """The same of several, in their order: without classes, and without cells of what has ended. Reads are shared."""
    open_ = [one for one in operations if one.concluded_at is None]
    seen = dict(zip((one.id for one in open_), observe_all(open_, now=now), strict=True))
    told = [
        _plain(one) | (_observed(seen[one.id], graded=False) if one.id in seen else _ended(one)) for one in operations
    ]
    return [portable(one) for one in all_veiled(told)]


def _plain(operation: Operation) -> dict[str, Any]:
    said = {name: getattr(operation, name) for name in PLAIN}
    problem = operation.problem
    return {
        **said,
        "done": operation.concluded_at is not None,
        "risk": operation.risk,
        "reason": operation.reason,
        "plan_id": operation.plan,
        "plan_hash": bytes(operation.plan_hash),
        "approval": operation.approval,
        "observed_generation": operation.observed_generation,
        "throttle": operation.throttle,
        "drain_until": operation.drain_until,
        "grace_until": operation.grace_until,
        "deadline": operation.deadline,
        "t_request": operation.created_at,
        "t_fence": operation.fenced_at if KINDS[operation.kind].fences else None,
        "t_erase": operation.erased_at,
        "t_verify": operation.verified_at,
        "t_unroutable": operation.routed_at,
        "concluded_at": operation.concluded_at,
        "certificate": operation.certificate,
        "finalizers": operation.finalizers,
        "error": {"code": problem, "title": CODES[problem][1] if problem in CODES else problem} if problem else None,
    }


def _ended(operation: Operation) -> dict[str, Any]:
    percent = _percent(operation, None, answered=operation.erased_at is not None)
    return {"state": operation.outcome, "conditions": [], "progress": {"percent": percent, "cells": []}}


def _percent(operation: Operation, far: int | None, *, answered: bool) -> int | None:
    """How far it is; None = unknown: what nobody answered is not done, and where nobody is asked there is no part."""
    certified = KINDS[operation.kind].certified
    return 100 if operation.outcome.startswith("completed") and (answered or not certified) else far


def _moved(seen: Seen) -> dict[str, Any]:
    """A move: its own conditions, and each route as a cell at its source."""
    move, outcome = moving_of(seen), seen.operation.outcome
    found = move_steps.conditions(move.intent, move.observed, outcome.startswith("completed"))
    far = move_steps.progress(move.intent, move.observed)
    return {
        "state": outcome or str(move_steps.state(found)),
        "conditions": [msgspec.to_builtins(one) for one in found],
        "progress": {
            "percent": 100 if outcome.startswith("completed") else far.percent,
            "cells": [{**msgspec.to_builtins(cell), "flags": []} for cell in far.cells],
        },
    }


def _observed(seen: Seen, *, graded: bool = True) -> dict[str, Any]:
    if seen.operation.kind in move_steps.KINDS:
        return _moved(seen)
    found = conditions(seen.intent, seen.observed)
    unroutable = any(one.type == "Unroutable" and one.status == "true" for one in found)
    reached: dict[int, Graded] = {}
    if graded and seen.operation.fenced_at is not None:
        reached = grades(seen, unroutable=unroutable)
        known = [_graded(one, reached.get(one.owner)) for one in seen.observed.owners]
        seen = seen._replace(observed=msgspec.structs.replace(seen.observed, owners=tuple(known)))
    far = progress(seen.intent, seen.observed)
    outcome = seen.operation.outcome
    return {
        "state": outcome or str(operation_state(found)),
        "conditions": [
            {**msgspec.to_builtins(one), "since": datetime.fromtimestamp(one.since, UTC) if one.since else None}
            for one in found
        ],
        "progress": {
            "percent": _percent(
                seen.operation, far.percent if far.cells else None, answered=seen.operation.erased_at is not None
            ),
            "cells": [
                {**msgspec.to_builtins(cell), "flags": _flags(cell, reached.get(cell.owner))} for cell in far.cells
            ],
        },
    }


def _flags(cell: CellProgress, reached: Graded | None) -> list[str]:
    """What is said beside the class so far; a node that answers and was not asked to look yet is not unreachable."""
    told = reached.flags if reached else ()
    return [flag for flag in told if flag != "NODE_UNREACHABLE" or cell.state == "silent"]


def _graded(owner: OwnerSeen, reached: Graded | None) -> OwnerSeen:
    return msgspec.structs.replace(owner, cls=reached.cls if reached else None)


def plan_view(row: Plan) -> dict[str, Any]:
    """A plan as it is shown, with what its risk asks for."""
    plan = plans.plan_from_json(row.body)
    return portable(veiled(_plan(row, plan)))  # type: ignore[no-any-return]


def _plan(row: Plan, plan: plans.Plan) -> dict[str, Any]:
    return {
        "id": row.id,
        "kind": row.kind,
        "plan_hash": plan.plan_hash,
        "selector": row.selector,
        "options": row.options,
        "namespaces": len({target.ns for target in plan.targets}),
        "left_out": [_left_out(target) for target in plan.left_out],
        "tenants": list(plan.tenants),
        "blocks": plan.blocks,
        "bytes": plan.bytes,
        "cells": [msgspec.to_builtins(cell) for cell in plan.cells],
        "blockers": [msgspec.to_builtins(one) for one in plan.blockers],
        "unreachable": list(plan.unreachable),
        "sample": list(plan.sample),
        "lost_hits": plan.lost_hits,
        "risk": str(plan.risk),
        "reasons": list(plan.reasons),
        "friction": msgspec.to_builtins(friction(plan.risk)),
        "confirm_phrase": plans.confirm_phrase(plan),
        "created_at": row.created_at,
        "expires_at": row.expires_at,
    }


def _left_out(target: plans.Target) -> dict[str, Any]:
    return {
        "namespace": target.ns,
        "share_group": target.share_group,
        "tenants": [target.tenant, *target.shared_with],
        "blocks": sum(cell.blocks for cell in target.cells),
        "bytes": sum(cell.bytes for cell in target.cells),
    }


def receipt_view(step: UUID) -> dict[str, Any] | None:
    """The receipt of a step as the node signed it, where the current plane shows it."""
    row = Step.objects.filter(id=step, receipt__isnull=False).first()
    if row is None:
        return None
    return portable(  # type: ignore[no-any-return]
        {
            "id": row.id,
            "operation": row.operation,
            "node": row.node,
            "source": row.source,
            "tier": row.tier,
            "kind": row.kind,
            "state": row.state,
            "code": row.code,
            "hash": row.receipt_hash,
            "done_at": row.done_at,
            "receipt": row.receipt,
        }
    )
