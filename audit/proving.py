"""Makes what somebody takes away to check offline: the newest checkpoint, and the proof that an event is under it."""

from datetime import datetime
from typing import NamedTuple

from django.db import connections

from audit.tree import checkpoint_latest, node_reader
from kvconsole.infra.access import FLEET_PLANE
from kvconsole.infra.rest import Problem
from kvcore.notes import checkpoint_parse, note_text, proof_text
from kvcore.proofs import inclusion

_LEAF = "SELECT idx, data FROM audit_leaf WHERE event = %s"


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
