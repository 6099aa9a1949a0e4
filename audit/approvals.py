"""Decides how a second person agrees: who asked for what, until when, and who decided. Never the same person.

The owner of what waits (share groups; operations and retention later) asks in the transaction of its own change, with
its own event. Whoever decides through here leaves `approval.decided`, and the owner is woken by name; a sweep of the
owner finds what it was not woken for.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.utils.module_loading import import_string

from audit.models import Approval
from audit.services import portable, record
from audit.standing import need_log
from kvconsole.infra.access import Principal, plane
from kvconsole.infra.rest import Problem, add_codes
from kvconsole.infra.statements import fetch
from kvcore.leaf import APPROVAL

RISKS = ("R0", "R1", "R2", "R3")
MOST_REASON = 500
WHILE_UNSIGNED = frozenset({"audit_epoch", "hold"})
"""Kinds that are approved also while the log is not signed: the way out of that, and what only keeps."""
add_codes(
    {
        "approval-own": (403, "Nobody approves what they asked for"),
        "approval-decided": (409, "It was decided already"),
        "approval-expired": (409, "It waited too long and has expired"),
    }
)


def approvals(state: str | None = None) -> QuerySet[Approval]:
    """Those that the current plane shows, of one state ("expired" = open, but too late) or of all. Index: state, id."""
    return Approval.objects.filter(state=state) if state else Approval.objects.all()


def approval_of(kind: str, object_id: str, *, tenant_id: UUID) -> Approval | None:
    """The approval that this object of the tenant waits or waited for; nobody else's row speaks for it."""
    return Approval.objects.filter(tenant_id=tenant_id, kind=kind, object_id=object_id).first()


class Asked(NamedTuple):
    """What an object waits or waited for."""

    object_id: str
    id: UUID
    state: str
    expires_at: datetime


def approvals_of(kind: str, object_ids: Sequence[str]) -> dict[str, Asked]:
    """The approvals of these objects, as far as the current plane shows them, by object."""
    query = "SELECT object_id, id, state, expires_at FROM audit_approval WHERE kind = %s AND object_id = ANY(%s)"
    return {row[0]: Asked(*row) for row in fetch(query, [kind, list(object_ids)])}


def approval_state(approval: Approval | Asked, now: datetime) -> str:
    """Its state now: an open one may have expired."""
    return "expired" if approval.state == "open" and approval.expires_at <= now else approval.state


def approval_request(
    *,
    kind: str,
    object_id: str,
    tenant_id: UUID,
    what: Mapping[str, Any],
    risk: str,
    actor: Principal,
    expires_at: datetime,
    now: datetime,
) -> Approval:
    """It waits for a second person. Called in the caller's transaction, which records the event of its own change.

    Args:
        kind: a key of `settings.APPROVAL_OWNERS`, whose task is told of the decision.
        object_id: what would be changed.
        what: the facts by which a person decides; no personal data.
        risk: R0 to R3.
        actor: who asks, and so may not decide.
    """
    if kind not in settings.APPROVAL_OWNERS or risk not in RISKS:
        raise ValueError(f"nobody owns approvals of {kind!r}, or {risk!r} is no risk")
    return Approval.objects.create(
        tenant_id=tenant_id,
        kind=kind,
        object_id=object_id,
        what=portable(what),
        risk=risk,
        requested_by=actor.subject,
        requested_at=now,
        expires_at=expires_at,
    )


def approval_settle(
    *, approval_id: UUID, approve: bool, actor: Principal, now: datetime, reason: str = "", kind: str | None = None
) -> Approval:
    """It is decided, in the transaction of a caller that records the event and acts on it itself.

    Only a person decides, who has just proved themselves: a token is in the hands of whoever made it, so it would not
    be a second person.

    Raises:
        Problem: person-needed, step-up-required, not-found, approval-own, approval-decided or approval-expired;
            nothing was decided.
    """
    if actor.kind != "user":
        raise Problem("person-needed")
    if not actor.stepped_up(now.timestamp()):
        raise Problem("step-up-required")
    found = Approval.objects.select_for_update(no_key=True).filter(id=approval_id).first()
    if found is None or (kind and found.kind != kind):
        raise Problem("not-found")
    if found.requested_by == actor.subject:
        raise Problem("approval-own")
    if found.state != "open":
        raise Problem("approval-decided", f"It was {found.state} at {portable(found.decided_at or now)}.")
    if found.expires_at <= now:
        raise Problem("approval-expired")
    found.state, found.decided_by, found.decided_at = "approved" if approve else "denied", actor.subject, now
    found.reason = reason[:MOST_REASON]
    found.save(update_fields=["state", "decided_by", "decided_at", "reason"])
    return found


def approval_decide(*, approval_id: UUID, approve: bool, actor: Principal, now: datetime, reason: str = "") -> Approval:
    """It is decided, the trail says so, and its owner is woken after commit.

    Raises:
        Problem: as `approval_settle`, or audit-unavailable, as nothing is approved while the log is not signed;
            nothing was decided.
    """
    with transaction.atomic(using=plane()):
        found = approval_settle(approval_id=approval_id, approve=approve, actor=actor, now=now, reason=reason)
        if approve and found.kind not in WHILE_UNSIGNED:
            need_log()
        record(
            event_type="approval.decided",
            outcome="success",
            actor=actor,
            tenant_id=found.tenant_id,
            object_kind="approval",
            object_id=str(found.id),
            body={
                "kind": found.kind,
                "object": found.object_id,
                "decision": found.state,
                "risk": found.risk,
                "reason": found.reason,
            },
            flags=APPROVAL,
        )
        transaction.on_commit(lambda: _wake_owner(found.kind, found.object_id), using=plane(), robust=True)
    return found


def approval_withdraw(*, kind: str, object_id: str, tenant_id: UUID, now: datetime) -> None:
    """An open approval of the tenant's object is of no use any more; in the caller's transaction, with its event."""
    rows = Approval.objects.filter(tenant_id=tenant_id, kind=kind, object_id=object_id, state="open")
    rows.update(state="withdrawn", decided_at=now)


def _wake_owner(kind: str, object_id: str) -> None:
    """A hint to a worker. Without a broker nothing is lost: the owner's sweep finds the decision."""
    if owner := settings.APPROVAL_OWNERS[kind]:
        import_string(settings.TASK_SENDER)(owner, object_id)
