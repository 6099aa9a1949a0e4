"""Makes an operation true: observe, plan, dispatch, conclude, as often as something came of it.

Any process may do so at any time, several at once, and be killed anywhere: what is wanted follows from what is observed
(`kvcore.plan_steps`), steps have the same ids whoever plans them, and each is sent under a lease. Called by tasks, by
the web process's own look (`keeping`), and by tests.
"""

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db import connections, transaction

from audit.approvals import approval_of
from audit.proving import is_signed
from audit.signing import NotAnswered
from catalog.models import Operation, Step
from catalog.operation_believing import disbelief, plan_looked_at
from catalog.operation_orders import (
    ENGINE,
    KIND,
    OPERATIONS,
    operation_conclude,
    operation_record,
    order_ensure,
    principal_of,
)
from catalog.operation_requests import approval_ask
from catalog.operation_starting import decision_apply, plan_of
from catalog.operations.certificate import certificate_keep, certificate_make
from catalog.operations.dispatching import dispatch, steps_keep
from catalog.operations.doubts import doubts_raise
from catalog.operations.moving import moves_round
from catalog.operations.observing import Seen, observe
from kvconsole.infra import nudge
from kvconsole.infra.access import plane
from kvconsole.infra.keystore import KeyStoreUnavailable
from kvconsole.infra.rest import Problem
from kvconsole.infra.sql import named
from kvcore import move_steps
from kvcore.plan_kinds import KINDS
from kvcore.plan_state import Condition, conditions, finalizers_left
from kvcore.plan_steps import StepWish, steps
from tenants.services import generations_shred
from tenants.whole import fences_whole

ROUNDS_MOST = 40
ORDER_SECONDS, ORDER_LOOK_SECONDS = 3.0, 0.03
"""How long a round waits for the checkpoint that covers its order: then commands are out at once."""
SOON, WHILE_WAITING, WHILE_QUIET = timedelta(seconds=0.2), timedelta(seconds=1), timedelta(seconds=5)
GAP_PATIENCE = timedelta(seconds=60)
YOUNG = timedelta(seconds=30)
"""After a fence: routers, gateways and nodes acknowledge within seconds."""
DUE_AT_ONCE = 50


def operations_due(*, now: datetime, late: float = 0.0) -> list[UUID]:
    """Operations that somebody should look at, and that have waited `late` seconds for it."""
    with connections[plane()].cursor() as cursor:
        query = named("catalog", "operations.sql")["operations_due"]
        cursor.execute(query, (now - timedelta(seconds=late), DUE_AT_ONCE))
        return [row[0] for row in cursor.fetchall()]


def reconcile(*, operation_id: UUID, holder: str, now: datetime | None = None) -> str:
    """The operation is as far as it can be now; its row says when to look again.

    Args:
        operation_id: of the operation.
        holder: who sends its steps.
        now: aware; else the clock's.

    Returns:
        Its outcome, or what it waits for: "unknown", "waiting", "working" or "quiet".
    """
    if not fences_whole():
        return "waiting"
    for _ in range(ROUNDS_MOST):
        at = now or datetime.now(UTC)
        operation = Operation.objects.filter(id=operation_id).first()
        if operation is None:
            return "unknown"
        if operation.concluded_at is not None:
            return operation.outcome
        if operation.stopped_at is not None:
            _stop(operation, at)
            continue
        if operation.fenced_at is None:
            return _unfenced(operation, at)
        if operation.order_event is None:
            order_ensure(operation, at)
            continue
        _await_order(operation)
        turn = moves_round if operation.kind in move_steps.KINDS else _round
        more, pause = turn(operation, holder, datetime.now(UTC) if now is None else at)
        if not more:
            return _rest(operation_id, pause, now)
    return _rest(operation_id, SOON, now)


def _round(operation: Operation, holder: str, now: datetime) -> tuple[bool, timedelta]:
    """Whether something came of it that asks for another round at once; else after how long one is worth it."""
    seen = observe(operation, now=now)
    if doubts_raise(seen, now=now):
        seen = observe(operation, now=now)
    wishes = steps(seen.intent, seen.observed)
    steps_keep(seen, wishes, now=now)
    done = dispatch(seen, wishes, holder=holder, now=now)
    shredded = _shred(seen, wishes, now)
    if done.kept or shredded or any(wish.kind == "purge" for wish in wishes):
        nudge.wake(OPERATIONS)
    if done.kept or shredded:
        return True, SOON
    return _settle(seen, now), _pause(seen, wishes, now)


def _pause(seen: Seen, wishes: Sequence[StepWish], now: datetime) -> timedelta:
    """Soon where the writer or a node is at work or acknowledgements are due, seldom where a node has to come back."""
    if any(w.kind == "purge" or w.not_before <= now.timestamp() for w in wishes):
        return SOON
    young = seen.operation.fenced_at is not None and now - seen.operation.fenced_at < YOUNG
    return WHILE_WAITING if wishes or young else WHILE_QUIET


def _await_order(operation: Operation) -> None:
    """The order's checkpoint is waited for, for a moment: nobody has to be woken for it."""
    deadline = time.monotonic() + ORDER_SECONDS
    while operation.order_event and not is_signed(operation.order_event) and time.monotonic() < deadline:
        time.sleep(ORDER_LOOK_SECONDS)


