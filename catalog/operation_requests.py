"""Writes of intent: plans are frozen, deletions asked for, fenced and ordered; who asked changes their mind.

The request is one transaction: the operation, the fences of its namespaces, its order in the log. Where a second person
must agree, that transaction is the one that finds the agreement. What follows is the engine's (`catalog.operations`).
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from django.db import transaction

from audit.approvals import approval_of, approval_request
from audit.standing import hindrance, need_log
from catalog.models import Operation, OperationTarget, Plan
from catalog.operation_orders import (
    KIND,
    kept,
    operation_conclude,
    operation_record,
    operation_wake,
    order_record,
    principal_of,
    selector_hash,
)
from catalog.operation_plans import namespaces_of, plan_input, selector_of, tenant_of
from catalog.rates import deletion_take
from kvconsole.infra.access import FLEET_PLANE, Principal, plane
from kvconsole.infra.rest import Problem, add_codes
from kvconsole.infra.sql import PLATFORM, uuid7
from kvcore import plans
from kvcore.leaf import APPROVAL
from kvcore.plan_steps import KINDS
from kvcore.risk import friction
from tenants.services import Fenced, epoch_close, namespaces_fence

add_codes(
    {
        "plan-expired": (410, "The plan is too old to be started"),
        "plan-mismatch": (422, "The hash is not that of the plan"),
        "plan-drifted": (409, "What the plan reaches has changed too much since"),
        "confirm-phrase-wrong": (422, "What was typed is not what the plan asks for"),
        "nothing-selected": (409, "Nothing is there that the selector means"),
        "plan-needed": (409, "It has to be planned and looked at first"),
        "reason-needed": (422, "It must be said why"),
    }
)
DECIDED_WITHIN = timedelta(hours=24)
LEASES_WITHIN = timedelta(seconds=60)
"""How long blocks in use are waited for."""
ORDER_DAYS = 60
"""How long commands may be signed for one order; within the period of an actor's name in the log."""
DESTROY = "deletions:destroy"
"""The scope that a token must name from R2 on."""
MOST_GRACE, MOST_THROTTLE = 30 * 86_400, 2**50


def plan_create(
    *, selector: Mapping[str, Any], options: Mapping[str, Any], actor: Principal, now: datetime, kind: str = "deletion"
) -> Plan:
    """The frozen plan of what the selector reaches now; it may be started for 15 minutes.

    Raises:
        Problem: as `selector_of` and `plan_input`.
    """
    said, chosen = selector_of(dict(selector), actor), _options(options)
    asked = plan_input(kind=kind, selector=said, options=chosen, actor=actor, now=now)
    frozen = plans.plan_freeze(asked, now.timestamp())
    return Plan.objects.create(
        tenant_id=tenant_of(namespaces_of(said), actor),
        kind=kind,
        requested_by=actor.subject,
        selector=msgspec.to_builtins(said),
        options=msgspec.to_builtins(chosen),
        body=plans.plan_to_json(frozen),
        plan_hash=bytes.fromhex(frozen.plan_hash),
        risk=frozen.risk,
        created_at=now,
        expires_at=datetime.fromtimestamp(frozen.expires_at, UTC),
    )


