"""Decides what happens when something comes back of which a certificate says that it is gone.

It is there, whatever was signed, and behind the fence as ever: it was never routable. An operation of its own erases it
again, and its certificate names the one that it supplements. Called by tasks and by the web process's own look.
"""

from datetime import datetime, timedelta
from uuid import UUID

from django.db import connections, transaction

from audit.standing import hindrance
from catalog.models import Operation, OperationTarget
from catalog.operation_believing import LEASES_WITHIN
from catalog.operation_orders import (
    operation_record,
    operation_wake,
    order_record,
    principal_of,
    selector_hash,
)
from catalog.operation_requests import ORDER_DAYS
from kvconsole.infra.access import plane
from kvconsole.infra.sql import named, uuid7
from kvcore.plan_steps import KINDS

SETTLED = timedelta(seconds=2)
"""After which what a certificate says must be what the catalog believes."""


def supplements_due(*, now: datetime) -> list[UUID]:
    """Operations that were opened now, one for each operation whose certificate something contradicts.

    None while the log is not signed in time: what they destroy waits behind its fence.
    """
    if hindrance():
        return []
    with connections[plane()].cursor() as cursor:
        cursor.execute(named("catalog", "operations.sql")["came_back"], (now - SETTLED,))
        back: dict[UUID, list[bytes]] = {}
        for digest, operation in cursor.fetchall():
            back.setdefault(operation, []).append(bytes(digest))
    return [made for operation, digests in back.items() if (made := _supplement(operation, digests, now))]


def _supplement(before: UUID, digests: list[bytes], now: datetime) -> UUID | None:
    """None: somebody else was first."""
    with transaction.atomic(using=plane()):
        first = Operation.objects.select_for_update(no_key=True).filter(id=before).first()
        open_ = Operation.objects.filter(concluded_at=None).values("id")
        if first is None or OperationTarget.objects.filter(operation__in=open_, digest__in=digests).exists():
            return None
        targets = list(OperationTarget.objects.filter(operation=before, digest__in=digests))
        made = Operation(
            id=uuid7(), tenant_id=first.tenant_id, kind="deletion", trigger=first.trigger, selector=first.selector,
            options={"supplements": str(before)}, plan=None, plan_hash=bytes(first.plan_hash), risk="R0",
            requested_by=first.requested_by, requester=first.requester, reason=first.reason,
            finalizers=list(KINDS["deletion"].finalizers), throttle=first.throttle, deadline=now + LEASES_WITHIN,
            not_after=now + timedelta(days=ORDER_DAYS), fence_seq=max(t.fence_seq for t in targets), created_at=now,
            fenced_at=now, due_at=now,
        )  # fmt: skip
        made.save(force_insert=True)
        OperationTarget.objects.bulk_create(
            OperationTarget(
                operation=made.id, tenant_id=t.tenant_id, namespace=t.namespace, digest=bytes(t.digest),
                min_gen=t.min_gen, fence_seq=t.fence_seq,
            )
            for t in targets
        )  # fmt: skip
        who = principal_of(first)
        body = {
            "kind": made.kind, "trigger": made.trigger, "plan_hash": bytes(made.plan_hash), "approval": None,
            "selector_hash": selector_hash(made), "risk": made.risk, "namespaces": len(targets),
            "fence_seq": made.fence_seq, "reason": made.reason, "grace_seconds": 0.0,
        }  # fmt: skip
        operation_record("operation.requested", made, who, body)
        order_record(made, who)
        operation_wake(made.id)
    return made.id
