"""Decides what a legal hold is: what it covers is fenced when it is deleted, and not erased before it is released.

Both placing and releasing need a second person. Called by REST, by tasks when somebody decided, and by a sweep that
finds decisions nobody was told of.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from django.db import transaction

from audit.approvals import approval_of, approval_request
from audit.services import record
from audit.standing import hindrance, need_log
from catalog.models import Hold, Operation
from catalog.operation_orders import OPERATIONS
from catalog.operation_plans import namespaces_of, selector_of, tenant_of
from kvconsole.infra import nudge
from kvconsole.infra.access import Principal, plane, system
from kvconsole.infra.rest import Problem, add_codes
from kvcore.leaf import APPROVAL

add_codes({"hold-over": (409, "The hold is not in a state that allows this")})
PLACE, RELEASE = "hold", "hold_release"
"""Kinds of approvals."""
DECIDED_WITHIN = timedelta(days=7)
SWEEPER = system("holds")


def hold_request(
    *, selector: Mapping[str, Any], authority: str, reason: str, review_at: datetime, actor: Principal, now: datetime
) -> Hold:
    """The hold waits for a second person; until then it holds nothing.

    Raises:
        Problem: as `selector_of` and `namespaces_of`; person-needed; validation-failed: the review is not ahead.
    """
    if actor.kind != "user":
        raise Problem("person-needed")
    if review_at <= now:
        errors = [{"pointer": "/review_at", "code": "invalid", "detail": "It must be ahead."}]
        raise Problem("validation-failed", errors=errors)
    said = selector_of(dict(selector), actor)
    rows = namespaces_of(said)
    with transaction.atomic(using=plane()):
        hold = Hold.objects.create(
            tenant_id=tenant_of(rows, actor),
            selector=msgspec.to_builtins(said),
            namespaces=[row.id for row in rows],
            authority=authority,
            reason=reason,
            review_at=review_at,
            requested_by=actor.subject,
            requested_at=now,
        )
        approval = _ask(PLACE, hold, str(hold.id), actor, now)
        body = {"authority": authority, "review_at": review_at, "reason": reason, "approval": str(approval)}
        _record("hold.requested", hold, actor, body)
    return hold


def hold_release_request(*, hold_id: UUID, reason: str, actor: Principal, now: datetime) -> Hold:
    """The release waits for a second person; until then it holds.

    Raises:
        Problem: not-found, hold-over, person-needed or audit-unavailable.
    """
    if actor.kind != "user":
        raise Problem("person-needed")
    with transaction.atomic(using=plane()):
        need_log()
        hold = Hold.objects.select_for_update(no_key=True).filter(id=hold_id).first()
        if hold is None:
            raise Problem("not-found")
        if hold.state != "active":
            raise Problem("hold-over", f"It is {hold.state}.")
        hold.state, hold.releases = "releasing", hold.releases + 1
        hold.save(update_fields=["state", "releases"])
        approval = _ask(RELEASE, hold, f"{hold.id}/{hold.releases}", actor, now)
        _record("hold.release_requested", hold, actor, {"reason": reason, "approval": str(approval)})
    return hold


def holds_sweep(*, now: datetime) -> int:
    """Decisions that nobody told us of are in force; how many holds changed."""
    waiting = Hold.objects.filter(state__in=("awaiting_approval", "releasing")).order_by("requested_at")
    return sum(decision_apply(hold_id=id_, now=now) for id_ in list(waiting.values_list("id", flat=True)[:100]))


def decision_apply(*, hold_id: UUID, now: datetime) -> bool:
    """What was decided on the hold is in force. Whether anything changed.

    A release waits while the log is not signed in time: what it lets go is erased.
    """
    with transaction.atomic(using=plane()):
        hold = Hold.objects.select_for_update(no_key=True).filter(id=hold_id).first()
        if hold is None or hold.state not in ("awaiting_approval", "releasing"):
            return False
        placing = hold.state == "awaiting_approval"
        kind, name = (PLACE, str(hold.id)) if placing else (RELEASE, f"{hold.id}/{hold.releases}")
        approval = approval_of(kind, name, tenant_id=hold.tenant_id)
        if approval is None or (approval.state == "open" and approval.expires_at > now):
            return False
        agreed = approval.state == "approved" and approval.decided_by not in ("", approval.requested_by)
        if agreed and not placing and hindrance():
            return False
        hold.state = ("active" if placing else "released") if agreed else ("denied" if placing else "active")
        hold.decided_at = now
        hold.released_at = now if hold.state == "released" else None
        hold.save(update_fields=["state", "decided_at", "released_at"])
        body: dict[str, Any] = {"approval": str(approval.id)}
        if agreed and placing:
            body |= {"authority": hold.authority, "namespaces": len(hold.namespaces)}
        event = ("hold.placed" if placing else "hold.released") if agreed else "hold.denied"
        _record(event, hold, SWEEPER, body, APPROVAL)
        Operation.objects.filter(concluded_at=None).update(due_at=now)
        nudge.on_commit(OPERATIONS, using=plane())
    return True


def hold_view(hold: Hold) -> dict[str, Any]:
    """A hold as it is shown."""
    names = ("id", "selector", "authority", "reason", "review_at", "state", "requested_by", "requested_at",
             "decided_at", "released_at")  # fmt: skip
    return {**{name: getattr(hold, name) for name in names}, "namespaces": len(hold.namespaces)}


def _ask(kind: str, hold: Hold, name: str, actor: Principal, now: datetime) -> UUID:
    what = {"selector": hold.selector, "authority": hold.authority, "reason": hold.reason,
            "review_at": hold.review_at, "namespaces": len(hold.namespaces)}  # fmt: skip
    asked = approval_request(kind=kind, object_id=name, tenant_id=hold.tenant_id, what=what, risk="R3", actor=actor,
                             expires_at=now + DECIDED_WITHIN, now=now)  # fmt: skip
    found: UUID = asked.id
    return found


def _record(event_type: str, hold: Hold, actor: Principal, body: Mapping[str, Any], flags: int = 0) -> None:
    record(
        event_type=event_type,
        outcome="success",
        actor=actor,
        tenant_id=hold.tenant_id,
        object_kind="hold",
        object_id=str(hold.id),
        body=body,
        flags=flags,
    )
