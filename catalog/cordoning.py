"""Writes of intent: a node takes nothing new, or takes what comes again. Nothing on it is touched. Called by REST.

It is true with its commit; so the operation that says who wanted it and why has ended when it is answered.
"""

from datetime import datetime
from uuid import UUID

from django.db import transaction

from audit.standing import need_log
from catalog.draining import CORDONED, DRAINING, READY, node_want
from catalog.models import Node, Operation
from catalog.operation_orders import kept, operation_conclude, operation_record, selector_hash
from kvconsole.infra.access import Principal, plane
from kvconsole.infra.rest import Problem
from kvconsole.infra.sql import PLATFORM, uuid7


def cordon_request(*, node: UUID, cordoned: bool, reason: str = "", actor: Principal, now: datetime) -> Operation:
    """From commit on nothing new is sent to the node; or, without `cordoned`, what comes is sent there again.

    Raises:
        Problem: not-found, node-draining (a drain is stopped, not undone), node-fenced or audit-unavailable.
    """
    operation = Operation(
        id=uuid7(), tenant_id=PLATFORM, kind="cordon" if cordoned else "uncordon", plan_hash=b"", risk="R0",
        requested_by=actor.subject, requester=kept(actor), reason=reason, deadline=now, not_after=now, created_at=now,
        fenced_at=now, due_at=now,
    )  # fmt: skip
    with transaction.atomic(using=plane()):
        need_log()
        row = Node.objects.select_for_update().filter(id=node).first()
        if row is None:
            raise Problem("not-found")
        if row.wanted == DRAINING and not cordoned:
            raise Problem("node-draining", "Stop its drain instead.")
        operation.selector = {"node": row.name}
        operation.plan_hash = selector_hash(operation)
        operation.save(force_insert=True)
        body = {
            "kind": operation.kind, "trigger": operation.trigger, "plan_hash": bytes(operation.plan_hash),
            "selector_hash": selector_hash(operation), "risk": operation.risk, "namespaces": 0, "fence_seq": 0,
            "reason": reason, "approval": None, "grace_seconds": 0.0,
        }  # fmt: skip
        operation_record("operation.requested", operation, actor, body)
        node_want(node=node, wanted=CORDONED if cordoned else READY, reason=operation.kind, actor=actor, now=now)
        operation_conclude(operation, "completed", now)
    return operation
