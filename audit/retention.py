"""Decides how bodies of old events go: asked for, approved by a second person, done by the database, and logged.

Bodies and sealed data of one class of events (the high byte of the type) and one month go together; leaves stay, so
every proof holds. The database itself refuses months younger than a year and what nobody approved
(`sql/retention.sql`); here is who asks, who is told, and the event that says what went.
"""

import re
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import psycopg
from django.db import DatabaseError, connections, transaction

from audit.approvals import approval_request
from audit.models import Approval
from audit.services import APPROVAL, record
from audit.standing import hindrance, need_log
from kvconsole.infra.access import FLEET_PLANE, Principal, plane, system
from kvconsole.infra.rest import Problem, add_codes
from kvconsole.infra.sql import PLATFORM

add_codes(
    {
        "retention-too-young": (409, "Bodies are kept for at least twelve months after their month"),
        "retention-done": (409, "These bodies went already, or somebody asked for it"),
    }
)
KIND = "audit_retention"
DECIDED_WITHIN = timedelta(days=14)
FLOOR_MONTHS = 12
CLASSES = {1: "identity", 2: "policy", 3: "catalog", 4: "node", 5: "deletion", 6: "keys", 7: "export", 8: "break-glass"}
"""Classes whose bodies can go; the log's own (15) stay."""
_MONTH = re.compile(r"(20\d\d)-(0[1-9]|1[0-2])")
_COUNT = (
    "SELECT count(*) FROM audit_event WHERE time_us >= %s AND time_us < %s AND event_type >= %s AND event_type < %s"
)


class Retired(NamedTuple):
    """What went: counts and places, never what it was."""

    month: str
    class_: int
    events: int
    first_index: int | None
    last_index: int | None
    digest: str
    at: datetime
    approval: UUID


def retention_request(*, class_: int, month: str, actor: Principal, now: datetime) -> Approval:
    """It waits for a second person: the bodies of this class and month shall go.

    Args:
        class_: a key of `CLASSES`.
        month: `2025-01`, in UTC.
        actor: who asks, and so may not approve.

    Raises:
        Problem: validation-failed, retention-too-young, retention-done or audit-unavailable; nothing was asked.
    """
    first = _first(month)
    if class_ not in CLASSES:
        raise _invalid("/class", f"One of {', '.join(map(str, CLASSES))}.")
    if _after(first, 1 + FLOOR_MONTHS) > now.date():
        raise Problem("retention-too-young")
    need_log()
    object_id = f"{month}/{class_}"
    with transaction.atomic(using=plane()):
        before = Approval.objects.select_for_update().filter(tenant_id=PLATFORM, kind=KIND, object_id=object_id).first()
        if before is not None and (before.state == "approved" or (before.state == "open" and before.expires_at > now)):
            raise Problem("retention-done")
        if before is not None:  # denied, withdrawn or too late: it may be asked for again, under another name
            again = Approval.objects.filter(tenant_id=PLATFORM, kind=KIND, object_id__startswith=f"{object_id}/")
            object_id = f"{object_id}/{again.count() + 1}"
        approval = approval_request(
            kind=KIND,
            object_id=object_id,
            tenant_id=PLATFORM,
            what={"class": class_, "subject": CLASSES[class_], "month": month, "events": _count(class_, first)},
            risk="R3",
            actor=actor,
            expires_at=now + DECIDED_WITHIN,
            now=now,
        )
        record(
            event_type="retention.requested",
            outcome="success",
            actor=actor,
            tenant_id=None,
            object_kind="approval",
            object_id=str(approval.id),
            body={"class": class_, "month": month, "approval": str(approval.id)},
        )
    return approval


def retentions_due() -> int:
    """What was approved is done; answers how many. A worker calls it when a decision is told, and every minute.

    While the log is not signed nothing goes.
    """
    if hindrance():
        return 0
    approved = Approval.objects.filter(kind=KIND, state="approved").order_by("decided_at").values_list("id", flat=True)
    return sum(_retire(id_) for id_ in list(approved) if not _is_done(id_))


def retired() -> list[Retired]:
    """What went so far, newest first."""
    with connections[plane()].cursor() as cursor:
        cursor.execute(
            "SELECT to_char(month, 'YYYY-MM'), class, events, first_index, last_index, encode(digest, 'hex'), at,"
            " approval FROM audit_retired ORDER BY at DESC, month DESC, class"
        )
        return [Retired(*row) for row in cursor.fetchall()]


def _is_done(approval_id: UUID) -> bool:
    with connections[FLEET_PLANE].cursor() as cursor:
        cursor.execute("SELECT 1 FROM audit_retired WHERE approval = %s", (approval_id,))
        return cursor.fetchone() is not None


def _retire(approval_id: UUID) -> bool:
    """The bodies are gone and the log says which. False: another worker was first, or not all are in the log yet."""
    try:
        with transaction.atomic(using=FLEET_PLANE), connections[FLEET_PLANE].cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('audit retention', 0))")
            if _is_done(approval_id):
                return False
            cursor.execute("SET LOCAL statement_timeout = 0")
            cursor.execute("SELECT * FROM audit_retire(%s)", (approval_id,))
            month, class_, events, first, last, digest = cursor.fetchone()
            told = {"class": class_, "month": f"{month:%Y-%m}", "events": events}
            record(
                event_type="log.bodies_retired",
                outcome="success",
                actor=system("retention"),
                tenant_id=None,
                object_kind="approval",
                object_id=str(approval_id),
                body={**told, "first": first, "last": last, "digest": bytes(digest)},
                flags=APPROVAL,
            )
    except DatabaseError as refused:
        if isinstance(refused.__cause__, psycopg.errors.ObjectNotInPrerequisiteState | psycopg.errors.UniqueViolation):
            return False
        raise
    return True


def _first(month: str) -> date:
    found = _MONTH.fullmatch(month)
    if found is None:
        raise _invalid("/month", "A month like 2025-01.")
    return date(int(found[1]), int(found[2]), 1)


def _after(first: date, months: int) -> date:
    total = first.year * 12 + first.month - 1 + months
    return date(total // 12, total % 12 + 1, 1)


def _count(class_: int, first: date) -> int:
    months = (first, _after(first, 1))
    since, until = (int(datetime(d.year, d.month, 1, tzinfo=UTC).timestamp() * 1e6) for d in months)
    with connections[plane()].cursor() as cursor:
        cursor.execute(_COUNT, (since, until, class_ << 8, (class_ + 1) << 8))
        return int(cursor.fetchone()[0])


def _invalid(pointer: str, detail: str) -> Problem:
    return Problem("validation-failed", errors=[{"pointer": pointer, "code": "invalid", "detail": detail}])
