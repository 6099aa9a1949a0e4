"""Decides what a witness answers to a log that asks it to cosign a checkpoint.

Pure; the store and the signing come in. Source: C2SP tlog-witness v1.0.0, `add-checkpoint`, and tlog-cosignature.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import NamedTuple

from audit.keyfiles import verify
from kvcore import notes
from kvcore.notes import Checkpoint, NoteError, VerifierKey
from kvcore.proofs import EMPTY_ROOT, verify_consistency

MOST_PROOF = 63
_OLD = re.compile(r"old (0|[1-9][0-9]{0,18})", re.ASCII)


class Refusal(NamedTuple):
    """An answer without a signature; `size` is what was cosigned last, where the log must be told."""

    status: int
    text: str
    size: int | None = None


class Asked(NamedTuple):
    """A checkpoint whose signature by a known log is good, and what is to show that the log only grew."""

    old: int
    proof: list[bytes]
    note: str
    checkpoint: Checkpoint


def read(body: bytes, logs: Mapping[str, list[VerifierKey]]) -> Asked | Refusal:
    """What is asked, as far as that can be judged without knowing what was cosigned before.

    Args:
        body: of the request.
        logs: origin → keys of the log; others are not known.
    """
    try:
        head, found, note = body.decode().partition("\n\n")
        lines = head.split("\n")
        old = _OLD.fullmatch(lines[0])
        if not found or old is None or len(lines) > 1 + MOST_PROOF:
            return Refusal(400, "a line `old`, at most 63 hashes, an empty line and a checkpoint are wanted")
        proof = [_hash(line) for line in lines[1:]]
        checkpoint = notes.checkpoint_parse(notes.note_text(note))
    except (ValueError, NoteError) as e:
        return Refusal(400, str(e))
    if checkpoint.origin not in logs:
        return Refusal(404, "a log that is not known here")
    try:
        notes.note_open(note, logs[checkpoint.origin], verify)
    except NoteError as e:
        return Refusal(403, str(e))
    if int(old[1]) > checkpoint.size:
        return Refusal(400, "the old size is above the checkpoint's")
    return Asked(int(old[1]), proof, note, checkpoint)


def refusal(asked: Asked, last: Checkpoint | None) -> Refusal | None:
    """None where the checkpoint follows what was cosigned last (None: nothing yet), so that it may be cosigned."""
    size, root = (last.size, last.root) if last else (0, EMPTY_ROOT)
    new = asked.checkpoint
    if asked.old != size:
        return Refusal(409, f"{size}\n", size)
    if new.size == size and new.root != root:
        return Refusal(409 if size else 422, "another tree of this size")
    if asked.proof and (size == 0 or new.size == size):
        return Refusal(422, "a proof where none is needed")
    if not verify_consistency(size, new.size, asked.proof, root, new.root):
        return Refusal(422, "the proof does not show that the log only grew")
    return None


def logs_of(vkeys: list[str]) -> dict[str, list[VerifierKey]]:
    """The logs that are known, by origin; an origin is the name of its key.

    Raises:
        NoteError: one is no key of a log.
    """
    found: dict[str, list[VerifierKey]] = {}
    for text in vkeys:
        key = notes.vkey_parse(text)
        if key.kind != notes.ED25519:
            raise NoteError("key-kind", f"{key.name} is no key of a log")
        found.setdefault(key.name, []).append(key)
    return found


def _hash(line: str) -> bytes:
    try:
        found = base64.b64decode(line, validate=True)
    except binascii.Error:
        found = b""
    if len(found) != 32 or base64.b64encode(found).decode() != line:
        raise ValueError("a proof line is no hash")
    return found