def _unfenced(operation: Operation, now: datetime) -> str:
    """It waits for a second person, a window or a drain; who asked in a tenant's session is asked for here."""
    rows = Operation.objects.filter(id=operation.id, concluded_at=None, generation=operation.generation)
    rows.exclude(observed_generation=operation.generation).update(observed_generation=operation.generation)
    if operation.needs_approval and operation.approval is None:
        _ask(operation, now)
    elif decision_apply(operation_id=operation.id, now=now):
        Operation.objects.filter(id=operation.id, concluded_at=None).update(due_at=now)
        return "working"
    Operation.objects.filter(id=operation.id, due_at__lte=now).update(due_at=now + WHILE_WAITING)
    return "waiting"


def _ask(operation: Operation, now: datetime) -> None:
    """The second person is asked for."""
    with transaction.atomic(using=plane()):
        row = plan_of(operation)
        if row is None or approval_of(KIND, str(operation.id), tenant_id=operation.tenant_id) is not None:
            return
        if code := disbelief(operation, row, now):
            operation_conclude(operation, "failed", now, problem=code)
            return
        who = principal_of(operation)
        approval_ask(operation, plan_looked_at(operation, row, now), who, now)
        body = {"change": "approval-asked", "generation": operation.generation, "bytes_per_second": None}
        operation_record("operation.changed", operation, who, body)


def _stop(operation: Operation, now: datetime) -> None:
    """What was fenced stays so; nothing more is sent, and nothing is claimed."""
    with transaction.atomic(using=plane()):
        row = Operation.objects.select_for_update(no_key=True).filter(id=operation.id, concluded_at=None).first()
        if row is None:
            return
        Step.objects.filter(operation=row.id, state="waiting").update(state="cancelled", done_at=now)
        operation_conclude(row, "stopped", now)


def _shred(seen: Seen, wishes: Sequence[StepWish], now: datetime) -> bool:
    """The generations' keys are destroyed in the key store, where that is wanted: in the transaction of its event."""
    wish = next((w for w in wishes if w.kind == "keys"), None)
    if wish is None:
        return False
    generations = [(bytes(t.digest), t.min_gen) for t in seen.targets]
    try:
        with transaction.atomic(using=plane()):
            mine = Step.objects.select_for_update().filter(id=UUID(wish.step), state="waiting").first()
            if mine is None:
                return False
            there = generations_shred(
                generations=generations, tenant_id=seen.operation.tenant_id, operation=str(seen.operation.id),
                actor=ENGINE,
            )  # fmt: skip
            mine.state, mine.done_at, mine.done_blocks = "done", now, there
            mine.save(update_fields=["state", "done_at", "done_blocks"])
    except (KeyStoreUnavailable, Problem):  # or the log is not signed in time
        return False
    return True


def _settle(seen: Seen, now: datetime) -> bool:
    """What was reached is in the operation's row; where no finalizer is left, it ends with its certificate."""
    found = conditions(seen.intent, seen.observed)
    left = list(finalizers_left(seen.intent, seen.observed))
    true = {one.type: one for one in found if one.status == "true"}
    operation = seen.operation
    fields: dict[str, object] = {"observed_generation": operation.generation}
    for name, type_ in (("routed_at", "Unroutable"), ("erased_at", "Erased"), ("verified_at", "Verified")):
        if type_ in true and getattr(operation, name) is None:
            fields[name] = _since(true[type_], now)
    fields["finalizers"] = [f for f in operation.finalizers if f in left]
    rows = Operation.objects.filter(id=operation.id, concluded_at=None, generation=operation.generation)
    rows.update(**fields)
    if left or seen.intent.held or seen.intent.paused or _uncertain(seen, now):
        return False
    for name, value in fields.items():
        setattr(operation, name, value)
    if not KINDS[operation.kind].certified:
        return _complete(seen, now)
    body = certificate_make(seen, found, now=now)
    kept = body if isinstance(body, NotAnswered) else certificate_keep(seen, body, now=now)
    if isinstance(kept, NotAnswered):
        rows.update(problem=kept.code[:63])
        return False
    return True


def _complete(seen: Seen, now: datetime) -> bool:
    """It ends without a certificate: it took something away from places and claims of nothing that it is gone."""
    with transaction.atomic(using=plane()):
        row = Operation.objects.select_for_update(no_key=True).filter(id=seen.operation.id, concluded_at=None).first()
        if row is None or row.generation != seen.operation.generation:
            return False
        steps = sum(step.outcome != "" for step in seen.observed.steps)
        operation_conclude(row, "completed", now, steps=steps)
    return True


def _uncertain(seen: Seen, now: datetime) -> bool:
    """Whether what a source told is not whole now and may be in a moment: then the certificate is worth waiting for."""
    since = seen.operation.verified_at
    return any(p.gap and not p.retired for p in seen.places.values()) and (since is None or now - since < GAP_PATIENCE)


def _since(condition: Condition, now: datetime) -> datetime:
    return datetime.fromtimestamp(condition.since, UTC) if condition.since else now


def _rest(operation_id: UUID, pause: timedelta, now: datetime | None) -> str:
    """Its row says when somebody has to look again."""
    at = now or datetime.now(UTC)
    Operation.objects.filter(id=operation_id, concluded_at=None).update(due_at=at + pause)
    return "quiet" if pause == WHILE_QUIET else "working"
