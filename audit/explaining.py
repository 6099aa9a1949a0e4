"""Decides how a person says that a finding was looked into: an event, which explains and closes nothing.

What is amiss stays open for as long as the gap finder, the scrubber or the signer find it so (`audit.findings`):
whoever could close it by hand could hide it. Called by REST and pages.
"""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from django.db import transaction

from audit.models import Event, Finding
from audit.registry import TYPES
from audit.selectors import findings
from audit.services import record
from kvconsole.infra.access import Principal, plane
from kvconsole.infra.rest import Problem, add_codes

KIND = "finding.acknowledged"
MOST_ID = 2**63
add_codes({"finding-closed": (409, "It is closed: a later look found it no more")})


class Explained(NamedTuple):
    """A finding, and the event by which somebody said last that they looked into it."""

    row: Finding
    acknowledged: UUID | None


def explained(rows: Sequence[Finding]) -> list[Explained]:
    """The findings with what was said of them. Index: audit_event_object."""
    said = Event.objects.filter(
        object_kind="finding", object_id__in=[str(row.id) for row in rows], event_type=TYPES[KIND].number
    )
    newest = {name: event for name, event in said.order_by("time_us", "id").values_list("object_id", "event_id")}
    return [Explained(row, newest.get(str(row.id))) for row in rows]


def finding(finding_id: int) -> Explained:
    """One finding.

    Raises:
        Problem: not-found.
    """
    found = findings().filter(id=finding_id).first() if finding_id < MOST_ID else None
    if found is None:
        raise Problem("not-found")
    return explained([found])[0]


def finding_acknowledge(*, finding_id: int, note: str, actor: Principal) -> UUID:
    """That the actor looked into it, and what they found, is an event; its id.

    Args:
        note: in the actor's own words; it is sealed.

    Raises:
        Problem: not-found or finding-closed; nothing was recorded.
    """
    row = finding(finding_id).row
    if row.resolved_at is not None:
        raise Problem("finding-closed")
    with transaction.atomic(using=plane()):
        event = record(
            event_type=KIND,
            outcome="success",
            actor=actor,
            tenant_id=None,
            object_kind="finding",
            object_id=str(row.id),
            body={"finding": row.id, "kind": row.kind, "about": row.subject, "index": row.first_index, "note": note},
        )
    return event.event_id
