"""Writes of intent: plans are frozen, deletions asked for, fenced and ordered; who asked changes their mind.

The request is one transaction: the operation, the fences of its namespaces, its order in the log. Where a second person
must agree, that transaction is the one that finds the agreement. What follows is the engine's (`catalog.operations`).
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from django.db import connections, transaction

from audit.approvals import approval_request
from audit.standing import need_log
from catalog.models import Operation, Plan
from catalog.operation_believing import LEASES_WITHIN
from catalog.operation_orders import KIND, kept, operation_record, operation_wake, order_record, selector_hash
from catalog.operation_planners import input_of
from catalog.operation_plans import namespaces_of, selector_of, tenant_of
from catalog.operation_starting import (
    drift_of,
    operation_begin,
    operation_waits,
    targets_keep,
    targets_now,
    wait_of,
)
from catalog.rates import deletion_take
from catalog.windows import need_open
from kvconsole.infra.access import FLEET_PLANE, Principal, plane
from kvconsole.infra.rest import Problem, add_codes
from kvconsole.infra.sql import PLATFORM, uuid7
from kvcore import plans
from kvcore.plan_kinds import KINDS
from kvcore.risk import friction
from tenants.services import Fenced

add_codes(
    {
        "plan-expired": (410, "The plan is too old to be started"),
        "plan-started": (409, "The plan was started before"),
        "plan-mismatch": (422, "The hash is not that of the plan"),
        "plan-drifted": (409, "What the plan reaches has changed too much since"),
        "confirm-phrase-wrong": (422, "What was typed is not what the plan asks for"),
        "nothing-selected": (409, "Nothing is there that the selector means"),
        "plan-needed": (409, "It has to be planned and looked at first"),
        "reason-needed": (422, "It must be said why"),
    }
)
DECIDED_WITHIN = timedelta(hours=24)
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
    asked = input_of(kind=kind, selector=said, options=chosen, actor=actor, now=now)
    frozen = plans.plan_freeze(asked, now.timestamp())
    return Plan.objects.create(
        tenant_id=(actor.tenant_id or PLATFORM) if kind == "epoch" else tenant_of(namespaces_of(said), actor),
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
    pass_windows: bool = False,
    trigger: str = "user",
    about: str = "",
    actor: Principal,
    now: datetime,
) -> Operation:
    """The deletion is under way: fenced from commit on, or waiting for a second person, a window or a drain.

    Args:
        plan_id, plan_hash: the plan that was looked at.
        reason, confirm_phrase: as its risk asks.
        grace_seconds: between fence and erasing.
        throttle: bytes a second and node.
        pass_windows: it starts in a deny window too; a second person must agree to that.
        trigger: user, or what asked on its own.
        about: the matter of a rule, of which at most one operation is open.
        actor: who asks.
        now: aware.

    Raises:
        Problem: not-found, plan-expired, plan-mismatch, plan-started, plan-drifted, confirm-phrase-wrong,
            reason-needed, step-up-required, scope-missing, person-needed, deny-window, nothing-selected,
            deletions-quota-exceeded or audit-unavailable; nothing was fenced.
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
    pass_windows = pass_windows and asks.deny_window
    if trigger == "user":
        _check_friction(plan, reason, confirm_phrase, actor, now)
    elif asks.second_person:
        _need_person(plan, actor)
    if pass_windows:
        _check_passing(reason, actor)
    operation = Operation(
        id=uuid7(),
        tenant_id=row.tenant_id,
        kind=row.kind,
        trigger=trigger,
        about=about,
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
        needs_approval=asks.second_person or pass_windows,
        windows_passed=pass_windows,
        created_at=now,
        due_at=now,
    )
    with transaction.atomic(using=plane()):
        _take_plan(row)
        need_log()
        targets = targets_now(row, plan, actor, now)
        if not targets and row.kind != "epoch":  # an epoch is over for requests too, whether or not it was used
            raise Problem("nothing-selected")
        if row.tenant_id != PLATFORM and trigger == "user":
            deletion_take(row.tenant_id, now=now)
        reached = _begun(operation, targets, actor, now)
        operation.save(force_insert=True)
        targets_keep(operation, reached, targets)
        if operation.needs_approval and plane() == FLEET_PLANE:
            approval_ask(operation, plan, actor, now)
        _record_request(operation, reached, len(targets), actor)
        if reached and plane() == FLEET_PLANE:
            order_record(operation, actor)
        operation_wake(operation.id)
    return operation


def _take_plan(plan: Plan) -> None:
    """The plan is this transaction's to start: who starts it beside waits for its end. A plan has one operation.

    Raises:
        Problem: plan-started, which says by which operation, also by one that is over.
    """
    with connections[plane()].cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"plan {plan.id}",))
    before = Operation.objects.filter(tenant_id=plan.tenant_id, plan=plan.id)
    if started := before.values_list("id", flat=True).first():
        raise Problem("plan-started", f"By the operation {started}. To do it once more, make a new plan.")


def _begun(operation: Operation, targets: Sequence[plans.Target], actor: Principal, now: datetime) -> list[Fenced]:
    """What it reaches, if it starts with this request; none if a person, a window or a drain is waited for.

    Raises:
        Problem: deny-window: somebody asks for it now, and nothing of its risk starts now.
    """
    if actor.kind != "system" and not operation.windows_passed:
        need_open(operation.tenant_id, operation.risk, now)
    if operation.needs_approval:
        return []
    if wait := wait_of(operation, now):
        operation_waits(operation, wait, actor, now)
        return []
    return operation_begin(operation, targets, actor, now)


def _check_friction(plan: plans.Plan, reason: str, phrase: str, actor: Principal, now: datetime) -> None:
    asks = friction(plan.risk)
    if asks.second_person:
        _need_person(plan, actor)
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
    return drift_of(row, plans.plan_from_json(row.body), actor, now)[0]


def _need_person(plan: plans.Plan, actor: Principal) -> None:
    if actor.kind != "user":
        raise Problem("person-needed", f"Its risk is {plan.risk}: only a person asks for it, and a second one agrees.")


def _check_passing(reason: str, actor: Principal) -> None:
    if actor.kind != "user":
        raise Problem("person-needed", "Only a person asks for a start in a deny window, and a second one agrees.")
    if not reason.strip():
        raise Problem("reason-needed")


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
        "pass_windows": operation.windows_passed,
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


def _options(said: Mapping[str, Any]) -> plans.Options:
    try:
        return msgspec.convert(dict(said), plans.Options)
    except msgspec.ValidationError as e:
        errors = [{"pointer": "/options", "code": "invalid", "detail": str(e)[:200]}]
        raise Problem("validation-failed", errors=errors) from e