def deletion_request(
    *,
    plan_id: UUID,
    plan_hash: str,
    reason: str = "",
    confirm_phrase: str = "",
    grace_seconds: float = 0.0,
    throttle: int | None = None,
    trigger: str = "user",
    actor: Principal,
    now: datetime,
) -> Operation:
    """The deletion is under way: fenced from commit on, or waiting for a second person.

    Args:
        plan_id, plan_hash: the plan that was looked at.
        reason, confirm_phrase: as its risk asks.
        grace_seconds: between fence and erasing.
        throttle: bytes a second and node.
        trigger: user, or what asked on its own.
        actor: who asks.
        now: aware.

    Raises:
        Problem: not-found, plan-expired, plan-mismatch, plan-drifted, confirm-phrase-wrong, reason-needed,
            step-up-required, scope-missing, person-needed, nothing-selected, deletions-quota-exceeded or
            audit-unavailable; nothing was fenced.
    """
    row = Plan.objects.filter(id=plan_id).first()
    if row is None:
        raise Problem("not-found")
    if row.expires_at <= now:
        raise Problem("plan-expired")
    if bytes(row.plan_hash).hex() != plan_hash:
        raise Problem("plan-mismatch")
    plan = plans.plan_from_json(row.body)
    asks = friction(plan.risk)
    if trigger == "user":
        _check_friction(plan, reason, confirm_phrase, actor, now)
    operation = Operation(
        id=uuid7(),
        tenant_id=row.tenant_id,
        kind=row.kind,
        trigger=trigger,
        selector=row.selector,
        options=row.options,
        plan=row.id,
        plan_hash=bytes(row.plan_hash),
        risk=plan.risk,
        requested_by=actor.subject,
        requester=kept(actor),
        reason=reason,
        finalizers=list(KINDS[row.kind].finalizers),
        throttle=throttle,
        deadline=now + timedelta(seconds=grace_seconds) + LEASES_WITHIN,
        grace_until=now + timedelta(seconds=grace_seconds) if grace_seconds else None,
        not_after=now + timedelta(days=ORDER_DAYS),
        needs_approval=asks.second_person,
        created_at=now,
        due_at=now,
    )
    with transaction.atomic(using=plane()):
        need_log()
        targets = _targets_now(row, plan, actor, now)
        if not targets:
            raise Problem("nothing-selected")
        if row.tenant_id != PLATFORM and trigger == "user":
            deletion_take(row.tenant_id, now=now)
        fenced = [] if operation.needs_approval else _fence(operation, targets, actor, now)
        operation.save(force_insert=True)
        _keep_targets(operation, fenced)
        if operation.needs_approval and plane() == FLEET_PLANE:
            approval_ask(operation, plan, actor, now)
        _record_request(operation, fenced, len(targets), actor)
        if fenced and plane() == FLEET_PLANE:
            order_record(operation, actor)
        operation_wake(operation.id)
    return operation


def plan_of(operation: Operation) -> Plan | None:
    """The plan that the operation carries out, None where there is none."""
    return Plan.objects.filter(id=operation.plan).first() if operation.plan else None


def _check_friction(plan: plans.Plan, reason: str, phrase: str, actor: Principal, now: datetime) -> None:
    asks = friction(plan.risk)
    if asks.second_person and actor.kind != "user":
        raise Problem("person-needed", f"Its risk is {plan.risk}: only a person asks for it, and a second one agrees.")
    if asks.mfa and (code := actor.unproven(DESTROY, now.timestamp())):
        raise Problem(code, f"The token must have the scope {DESTROY}." if code == "scope-missing" else "")
    if asks.reason and not reason.strip():
        raise Problem("reason-needed")
    if asks.phrase and not plans.confirmed(plan, phrase):
        raise Problem("confirm-phrase-wrong", f"Type: {plans.confirm_phrase(plan)}")


def plan_drift(row: Plan, *, actor: Principal, now: datetime) -> plans.Drift:
    """What is different now from what the plan froze; nothing is written.

    Raises:
        Problem: as `plan_input`, where what it named is gone by name.
    """
    return _drifted(row, plans.plan_from_json(row.body), actor, now)[0]


def _drifted(row: Plan, plan: plans.Plan, actor: Principal, now: datetime) -> tuple[plans.Drift, plans.PlanInput]:
    asked = plan_input(
        kind=row.kind, selector=plan.selector, options=plan.options, actor=_asker(row.requested_by, actor), now=now
    )
    return plans.drifted(plan, asked), asked


def _targets_now(row: Plan, plan: plans.Plan, actor: Principal, now: datetime) -> tuple[plans.Target, ...]:
    """The targets as they are now: what came since goes too, unless it is too much.

    Raises:
        Problem: plan-drifted.
    """
    drift, asked = _drifted(row, plan, actor, now)
    if drift.replan:
        detail = f"{', '.join(drift.reasons)}: {drift.bytes_before} bytes then, {drift.bytes_now} now. Make a new plan."
        raise Problem("plan-drifted", detail)
    return plans.plan_freeze(asked, now.timestamp()).targets


def _asker(subject: str, actor: Principal) -> Principal:
    """Who made the plan, as far as a plan needs it: by whom, and of which tenant."""
    kind, _, id_ = subject.partition(":")
    return Principal(kind=kind, id=id_, tenant_id=actor.tenant_id, tenant_slug=actor.tenant_slug)


def _fence(
    operation: Operation, targets: Sequence[plans.Target], actor: Principal, now: datetime
) -> list[Fenced]:  # fmt: skip
    """Everything of the targets is fenced for good; their keys are of the next generation."""
    ids = [UUID(target.namespace) for target in targets if target.namespace]
    retiring = operation.kind == "epoch"
    if retiring:
        epoch_close(epoch=str(operation.selector.get("epoch", "")), policy="immediate", actor=actor)
    fenced = namespaces_fence(namespaces=ids, reason=operation.kind, actor=actor, now=now, close=retiring)
    operation.fenced_at = now
    operation.fence_seq = max((f.fence_seq for f in fenced), default=0)
    return fenced


