"""Decides when an operation starts, and starts it: fenced, or what it reaches taken down, and ordered in the log.

Three things are waited for: a second person's word, the end of a deny window, and that of a drain, in which what goes
stays readable. Each is a matter of rows, so any process finds it whenever it looks. Called where an operation is asked
for, when somebody decided, and by the engine.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db import transaction

from audit.approvals import approval_of
from audit.standing import hindrance
from catalog.models import Operation, OperationTarget, Plan
from catalog.operation_believing import LEASES_WITHIN, disbelief
from catalog.operation_orders import (
    KIND,
    operation_conclude,
    operation_record,
    operation_wake,
    order_record,
    principal_of,
)
from catalog.operation_planners import input_of
from catalog.windows import denied
from kvconsole.infra.access import Principal, plane
from kvconsole.infra.rest import Problem, add_codes
from kvconsole.infra.sql import PLATFORM
from kvcore import plans
from kvcore.leaf import APPROVAL
from kvcore.plan_kinds import KINDS
from tenants.erasing import epoch_leased_until, owned
from tenants.services import Fenced, epoch_close, namespaces_fence

add_codes({"targets-foreign": (409, "What it reaches is another tenant's")})
DRAIN_LEAST = timedelta(seconds=30)
"""As long as a ticket: whoever was sent to the old epoch at the last moment has read by then."""
LOOK_AGAIN = timedelta(seconds=30)
"""A window may be removed before it ends."""
SOON = timedelta(seconds=1)
WINDOW, DRAINING = "deny-window", "draining"
WAITS = frozenset({WINDOW, DRAINING})
"""Codes (`Operation.problem`) of what an operation waits for before it starts."""
WAITED = ("problem", "drain_from", "drain_until", "due_at", "approval")
STARTED = ("problem", "options", "fenced_at", "fence_seq", "due_at", "deadline", "approval")


class Wait(NamedTuple):
    """Why it does not start now, and when it is worth another look."""

    code: str
    until: datetime


def plan_of(operation: Operation) -> Plan | None:
    """The plan that the operation carries out, None where there is none."""
    return Plan.objects.filter(id=operation.plan).first() if operation.plan else None


def decision_apply(*, operation_id: UUID, now: datetime) -> bool:
    """What was decided on the operation is in force, or it has started as it need not wait any more, or it is over.

    What was agreed to waits while the log is not signed in time. Whether anything changed.
    """
    with transaction.atomic(using=plane()):
        operation = Operation.objects.select_for_update(no_key=True).filter(id=operation_id).first()
        if operation is None or operation.concluded_at or operation.fenced_at:
            return False
        approval = None
        if operation.needs_approval:
            approval = approval_of(KIND, str(operation.id), tenant_id=operation.tenant_id)
            if approval is None or (approval.state == "open" and approval.expires_at > now):
                return False
            if approval.state == "approved" and approval.decided_by in ("", operation.requested_by):
                return False
        if end := _ended(operation, approval):
            operation_conclude(operation, end[0], now, problem=end[1])
            return True
        if hindrance():
            return False
        try:
            with transaction.atomic(using=plane()):
                return _begin(operation, approval, now)
        except Problem as problem:
            operation_conclude(operation, "expired", now, problem=problem.code)
            return True


def _ended(operation: Operation, approval: Any) -> tuple[str, str] | None:
    """How it is over before it started, and the code of why."""
    if operation.stopped_at:
        return "stopped", ""
    if approval is None or approval.state == "approved":
        agreed = approval is None or approval.what.get("plan_hash") == bytes(operation.plan_hash).hex()
        return None if agreed else ("expired", "plan-mismatch")
    return ("denied" if approval.state == "denied" else "expired"), ""


def _begin(operation: Operation, approval: Any, now: datetime) -> bool:
    row = plan_of(operation)
    if row is None:
        raise Problem("plan-expired")
    who = principal_of(operation)
    before = operation.problem, operation.drain_until
    operation.approval = approval.id if approval else operation.approval
    if wait := wait_of(operation, now):
        operation_waits(operation, wait, who, now)
        operation.save(update_fields=WAITED)
        return (operation.problem, operation.drain_until) != before
    if code := disbelief(operation, row, now):
        raise Problem(code)
    targets = targets_now(row, plans.plan_from_json(row.body), who, now, strict=_strict(operation))
    if not targets and operation.kind != "epoch":
        raise Problem("nothing-selected")
    _require_own(operation, targets)
    operation.deadline = max(operation.deadline, now + LEASES_WITHIN)
    reached = operation_begin(operation, targets, who, now)
    operation.save(update_fields=STARTED)
    targets_keep(operation, reached, targets)
    body = {"namespaces": len(reached), "fence_seq": operation.fence_seq}
    told = {**body, "approval": str(approval.id)} if approval else body
    operation_record("operation.fenced", operation, who, told, APPROVAL if approval else 0)
    order_record(operation, who)
    operation_wake(operation.id)
    return True


def _strict(operation: Operation) -> bool:
    """Whether it may only reach what was looked at: what a rule or a drain means is what is there then."""
    return operation.requester["kind"] != "system" and not operation.options.get("drain")


def _require_own(operation: Operation, targets: Sequence[plans.Target]) -> None:
    """What a tenant's session wrote is not believed: it reaches the tenant's own namespaces or nothing.

    Raises:
        Problem: targets-foreign.
    """
    digests = {bytes.fromhex(target.ns) for target in targets}
    if operation.tenant_id != PLATFORM and digests - owned(digests, operation.tenant_id):
        raise Problem("targets-foreign")


# --- what is waited for ---------------------------------------------------------------------


def wait_of(operation: Operation, now: datetime) -> Wait | None:
    """What it has to wait for now; None = it may start."""
    if not operation.windows_passed and (until := denied(operation.tenant_id, operation.risk, now)):
        return Wait(WINDOW, until)
    if not operation.options.get("drain"):
        return None
    if operation.drain_until is None:
        seconds = float(operation.options.get("drain_seconds") or 0.0)
        return Wait(DRAINING, now + max(timedelta(seconds=seconds), DRAIN_LEAST))
    began = operation.drain_from or now
    leased = epoch_leased_until(str(operation.selector.get("epoch", "")), now)
    idle = max(began + DRAIN_LEAST, leased or began)
    until = min(operation.drain_until, idle)
    return Wait(DRAINING, until) if until > now else None


def _closer(operation: Operation, actor: Principal) -> Principal:
    """Who closes an epoch: the operation's tenant, whatever the row says of who asked, in which a session may lie."""
    return replace(actor, tenant_id=None if operation.tenant_id == PLATFORM else operation.tenant_id)


