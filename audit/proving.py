"""Makes what somebody takes away to check offline: the newest checkpoint, the proof that an event is under it, and the
proof that the log only grew between two sizes.
"""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import NamedTuple

from audit.epochs import Log, asked_of, log_at
from audit.tree import LogTorn, asked, checkpoint_latest, node_reader
from kvconsole.infra.access import FLEET_PLANE
from kvconsole.infra.rest import Problem
from kvcore.notes import checkpoint_parse, note_text, proof_text
from kvcore.proofs import consistency, inclusion

_LEAF = "SELECT epoch, idx, data FROM audit_leaf_all WHERE event = %s AND time_us = coalesce(%s, time_us)"
_KEPT = "SELECT size, root, note, signed_at FROM audit_checkpoint WHERE size = %s"


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
