"""Decides when the log is signed: at most once a second while it grows, each minute while it does not.

The signer, which has no database, is shown that the tree grew from what it signed last; then the witness, where
there is one, is shown the same. A signer that refuses says that this is not the log it signed: that is a finding, an
event and a state that pages show, and what people do goes on. Run by the sequencer's process, in a thread of its own.
"""

import contextlib
import logging
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from django.conf import settings
from django.db import Error, connection, transaction

from audit import signing
from audit.beginning import epoch_begin, first_leaf
from audit.findings import finding_open, findings_settle
from audit.keyfiles import verify
from audit.tree import LogTorn, Sizes, asked, node_reader, tree_now
from kvconsole.infra import nudge
from kvcore.notes import NoteError, checkpoint_parse, note_open, note_text
from kvcore.proofs import Node, consistency, root_at

LEAST_SECONDS = 1.0
HEARTBEAT_SECONDS = 60.0
KIND = "signer-refused"
REFUSED_SECONDS = 10.0
"""After a refusal the signer is asked again so much later."""
WITNESS_REST_SECONDS = 10.0
"""A witness that did not answer is left alone for so long, so that heads are signed in time."""
LOG = "log"
"""Topic of `infra.nudge`: there is a new signed head of this size."""

_log = logging.getLogger("kvc.checkpoints")
Answer = str | signing.NotAnswered


class Known(NamedTuple):
    """What was signed and cosigned last, as the database has it."""

    size: int
    witness_size: int


def head_sign() -> str:
    """The log as it is now is signed, or why not is known; the state of the signer: ok, refused, away or empty.

    Raises:
        django.db.Error: the database is away.
    """
    tree = tree_now()
    if not tree.size:
        return "empty"
    known = _known()
    try:
        node = node_reader()
        if root_at(tree.size, node) != tree.root:
            return _refused(tree, known, signing.NotAnswered("log-torn", "the root is not that of the leaves"))
        answer = _head(tree, known.size, node)
    except (LogTorn, ValueError) as e:
        return _refused(tree, known, signing.NotAnswered("log-torn", str(e)))
    if isinstance(answer, signing.NotAnswered) and answer.code == "epoch-not-begun":
        return _begun(tree, known)
    if isinstance(answer, signing.NotAnswered):
        if answer.final or answer.code in ("stale-size", "log-shrunk", "log-fork"):
            return _refused(tree, known, answer)
        _state("signer = 'away', signer_why = %s", (answer.code,))
        return "away"
    _state(
        "size = %s, root = %s, note = %s, signed_at = clock_timestamp(), signer = 'ok', signer_why = ''",
        (tree.size, tree.root, answer),
    )
    findings_settle(kinds=(KIND,), why="signed")
    return "ok"


def head_keep(*, witness: bool) -> None:
    """The newest signed head is kept for good, with the witness's line where one is asked for and answers."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT size, root, note, signed_at, witness_size FROM audit_signing")
        size, root, note, signed_at, witness_size = cursor.fetchone()
    if witness:
        line = _cosigned(size, witness_size, note)
        if isinstance(line, str):
            note += line
            _state(
                "note = %s, witness = 'ok', witness_why = '', witness_size = %s, cosigned_at = clock_timestamp()",
                (note, size),
            )
        else:
            _state("witness = %s, witness_why = %s", ("refused" if line.final else "away", line.code))
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO audit_checkpoint (size, root, note, signed_at) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT (size) DO NOTHING",
            (size, bytes(root), note, signed_at),
        )


# --- inside ---------------------------------------------------------------------


def _begun(tree: Sizes, known: Known) -> str:
    """The signer is one of another log, which goes on after this one: it begins, or why not is known."""
    keys = signing.public_keys()
    if isinstance(keys, signing.NotAnswered):
        _state("signer = 'away', signer_why = %s", (keys.code,))
        return "away"
    began = asked()("SELECT FROM audit_epoch WHERE record = %s", (keys.record,))
    why = "log-fork" if began else epoch_begin(keys.record)
    if why:
        return _refused(tree, known, signing.NotAnswered(why))
    _log.warning("%s begins; the log before it ended", keys.origin)
    return "away"


def _head(tree: Sizes, old: int, node: Node) -> Answer:
    """The signer's answer; asked again where it signed another size last than the database says."""
    known, old = old, min(old, tree.size)
    forgot = None
    first = first_leaf(tree.size) if tree.epoch > 1 and not known else None
    for _ in range(2):
        proof = consistency(old, tree.size, node)
        answer = signing.checkpoint(old_size=old, new_size=tree.size, new_root=tree.root, proof=proof, first=first)
        if isinstance(answer, str) or answer.code != "stale-size" or answer.size is None:
            break
        if answer.size > tree.size:
            return signing.NotAnswered("log-shrunk", final=True, size=answer.size)
        old = answer.size
        forgot = old if old < known else None
    if isinstance(answer, str):
        try:
            said = checkpoint_parse(note_text(answer))
        except NoteError as e:
            return signing.NotAnswered("note-malformed", e.code)
        if (said.size, said.root) != (tree.size, tree.root):
            return signing.NotAnswered("note-of-another-head")
        if forgot is not None:
            _forgot(forgot, known, said.origin)
    return answer


