"""Writes that all operations share: their order in the log, changes of mind, and their end. Each has its event.

Called by `operation_requests`, by REST, and by the engine (`catalog.operations`).
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import rfc8785
from django.conf import settings
from django.db import transaction
from django.utils.module_loading import import_string

from audit.approvals import approval_withdraw
from audit.services import record
from catalog.draining import drain_end
from catalog.models import Node, Operation, OperationTarget, Plan
from catalog.operation_believing import disbelief
from catalog.operation_reach import kinds_of, reach_told
from kvconsole.infra import nudge
from kvconsole.infra.access import Principal, plane, system
from kvconsole.infra.rest import Problem, add_codes
from kvcore.leaf import APPROVAL
from tenants.erasing import owned
from tenants.services import epoch_reopen

add_codes({"operation-over": (409, "The operation has ended")})
ENGINE = system("operations")
"""Who does what follows by itself from what somebody asked for."""
KIND = "operation"
"""Of approvals."""
OPERATIONS = "operations"
"""Topic of wake-ups: something of an operation has changed."""


def order_record(operation: Operation, actor: Principal) -> None:
    """The order stands in the trail: from its checkpoint on, commands of this operation are signed. Fleet's plane."""
    nodes = Node.objects.exclude(enrolled_at=None).exclude(state="fenced").order_by("id").values_list("id", flat=True)
    reach = reach_told(operation)
    event = operation_record(
        "order.approved",
        operation,
        actor,
        {
            "operation": str(operation.id),
            "kinds": kinds_of(operation, fencing=reach["fencing"]),
            "nodes": [str(node) for node in nodes],
            "plan_hash": bytes(operation.plan_hash),
            "selector_hash": selector_hash(operation),
            "risk": operation.risk,
            "approval": str(operation.approval) if operation.approval else None,
            "not_after": operation.not_after,
            **reach,
        },
        APPROVAL if operation.approval else 0,
    )
    operation.order_event, operation.order_hash = event.id, bytes(event.body_hash)  # as its row has been told


def selector_hash(operation: Operation) -> bytes:
    """SHA-256 of the canonical selector."""
    return hashlib.sha256(rfc8785.dumps(operation.selector)).digest()


def order_ensure(operation: Operation, now: datetime) -> bool:
    """An operation that was asked for in a tenant's session has its order, if what it reaches is the tenant's own.

    Whatever a session of a tenant wrote is not believed: who reaches for what is another's, or for more than one person
    may ask for alone, is over at once. What was fenced stays fenced, and nothing is erased.
    """
    with transaction.atomic(using=plane()):
        locked = Operation.objects.select_for_update(no_key=True).filter(id=operation.id, order_event=None).first()
        if locked is None or locked.concluded_at or locked.stopped_at or not locked.fenced_at:
            return False
        digests = {
            bytes(d) for d in OperationTarget.objects.filter(operation=locked.id).values_list("digest", flat=True)
        }
        who = principal_of(locked)
        foreign = digests - owned(digests, locked.tenant_id) or (locked.needs_approval and not locked.approval)
        row = Plan.objects.filter(id=locked.plan).first() if locked.plan else None
        if code := "targets-foreign" if foreign else disbelief(locked, row, now):
            operation_conclude(locked, "failed", now, problem=code)
            return True
        order_record(locked, who)
        operation.order_event, operation.order_hash = locked.order_event, locked.order_hash
    return True


def operation_change(
    *, operation: Operation, change: str, actor: Principal, now: datetime, throttle: int | None = None
) -> Operation:
    """It is paused, resumed, stopped or throttled, under the next generation of its intent.

    What is stopped stays fenced: the namespaces are open under their new generation, what was fenced is reclaimed.

    Args:
        operation: the one.
        change: paused, resumed, stopped or throttled.
        actor: who.
        now: aware.
        throttle: bytes a second and node, None = none.

    Raises:
        Problem: operation-over.
    """
    with transaction.atomic(using=plane()):
        row = Operation.objects.select_for_update(no_key=True).filter(id=operation.id).first()
        if row is None:
            raise Problem("not-found")
        if row.concluded_at or row.stopped_at:
            raise Problem("operation-over")
        changes: dict[str, dict[str, Any]] = {
            "paused": {"paused": True},
            "resumed": {"paused": False},
            "stopped": {"stopped_at": now},
            "throttled": {"throttle": throttle},
        }
        wanted = changes[change]
        if all(getattr(row, name) == value for name, value in wanted.items()):
            return row
        for name, value in {**wanted, "generation": row.generation + 1, "due_at": now}.items():
            setattr(row, name, value)
        row.save(update_fields=[*wanted, "generation", "due_at"])
        if change == "stopped":
            approval_withdraw(kind=KIND, object_id=str(row.id), tenant_id=row.tenant_id, now=now)
            if row.drain_until is not None and row.fenced_at is None:
                epoch_reopen(epoch=str(row.selector.get("epoch", "")), operation=str(row.id), actor=actor)
            reached = OperationTarget.objects.filter(operation=row.id).count()
            operation_record("operation.stopped", row, actor, {"generation": row.generation, "namespaces": reached})
        else:
            body = {"change": change, "generation": row.generation, "bytes_per_second": row.throttle}
            operation_record("operation.changed", row, actor, body)
        operation_wake(row.id)
    return row


def operation_conclude(operation: Operation, outcome: str, now: datetime, *, problem: str = "", **told: Any) -> None:
    """It has ended, in the caller's transaction; on the fleet's plane."""
    operation.concluded_at, operation.outcome, operation.finalizers = now, outcome, []
    operation.problem, operation.observed_generation = problem, operation.generation
    operation.save(update_fields=["concluded_at", "outcome", "finalizers", "problem", "observed_generation"])
    body = {"state": outcome, "class": told.get("erasure"), "flags": list(told.get("flags", ())),
            "steps": told.get("steps", 0)}  # fmt: skip
    operation_record("operation.concluded", operation, ENGINE, body)
    if operation.kind == "drain":
        drain_end(operation, outcome, ENGINE, now)
    nudge.on_commit(OPERATIONS, using=plane())


def operation_wake(operation: UUID) -> None:
    """After commit a worker and this process's own look are woken. Without a broker nothing is lost."""
    nudge.on_commit(OPERATIONS, using=plane())
    sender = import_string(settings.TASK_SENDER)
    transaction.on_commit(lambda: sender("catalog.reconcile", str(operation)), using=plane(), robust=True)


def principal_of(operation: Operation) -> Principal:
    """Who asked for it, as the actor of what follows."""
    kept = operation.requester
    return Principal(
        kind=kept["kind"], id=kept["id"], roles=frozenset(kept["roles"]), user_id=kept["user_id"],
        holder=kept["holder"], tenant_id=UUID(kept["tenant"]) if kept["tenant"] else None,
        tenant_slug=kept["slug"],
    )  # fmt: skip


def kept(actor: Principal) -> dict[str, Any]:
    """Who asks, as it is kept for `principal_of`."""
    return {
        "kind": actor.kind, "id": actor.id, "roles": sorted(actor.roles), "user_id": actor.user_id,
        "holder": actor.holder, "tenant": str(actor.tenant_id or ""), "slug": actor.tenant_slug,
    }  # fmt: skip


def operation_record(
    event_type: str, operation: Operation, actor: Principal, body: Mapping[str, Any], flags: int = 0
) -> Any:
    """The event of something that became of the operation, in the transaction of that."""
    return record(
        event_type=event_type,
        outcome="success",
        actor=actor,
        tenant_id=operation.tenant_id,
        object_kind="operation",
        object_id=str(operation.id),
        body=body,
        flags=flags,
    )
