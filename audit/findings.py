"""Decides what happens when something in the log is not as it must be: a row that pages show, and an event.

Called by the gap finder, the scrubber and the signing loop, in the sequencer's process (as kv_seq). The log itself
acts there: these events name nobody, because that process holds no key by which it could name anybody.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal

from django.db import connections, transaction

from audit.services import record
from kvconsole.infra.access import plane
from kvcore.leaf import NOBODY

DETAIL_CHARS = 500
AT_ONCE = 100
"""So many findings are closed at once."""
ACTOR = NOBODY
"""How leaves of these events name who acted."""
_OPEN = """
INSERT INTO audit_finding (at, kind, subject, first_index, detail) VALUES (clock_timestamp(), %s, %s, %s, %s)
ON CONFLICT (kind, subject) WHERE resolved_at IS NULL DO UPDATE SET seen_at = clock_timestamp()
RETURNING xmax = 0"""
_SETTLE = """
UPDATE audit_finding SET resolved_at = clock_timestamp() WHERE id IN (
  SELECT id FROM audit_finding
   WHERE resolved_at IS NULL AND kind = ANY(%s) AND subject <> ALL(%s)
     AND (%s::timestamptz IS NULL OR seen_at < %s) ORDER BY id LIMIT %s)
RETURNING id, kind, subject, first_index, at, seen_at"""


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
    """The finding is a row and an event, unless the same one is open already: then it is only seen again.

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
            cursor.execute(_OPEN, (kind, subject, first_index, detail[:DETAIL_CHARS]))
            (new,) = cursor.fetchone()
        if new:
            log_event(event_type, "failure", body, kind)
    return bool(new)


def findings_settle(
    *, kinds: Iterable[str], why: str, but: Iterable[str] = (), unseen_since: datetime | None = None
) -> int:
    """Open findings of these kinds are closed, each with an event that says when it was first and last seen; how many.

    At most `AT_ONCE` of them now; who looks regularly closes the rest with the next look.

    Args:
        kinds: of which kinds.
        why: a word for what explained them.
        but: those of these subjects stay open.
        unseen_since: those that were found since then stay open.
    """
    with transaction.atomic(using=plane()), connections[plane()].cursor() as cursor:
        cursor.execute(_SETTLE, (list(kinds), list(but), unseen_since, unseen_since, AT_ONCE))
        rows = cursor.fetchall()
        for number, kind, subject, index, first, last in rows:
            body = {"finding": number, "kind": kind, "about": subject, "index": index, "first_seen": first,
                    "last_seen": last, "reason": why}  # fmt: skip
            log_event("log.finding_settled", "success", body, kind)
    return len(rows)
