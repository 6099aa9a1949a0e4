"""Decides how a log begins, and how it begins again: keys, name and state, made once, together, under the state's lock.

A key that is there without its state, or the other way round, is never completed by guessing: a signer that does not
know what it signed could be made to sign a second history.
"""

import os
import re
import time
from pathlib import Path
from typing import NamedTuple

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from audit.asked import EpochOrder, Kept, strict
from audit.keyfiles import key_file, public_bytes, verify
from audit.signer.heads import EMPTY, Head
from audit.signer.state import State, StateFile, StateRefused, sync_directory
from kvcore import notes
from kvcore.epochs import EpochRecord, record_text
from kvcore.notes import VerifierKey


class Files(NamedTuple):
    """Where a signer keeps what it has."""

    command: Path
    log: Path
    export: Path
    state: Path


class Keys(NamedTuple):
    """The three keys: of commands, of the log, of exports."""

    command: Ed25519PrivateKey
    log: Ed25519PrivateKey
    export: Ed25519PrivateKey


def origin_of(domain: str, region: str, epoch: int) -> str:
    """The log's name: `<domain>/log/<region>/<epoch>`."""
    return f"{domain}/log/{region}/{epoch}"


def export_name(origin: str) -> str:
    """The name under which bundles of a log are signed. Source: docs/bundle.md."""
    return f"{origin}/export"


def begin(files: Files, held: StateFile, *, origin: str) -> None:
    """Keys and state of a new log are there; one that is there already stays as it is.

    Raises:
        StateRefused: the log's key is there, its state is not.
        KeyFileRefused: a key file is not as it must be.
    """
    key_file(files.command, make=True)
    key_file(files.export, make=True)
    if held.exists():
        return
    if files.log.exists():
        raise StateRefused(
            f"the log's key is there, what it signed last is not: {files.state}. With the newest checkpoint in a file: "
            "`signer --adopt FILE`. See the runbook"
        )
    key = key_file(files.log, make=True)
    held.save(State(origin, public_bytes(key), EMPTY), before=None)


def load(files: Files, held: StateFile) -> tuple[Keys, State]:
    """What is there, if it belongs together.

    Raises:
        StateRefused: the state is missing or damaged, or of another key.
        KeyFileRefused: a key file is missing or not as it must be.
    """
    state = held.load()
    keys = Keys(key_file(files.command), key_file(files.log), key_file(files.export))
    if public_bytes(keys.log) != state.key:
        raise StateRefused(
            f"{files.log} is not the key that signed {state.origin}: a log has one key. Put that "
            "one back; with it `signer --new-epoch FILE` makes a new one"
        )
    return keys, state


def adopt(files: Files, held: StateFile, note: str) -> State:
    """The state is that of a checkpoint which the log's own key signed: for a state file that was lost or is older.

    Raises:
        StateRefused: the key did not sign it, or the state is there and not older.
    """
    key = key_file(files.log)
    public = public_bytes(key)
    before = held.load() if held.exists() else None
    try:
        origin = notes.checkpoint_parse(notes.note_text(note)).origin
        opened = notes.note_open(note, [VerifierKey(origin, notes.ED25519, public)], verify)
        checkpoint = notes.checkpoint_parse(opened.text)
    except notes.NoteError as e:
        raise StateRefused(f"this is no checkpoint of the log's key: {e}") from e
    if before is not None and (before.origin != origin or before.head.size >= checkpoint.size):
        raise StateRefused(f"the state is there, and of size {before.head.size} of {before.origin}")
    record = before.record if before is not None else ""
    state = State(origin, public, Head(checkpoint.size, checkpoint.root), record)
    held.save(state, before=before)
    return state


def is_epoch(origin: str, of: str) -> bool:
    """Whether the name is that of this log, or of one that ended before it began."""
    place, _, number = origin.rpartition("/")
    now, _, newest = of.rpartition("/")
    good = number.isascii() and number.isdecimal() and newest.isdecimal() and str(int(number)) == number
    return origin == of or (place == now and good and 0 < int(number) < int(newest))


