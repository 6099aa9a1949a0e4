"""Decides how a log begins that goes on after another one: the old one is set aside, and the first leaf says so.

All of it is one transaction of the sequencer's process (as kv_seq): the database moves the tables where two people
approved it (`sql/epochs.sql`), and `log.restored`, with the record that both keys signed, is leaf 0. The signer, whose
state began anew when somebody brought it the order, signs no other log under the new name. Killed anywhere, it is done
or not done. Called by `audit.checkpoints` when the signer says that its log has not begun.
"""

from typing import Any

from django.db import DatabaseError, connection, transaction

from audit import signing
from audit.asked import Evidence
from audit.gaps import tally_of
from audit.keyfiles import verify
from audit.services import Recorded, record
from audit.tree import LogTorn, asked, frontier_rebuilt, node_reader, tree_now
from kvcore import notes
from kvcore.epochs import EpochRecord, record_parse
from kvcore.leaf import RESTORE, leaf
from kvcore.proofs import Frontier, inclusion, leaf_hash

_BEGIN = "SELECT audit_epoch_begin(ROW(0, %s, %s, %s::uuid, %s, %s, %s, %s, %s, %s, %s, %s::jsonb, now())::audit_epoch)"


def epoch_begin(signed: str) -> str:
    """The log that this record speaks of has begun, with it as its first leaf; "" or the code of why it has not.

    Args:
        signed: the record, as the signer has it.
    """
    try:
        said = record_parse(signed)
        for vkey in (said.old, said.new):
            notes.note_open(signed, [notes.vkey_parse(vkey)], verify)
        tree, node = tree_now(), node_reader()
        frontier = frontier_rebuilt(said.kept, node) if said.kept <= tree.size else None
    except notes.NoteError:
        return "epoch-record"
    except LogTorn:
        return "log-torn"
    if frontier is None or frontier.root() != said.kept_root:
        return "epoch-not-kept"
    try:
        with transaction.atomic():
            _begin(signed, said)
    except DatabaseError as refused:
        code = getattr(getattr(refused.__cause__, "diag", None), "message_detail", None)
        if code in ("not-approved", "not-signed"):
            return f"epoch-{code}"
        raise
    return ""


def first_leaf(size: int) -> Evidence | None:
    """The first leaf of the log, with its proof under the present tree; None: it is not there.

    Args:
        size: of the tree, which has no more leaves than there are.
    """
    rows = asked()(
        "SELECT l.data, e.body FROM audit_leaf l JOIN audit_event e ON e.id = l.event AND e.time_us = l.time_us"
        " WHERE l.idx = 0",
        (),
    )
    if not rows or not size:
        return None
    return signing.evidence(
        leaf=bytes(rows[0][0]), index=0, proof=inclusion(0, size, node_reader()), body=bytes(rows[0][1])
    )


def _begin(signed: str, said: EpochRecord) -> None:
    ask = asked()
    tally = tally_of(ask, said.kept)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '10s'")
        cursor.execute("SET LOCAL statement_timeout = 0")
        cursor.execute(
            _BEGIN,
            (said.origin, signed, said.approval, said.reason, said.old_origin, said.old, said.old_size, said.old_root,
             said.kept, said.kept_root, tally.pack()),
        )  # fmt: skip
    event = record(
        event_type="log.restored",
        outcome="success",
        actor=None,
        tenant_id=None,
        object_kind="log",
        object_id=said.origin,
        body={
            "record": signed,
            "old_origin": said.old_origin,
            "old_size": said.old_size,
            "old_root": said.old_root,
            "kept": said.kept,
            "kept_root": said.kept_root,
            "approval": said.approval,
            "approvers": list(said.approvers),
            "reason": said.reason,
            "producers": tally.newest_of_all(),
        },
        flags=RESTORE,
    )
    _seal(event)


def _seal(event: Recorded) -> None:
    """The event is leaf 0, and waits no longer."""
    values: dict[str, Any] = {
        name: getattr(event, name)
        for name in ("event_type", "time_us", "tenant_ref", "actor_ref", "outcome", "flags", "producer_id",
                     "producer_seq", "body_hash", "pii_commit")
    }  # fmt: skip
    data = leaf(index=0, event_id=event.event_id.bytes, **values)
    frontier = Frontier()
    frontier.append(leaf_hash(data))
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM audit_pending WHERE event = %s", (event.id,))
        cursor.execute(
            "INSERT INTO audit_leaf (idx, event, time_us, hash, data) VALUES (0, %s, %s, %s, %s)",
            (event.id, event.time_us, leaf_hash(data), data),
        )
        cursor.execute(
            "UPDATE audit_tree SET size = 1, frontier = %s, root = %s, at = clock_timestamp()",
            (frontier.pack(), frontier.root()),
        )
