"""Makes what somebody takes away to check offline: the newest checkpoint, the proof that an event is under it, and the
proof that the log only grew between two sizes.
"""

import base64
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from audit import signing
from audit.asked import Evidence
from audit.epochs import Log, asked_of, log_at
from audit.registry import TYPES
from audit.tree import LogTorn, asked, checkpoint_latest, node_reader
from kvconsole.infra.access import FLEET_PLANE
from kvconsole.infra.rest import Problem
from kvcore.leaf import OUTCOMES
from kvcore.notes import checkpoint_parse, note_text, proof_text
from kvcore.proofs import consistency, inclusion

_LEAF = "SELECT epoch, idx, data FROM audit_leaf_all WHERE event = %s AND time_us = coalesce(%s, time_us)"
_KEPT = "SELECT size, root, note, signed_at FROM audit_checkpoint WHERE size = %s"
_PRESENT = (
    "SELECT l.idx, l.data, e.body FROM audit_leaf l JOIN audit_event e ON e.id = l.event AND e.time_us = l.time_us"
    " WHERE l.event = %s"
)
_SIGNED = (
    "SELECT a.idx FROM audit_leaf_all a, audit_tree t, audit_signing s"
    " WHERE a.event = %s AND (a.epoch < t.epoch OR a.idx < s.size)"
)
_SIGNED_AMONG = _SIGNED.replace("SELECT a.idx", "SELECT a.event").replace("a.event = %s", "a.event = ANY(%s)")
_DECISION = (
    "SELECT id FROM audit_event WHERE event_type = %s AND object_kind = 'approval' AND object_id = %s"
    " AND outcome = %s ORDER BY id LIMIT 1"
)
_REFS = "SELECT event_id, body_hash, tenant_ref, actor_ref FROM audit_event WHERE id = %s"


class Newest(NamedTuple):
    """The newest signed checkpoint of a log."""

    epoch: int
    origin: str
    size: int
    root: bytes
    note: str
    signed_at: datetime


def checkpoint_now(log: Log | None = None) -> Newest:
    """The newest signed checkpoint; of a log that ended, that of what was kept of it.

    Raises:
        Problem: not-signed: there is none yet.
    """
    log = log or log_at(None)
    if log.ended:
        rows = asked_of(log)(_KEPT, (log.size,))
        found = (rows[0][0], bytes(rows[0][1]), *rows[0][2:]) if rows else None
    else:
        found = checkpoint_latest()
    if found is None:
        raise Problem("not-signed", retry_after_seconds=2)
    return Newest(log.number, checkpoint_parse(note_text(found[2])).origin, *found)


def proof_of(event: int, time_us: int | None = None) -> str:
    """The proof file of an event that its reader may see, under the newest checkpoint of its log.

    Args:
        event: its `id`.
        time_us: its time; None = whatever event was sealed under this number.

    Raises:
        Problem: not-sequenced or not-signed: in a moment it will be; log-torn.
    """
    rows = asked(FLEET_PLANE)(_LEAF, (event, time_us))
    if not rows:
        raise Problem("not-sequenced", retry_after_seconds=1)
    epoch, index, data = rows[0]
    log = log_at(epoch)
    newest = checkpoint_now(log)
    if index >= newest.size:
        raise Problem("not-signed", retry_after_seconds=2)
    with _whole():
        path = inclusion(index, newest.size, node_reader(asked_of(log)))
    return proof_text(bytes(data), index, path, newest.note)


def evidence_of(event: int, size: int) -> Evidence | None:
    """The event as evidence under the head of this size; None: it is not in the first `size` leaves yet.

    Of the present log alone, whose head the signer knows: what was sealed in one that ended is no evidence to it.

    Args:
        event: its `id`.
        size: of a head that was signed, or that the signer says it signed last.
    """
    rows = asked(FLEET_PLANE)(_PRESENT, (event,))
    if not rows or rows[0][0] >= size:
        return None
    index, data, body = rows[0]
    try:
        path = inclusion(index, size, node_reader(asked(FLEET_PLANE)))
    except LogTorn:  # the head is ahead of what this connection sees
        return None
    return signing.evidence(leaf=bytes(data), index=index, proof=path, body=bytes(body))


def is_signed(event: int) -> bool:
    """Whether the event, by its `id`, is under a signed head: the newest one, or that of a log that ended."""
    return place_of(event) is not None


def signed_among(events: Collection[int]) -> set[int]:
    """Those of these events, by their `id`, that are under a signed head."""
    rows = asked(FLEET_PLANE)(_SIGNED_AMONG, (list(events),)) if events else []
    return {row[0] for row in rows}


def place_of(event: int) -> int | None:
    """Where the event stands in its log, the present one or one that ended; None: it is under no signed head yet."""
    rows = asked(FLEET_PLANE)(_SIGNED, (event,))
    return rows[0][0] if rows else None


def decision_of(approval: UUID) -> int | None:
    """The event by which a person agreed, by its `id`."""
    values = (TYPES["approval.decided"].number, str(approval), OUTCOMES.index("success"))
    rows = asked(FLEET_PLANE)(_DECISION, values)
    return rows[0][0] if rows else None


def order_refs(event: int) -> tuple[str, str, str, str] | None:
    """Of an event: its UUID, body hash, tenant and actor as the log names them, all in hex."""
    rows = asked(FLEET_PLANE)(_REFS, (event,))
    return (str(rows[0][0]), *(bytes(one).hex() for one in rows[0][1:])) if rows else None  # type: ignore[return-value]


def event_body(event: int) -> bytes | None:
    """The body of an event as it was hashed."""
    rows = asked(FLEET_PLANE)("SELECT body FROM audit_event WHERE id = %s", (event,))
    return bytes(rows[0][0]) if rows else None


def consistency_of(old: int, new: int | None = None, log: Log | None = None) -> str:
    """What shows that a log of `new` leaves begins with its first `old` ones: the file `consistency.txt`.

    Args:
        old: size of the checkpoint that somebody kept.
        new: size of the newer one; None = the newest signed one.
        log: None = the present one.

    Raises:
        Problem: not-signed, validation-failed (these are no two sizes of what was signed) or log-torn.
    """
    log = log or log_at(None)
    newest = checkpoint_now(log).size
    for name, size, most in (("new", new, newest), ("old", old, newest if new is None else new)):
        if size is not None and not 0 <= size <= most:
            detail = f"A size from 0 to {most}."
            raise Problem("validation-failed", errors=[{"pointer": f"/{name}", "code": "range", "detail": detail}])
    with _whole():
        path = consistency(old, newest if new is None else new, node_reader(asked_of(log)))
    return "".join(f"{base64.b64encode(one).decode()}\n" for one in path)


@contextmanager
def _whole() -> Iterator[None]:
    """Where nodes of the tree are not there any more, that is said."""
    try:
        yield
    except LogTorn as e:
        raise Problem("log-torn", f"{str(e)[0].upper()}{str(e)[1:]}.") from None