def _keep_targets(operation: Operation, fenced: Sequence[Fenced]) -> None:
    OperationTarget.objects.bulk_create(
        OperationTarget(
            operation=operation.id,
            tenant_id=operation.tenant_id,
            namespace=one.namespace,
            digest=one.digest,
            min_gen=one.min_gen,
            fence_seq=one.fence_seq,
        )
        for one in fenced
    )


def approval_ask(operation: Operation, plan: plans.Plan, actor: Principal, now: datetime) -> None:
    """It waits for a second person; in the caller's transaction, with its event. On the fleet's plane."""
    what = {
        "kind": operation.kind,
        "selector": operation.selector,
        "reason": operation.reason,
        "blocks": plan.blocks,
        "bytes": plan.bytes,
        "tenants": list(plan.tenants),
        "reasons": list(plan.reasons),
        "plan_hash": plan.plan_hash,
    }
    approval = approval_request(
        kind=KIND,
        object_id=str(operation.id),
        tenant_id=operation.tenant_id,
        what=what,
        risk=operation.risk,
        actor=actor,
        expires_at=now + DECIDED_WITHIN,
        now=now,
    )
    operation.approval = approval.id
    operation.save(update_fields=["approval"])


def _record_request(operation: Operation, fenced: Sequence[Fenced], namespaces: int, actor: Principal) -> None:
    grace = (operation.grace_until - operation.created_at).total_seconds() if operation.grace_until else 0.0
    operation_record(
        "operation.requested",
        operation,
        actor,
        {
            "kind": operation.kind,
            "trigger": operation.trigger,
            "plan_hash": bytes(operation.plan_hash),
            "selector_hash": selector_hash(operation),
            "risk": operation.risk,
            "namespaces": len(fenced) or namespaces,
            "fence_seq": operation.fence_seq,
            "reason": operation.reason,
            "approval": str(operation.approval) if operation.approval else None,
            "grace_seconds": grace,
        },
    )


def decision_apply(*, operation_id: UUID, now: datetime) -> bool:
    """What was decided on the operation is in force: fenced and ordered, or over. Whether anything changed.

    What was agreed to waits while the log is not signed in time.
    """
    with transaction.atomic(using=plane()):
        operation = Operation.objects.select_for_update(no_key=True).filter(id=operation_id).first()
        if operation is None or operation.concluded_at or operation.fenced_at or not operation.needs_approval:
            return False
        approval = approval_of(KIND, str(operation.id), tenant_id=operation.tenant_id)
        if approval is None or (approval.state == "open" and approval.expires_at > now):
            return False
        who, agreed = principal_of(operation), approval.state == "approved"
        if agreed and (approval.decided_by in ("", operation.requested_by) or hindrance()):
            return False
        if not agreed or operation.stopped_at:
            outcome = "denied" if approval.state == "denied" else "stopped" if operation.stopped_at else "expired"
            operation_conclude(operation, outcome, now)
            return True
        try:
            return _start(operation, approval.id, who, now)
        except Problem as problem:
            operation_conclude(operation, "expired", now, problem=problem.code)
            return True


def _start(operation: Operation, approval: UUID, who: Principal, now: datetime) -> bool:
    row = plan_of(operation)
    if row is None:
        raise Problem("plan-expired")
    targets = _targets_now(row, plans.plan_from_json(row.body), who, now)
    fenced = _fence(operation, targets, who, now)
    operation.approval, operation.due_at = approval, now
    operation.deadline = max(operation.deadline, now + LEASES_WITHIN)
    operation.save(update_fields=["approval", "fenced_at", "fence_seq", "due_at", "deadline"])
    _keep_targets(operation, fenced)
    body = {"namespaces": len(fenced), "fence_seq": operation.fence_seq, "approval": str(approval)}
    operation_record("operation.fenced", operation, who, body, APPROVAL)
    order_record(operation, who)
    operation_wake(operation.id)
    return True


def _options(said: Mapping[str, Any]) -> plans.Options:
    try:
        return msgspec.convert(dict(said), plans.Options)
    except msgspec.ValidationError as e:
        errors = [{"pointer": "/options", "code": "invalid", "detail": str(e)[:200]}]
        raise Problem("validation-failed", errors=errors) from e