def _forgot(size: int, known: int, origin: str) -> None:
    """The signer knew less than it had signed under this name: its state was set back, or key and state are new."""
    ((note,),) = asked()("SELECT note FROM audit_signing", ())
    with contextlib.suppress(NoteError):
        if checkpoint_parse(note_text(note)).origin == origin:
            detail = f"{known} leaves were signed, and the signer knew of {size}"
            finding_open(
                kind="signer-set-back",
                subject=f"{size}/{known}",
                first_index=size,
                detail=detail,
                event_type="log.divergence_found",
                body={"kind": "signer-set-back", "index": size, "detail": detail},
            )


def _cosigned(size: int, old: int, note: str) -> Answer:
    node = node_reader()
    old = min(old, size)
    for _ in range(2):
        try:
            answer = signing.cosign(old_size=old, proof=consistency(old, size, node), note=note)
        except LogTorn as e:
            return signing.NotAnswered("log-torn", str(e))
        if isinstance(answer, str) or answer.code != "stale-size" or answer.size is None or answer.size > size:
            break
        old = answer.size
    return answer


def _refused(tree: Sizes, known: Known, why: signing.NotAnswered) -> str:
    signed = known.size if why.size is None else why.size
    with transaction.atomic():
        _state("signer = 'refused', signer_why = %s", (why.code,))
        finding_open(
            kind=KIND,
            subject=why.code,
            first_index=tree.size if signed > tree.size else _holds(tree.size) if why.code == "log-fork" else None,
            detail=f"{tree.size} leaves are here, {signed} were signed: {why.code} {why.detail}".strip(),
            event_type="log.refused_by_signer",
            body={"code": why.code, "size": tree.size, "signed_size": signed},
        )
    return "refused"


def _holds(size: int) -> int | None:
    """So many leaves are those that were signed, by the heads that are kept; None: it was told already.

    The first leaf that differs is there, or behind it and before the next head.
    """
    ask, node, key = asked(), node_reader(), signing.log_key()
    if ask("SELECT FROM audit_finding WHERE kind = %s AND subject = %s AND resolved_at IS NULL", (KIND, "log-fork")):
        return None

    def differs(head: int) -> bool:
        ((note,),) = ask("SELECT note FROM audit_checkpoint WHERE size = %s", (head,))
        try:
            text = note_open(note, [key], verify).text if key else note_text(note)
            return checkpoint_parse(text).root != root_at(head, node)
        except (NoteError, LogTorn):
            return True

    rows = ask("SELECT size FROM audit_checkpoint WHERE size <= %s ORDER BY size", (size,))
    heads: list[int] = [head for (head,) in rows]
    return [0, *heads][bisect_left(heads, True, key=differs)]


def _known() -> Known:
    ((size, witness_size),) = asked()("SELECT size, witness_size FROM audit_signing", ())
    return Known(size, witness_size)


def _state(what: str, values: Sequence[Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE audit_signing SET {what}", values)  # noqa: S608 - words of this file


class Signer:
    """The thread that asks; `grown` wakes it, `torn` is told when the tree is not that of its leaves."""

    def __init__(self, leads: Callable[[], bool], torn: Callable[[], None] = lambda: None) -> None:
        self.leads, self.torn = leads, torn
        self.grown, self.stopping = threading.Event(), threading.Event()
        self._witness_rests_until = 0.0

    def run(self) -> None:
        """Signs until told to stop, whatever becomes of the database, the signer and the witness."""
        due = 0.0
        while not self.stopping.is_set():
            self.grown.wait(min(LEAST_SECONDS, max(0.0, due - time.monotonic())))
            if self.stopping.is_set() or not self.leads() or not (self.grown.is_set() or time.monotonic() >= due):
                self.stopping.wait(0.02)
                continue
            begin = time.monotonic()
            self.grown.clear()
            due = begin + self._once()
            self.stopping.wait(max(0.0, LEAST_SECONDS - (time.monotonic() - begin)))
        connection.close()

    def _once(self) -> float:
        """Seconds until the next time, if the log does not grow before."""
        try:
            state = head_sign()
            if state != "ok":
                self._tell(state)
                return REFUSED_SECONDS if state == "refused" else LEAST_SECONDS
            witness = bool(settings.WITNESS_URL) and time.monotonic() >= self._witness_rests_until
            begin = time.monotonic()
            head_keep(witness=witness)
            if time.monotonic() - begin > LEAST_SECONDS:
                self._witness_rests_until = time.monotonic() + WITNESS_REST_SECONDS
            nudge.wake(LOG, 0)
        except Error:
            _log.exception("the log was not signed; trying again")
            connection.close()
            return LEAST_SECONDS
        return HEARTBEAT_SECONDS

    def _tell(self, state: str) -> None:
        if state == "refused":
            ((why,),) = asked()("SELECT signer_why FROM audit_signing", ())
            if why == "log-torn":
                self.torn()
