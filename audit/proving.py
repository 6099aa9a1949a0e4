"""Makes what somebody takes away to check offline: the newest checkpoint, and the proof that an event is under it."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db import connections

from audit import signing
from audit.asked import Evidence
from audit.registry import TYPES
from audit.tree import LogTorn, checkpoint_latest, node_reader
from kvconsole.infra.access import FLEET_PLANE
from kvconsole.infra.rest import Problem
from kvcore.leaf import OUTCOMES
from kvcore.notes import checkpoint_parse, note_text, proof_text
from kvcore.proofs import inclusion

_LEAF = "SELECT idx, data FROM audit_leaf WHERE event = %s"
_BODY = "SELECT body FROM audit_event WHERE id = %s AND time_us = %s"
_DECISION = (
    "SELECT id FROM audit_event WHERE event_type = %s AND object_kind = 'approval' AND object_id = %s"
    " AND outcome = %s ORDER BY id LIMIT 1"
)


class Newest(NamedTuple):
    """The newest signed checkpoint."""

    origin: str
    size: int
    root: bytes
    note: str
    signed_at: datetime


def checkpoint_now() -> Newest:
    """The newest signed checkpoint.

    Raises:
        Problem: not-signed: there is none yet.
    """
    found = checkpoint_latest()
    if found is None:
        raise Problem("not-signed", retry_after_seconds=2)
    return Newest(checkpoint_parse(note_text(found.note)).origin, *found)


def proof_of(event: int) -> str:
    """The proof file of an event that its reader may see, under the newest checkpoint.

    Args:
        event: its `id`.

    Raises:
        Problem: not-sequenced or not-signed: in a moment it will be.
    """
    with connections[FLEET_PLANE].cursor() as cursor:
        cursor.execute(_LEAF, [event])
        row = cursor.fetchone()
    if row is None:
        raise Problem("not-sequenced", retry_after_seconds=1)
    newest = checkpoint_now()
    if row[0] >= newest.size:
        raise Problem("not-signed", retry_after_seconds=2)
    path = inclusion(row[0], newest.size, node_reader())
    return proof_text(bytes(row[1]), row[0], path, newest.note)


class Proved(NamedTuple):
    """An event under a head of the log: where it stands, and what the signer takes as evidence."""

    place: int
    evidence: Evidence


def evidence_of(event: int, size: int) -> Proved | None:
    """The event as evidence under the head of this size; None: it is not in the first `size` leaves yet.

    Args:
        event: its `id`.
        size: of a head that was signed, or that the signer says it signed last.
    """
    with connections[FLEET_PLANE].cursor() as cursor:
        cursor.execute("SELECT idx, data, time_us FROM audit_leaf WHERE event = %s", [event])
        row = cursor.fetchone()
        if row is None or row[0] >= size:
            return None
        cursor.execute(_BODY, [event, row[2]])
        body = cursor.fetchone()
    if body is None:
        return None
    try:
        path = inclusion(row[0], size, node_reader())
    except LogTorn:  # the head is ahead of what this connection sees
        return None
    return Proved(row[0], signing.evidence(leaf=bytes(row[1]), index=row[0], proof=path, body=bytes(body[0])))


def is_signed(event: int) -> bool:
    """Whether the event, by its `id`, is under the newest signed head."""
    query = "SELECT l.idx < s.size FROM audit_leaf l, audit_signing s WHERE l.event = %s"
    with connections[FLEET_PLANE].cursor() as cursor:
        cursor.execute(query, [event])
        row = cursor.fetchone()
    return bool(row and row[0])


def decision_of(approval: UUID) -> int | None:
    """The event by which a person agreed, by its `id`."""
    with connections[FLEET_PLANE].cursor() as cursor:
        cursor.execute(_DECISION, [TYPES["approval.decided"].number, str(approval), OUTCOMES.index("success")])
        row = cursor.fetchone()
    return row[0] if row else None


def order_refs(event: int) -> tuple[str, str, str, str] | None:
    """Of an event: its UUID, body hash, tenant and actor as the log names them, all in hex."""
    query = "SELECT event_id, body_hash, tenant_ref, actor_ref FROM audit_event WHERE id = %s"
    with connections[FLEET_PLANE].cursor() as cursor:
        cursor.execute(query, [event])
        row = cursor.fetchone()
    return (str(row[0]), bytes(row[1]).hex(), bytes(row[2]).hex(), bytes(row[3]).hex()) if row else None


def event_body(event: int) -> bytes | None:
    """The body of an event as it was hashed."""
    with connections[FLEET_PLANE].cursor() as cursor:
        cursor.execute("SELECT body FROM audit_event WHERE id = %s", [event])
        row = cursor.fetchone()
    return bytes(row[0]) if row else None