def operation_waits(operation: Operation, wait: Wait, who: Principal, now: datetime) -> None:
    """It waits; where a drain begins, no request is resolved for the epoch any more. The caller keeps the row."""
    if wait.code == DRAINING and operation.drain_until is None:
        epoch_close(epoch=str(operation.selector.get("epoch", "")), policy="drain", actor=_closer(operation, who))
        operation.drain_from, operation.drain_until = now, wait.until
    operation.problem = wait.code
    operation.due_at = min(wait.until, now + (SOON if wait.code == DRAINING else LOOK_AGAIN))


# --- the start ------------------------------------------------------------------------------


def targets_now(
    row: Plan, plan: plans.Plan, actor: Principal, now: datetime, *, strict: bool = True
) -> tuple[plans.Target, ...]:
    """The targets as they are now: what came since goes too, unless it is too much (`strict`).

    Raises:
        Problem: plan-drifted.
    """
    drift, asked = drift_of(row, plan, actor, now)
    if strict and drift.replan:
        detail = f"{', '.join(drift.reasons)}: {drift.bytes_before} bytes then, {drift.bytes_now} now. Make a new plan."
        raise Problem("plan-drifted", detail)
    return plans.plan_freeze(asked, now.timestamp()).targets


def drift_of(row: Plan, plan: plans.Plan, actor: Principal, now: datetime) -> tuple[plans.Drift, plans.PlanInput]:
    """What is different now from what the plan froze, and all that a plan would be made of now; nothing is written.

    Raises:
        Problem: as `plan_input`.
    """
    asked = input_of(
        kind=row.kind, selector=plan.selector, options=plan.options, actor=_asker(row.requested_by, actor), now=now
    )
    return plans.drifted(plan, asked), asked


def _asker(subject: str, actor: Principal) -> Principal:
    """Who made the plan, as far as a plan needs it: by whom, and of which tenant."""
    kind, _, id_ = subject.partition(":")
    return Principal(kind=kind, id=id_, tenant_id=actor.tenant_id, tenant_slug=actor.tenant_slug)


def operation_begin(
    operation: Operation, targets: Sequence[plans.Target], actor: Principal, now: datetime
) -> list[Fenced]:
    """It has started: its targets are fenced for good, where its kind does that. The caller keeps row and targets."""
    if KINDS[operation.kind].fences and not any(target.keys for target in targets):
        reached = _fence(operation, targets, actor, now)
    elif KINDS[operation.kind].fences:  # keys are behind a fence of the directory, and their namespaces live on
        reached = list({target.ns: _reached(operation, target) for target in targets}.values())
        operation.fenced_at = now
    else:
        reached = [_reached(operation, target) for target in targets]
        places = sorted({cell.owner for target in targets for cell in target.cells})
        operation.options = {**operation.options, "places": places}
        operation.fenced_at = now
    operation.problem, operation.due_at = "", now
    return reached


def _reached(operation: Operation, target: plans.Target) -> Fenced:
    return Fenced(UUID(target.namespace), operation.tenant_id, bytes.fromhex(target.ns), int(target.gen_upto), 0)


def _fence(
    operation: Operation, targets: Sequence[plans.Target], actor: Principal, now: datetime
) -> list[Fenced]:  # fmt: skip
    """Everything of the targets is fenced for good; their keys are of the next generation."""
    ids = [UUID(target.namespace) for target in targets if target.namespace]
    retiring = operation.kind == "epoch"
    if retiring and operation.drain_until is None:
        epoch_close(epoch=str(operation.selector.get("epoch", "")), policy="immediate", actor=_closer(operation, actor))
    fenced = namespaces_fence(namespaces=ids, reason=operation.kind, actor=actor, now=now, close=retiring)
    operation.fenced_at = now
    operation.fence_seq = max((f.fence_seq for f in fenced), default=0)
    return fenced


def targets_keep(operation: Operation, reached: Sequence[Fenced], targets: Sequence[plans.Target]) -> None:
    """What the operation reaches is kept beside it."""
    finer: dict[str, list[plans.Target]] = {}
    for target in targets:
        if target.keys is not None:
            finer.setdefault(target.ns, []).append(target)
    OperationTarget.objects.bulk_create(
        OperationTarget(
            operation=operation.id,
            tenant_id=operation.tenant_id,
            namespace=one.namespace,
            digest=one.digest,
            min_gen=one.min_gen,
            fence_seq=one.fence_seq,
            part=part,
            cache_group=target.group if target else None,
            keys=target.packed if target else None,
            keys_hash=(target.keys or "") if target else "",
            key_count=target.key_count if target else 0,
            below=target.below if target else False,
        )
        for one in {one.digest: one for one in reached}.values()
        for part, target in enumerate(finer.get(one.digest.hex()) or [None])
    )
