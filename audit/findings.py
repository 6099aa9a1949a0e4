"""Decides what happens when something in the log is not as it must be: a row that pages show, and an event.

Called by the gap finder, the scrubber and the signing loop, in the sequencer's process (as kv_seq). The log itself
acts there: these events name nobody, because that process holds no key by which it could name anybody.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from django.db import connections, transaction

from audit.services import record
from kvconsole.infra.access import plane
from kvcore.leaf import NOBODY

DETAIL_CHARS = 500
ACTOR = NOBODY
"""How leaves of these events name who acted."""


def log_event(event_type: str, outcome: Literal["success", "failure"], body: Mapping[str, Any], what: str = "") -> None:
    """The event is in the trail with the current transaction. `what`: which part of the log it is about."""
    record(
        event_type=event_type,
        outcome=outcome,
        actor=None,
        tenant_id=None,
        object_kind="log",
        object_id=what,
        body=body,
    )


def finding_open(
    *, kind: str, subject: str, first_index: int | None, detail: str, event_type: str, body: Mapping[str, Any]
) -> bool:
    """The finding is a row and an event, unless the same one is open already.

    Args:
        kind: what is wrong.
        subject: about what; with `kind` it says whether it is the same.
        first_index: of the first leaf that it concerns.
        detail: for who looks into it; no personal data.
        event_type, body: of the event.

    Returns:
        Whether it is new.
    """
    with transaction.atomic(using=plane()):
        with connections[plane()].cursor() as cursor:
            cursor.execute(
                "INSERT INTO audit_finding (at, kind, subject, first_index, detail)"
                " VALUES (clock_timestamp(), %s, %s, %s, %s)"
                " ON CONFLICT (kind, subject) WHERE resolved_at IS NULL DO NOTHING",
                (kind, subject, first_index, detail[:DETAIL_CHARS]),
            )
            if cursor.rowcount == 0:
                return False
        log_event(event_type, "failure", body, kind)
    return True


def findings_settle(*, kinds: Iterable[str], but: Iterable[str] = ()) -> int:
    """Open findings of these kinds are resolved, except of these subjects; how many."""
    with connections[plane()].cursor() as cursor:
        cursor.execute(
            "UPDATE audit_finding SET resolved_at = clock_timestamp()"
            " WHERE resolved_at IS NULL AND kind = ANY(%s) AND subject <> ALL(%s)",
            (list(kinds), list(but)),
        )
        return int(cursor.rowcount)