def new_epoch(files: Files, held: StateFile, raw: bytes, *, now: float) -> State:
    """The log goes on under a new name and key, as two people agreed; the new state has the record that both keys sign.

    The old key is kept beside as `<file>.<epoch>`; nothing signs with it any more. Nothing is signed under the new name
    before a log is shown that begins with the record.

    Args:
        files, held: of the log that ends.
        raw: the order (`asked.EpochOrder`), as the console gives it once it is approved.
        now: seconds since 1970.

    Raises:
        StateRefused: the order is not one of this log, what was kept is not what its key signed, the state is not
            there, or its name has no epoch.
    """
    keys, old = load(files, held)
    order = _order(raw)
    found = re.fullmatch(r"(.+/)([0-9]+)", old.origin)
    if found is None:
        raise StateRefused("a new epoch needs a name that ends in a number")
    if order.origin != old.origin:
        raise StateRefused(f"the order is one of {order.origin}, and this is the signer of {old.origin}")
    _check_kept(order.kept, old)
    epoch = int(found[2])
    fresh, name = Ed25519PrivateKey.generate(), f"{found[1]}{epoch + 1}"
    state = State(name, public_bytes(fresh), EMPTY)
    state = state._replace(record=_record(old, state, keys, fresh, order, now))
    part = files.log.with_name(f"{files.log.name}.next")
    _write(part, fresh.private_bytes_raw())
    _write(files.state.with_name(f"{files.state.name}.epoch-{epoch + 1}.note"), state.record.encode())
    os.replace(files.log, files.log.with_name(f"{files.log.name}.{epoch}"))
    os.replace(part, files.log)
    sync_directory(files.log.parent)
    held.save(state, before=old)
    key_file(files.log)
    return state


def _order(raw: bytes) -> EpochOrder:
    try:
        found = msgspec.convert(strict(raw), EpochOrder)
    except (ValueError, msgspec.ValidationError) as e:
        raise StateRefused(f"this is no order of a new epoch: {e}") from e
    if found.approvers[0] == found.approvers[1] or "0" * 32 in found.approvers:
        raise StateRefused("a new epoch needs two people who agree")
    return found


def _check_kept(kept: Kept, old: State) -> None:
    """What is still there is a part of what was signed: the old key itself signed it."""
    head = Head(kept.size, bytes.fromhex(kept.root))
    if kept.size == 0 and head == EMPTY and not kept.note:
        return
    try:
        opened = notes.note_open(kept.note, [VerifierKey(old.origin, notes.ED25519, old.key)], verify)
        said = notes.checkpoint_parse(opened.text)
    except notes.NoteError as e:
        raise StateRefused(f"what was kept is no checkpoint of {old.origin}: {e}") from e
    if (said.origin, said.size, said.root) != (old.origin, *head):
        raise StateRefused("what was kept is not what its checkpoint says")
    if head.size > old.head.size or (head.size == old.head.size and head != old.head):
        raise StateRefused(f"of {old.head.size} leaves that were signed {head.size} cannot have been kept")


def _record(old: State, new: State, keys: Keys, fresh: Ed25519PrivateKey, order: EpochOrder, now: float) -> str:
    old_key = VerifierKey(old.origin, notes.ED25519, old.key)
    new_key = VerifierKey(new.origin, notes.ED25519, new.key)
    export = VerifierKey(export_name(new.origin), notes.ED25519, public_bytes(keys.export))
    said = EpochRecord(
        old=old_key.text, old_size=old.head.size, old_root=old.head.root, kept=order.kept.size,
        kept_root=bytes.fromhex(order.kept.root), new=new_key.text, export=export.text, approval=order.approval,
        approvers=order.approvers, at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)), reason=order.reason,
    )  # fmt: skip
    text = record_text(said)
    first = notes.note_sign(text, *old_key, keys.log.sign)
    second = notes.note_sign(text, *new_key, fresh.sign)
    return first + second.removeprefix(f"{text}\n")


def _write(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)
