"""Decides how a log begins, and how it begins again: keys, name and state, made once, together, under the state's lock.

A key that is there without its state, or the other way round, is never completed by guessing: a signer that does not
know what it signed could be made to sign a second history.
"""

import os
import re
import time
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from audit.keyfiles import key_file, public_bytes, verify
from audit.signer.heads import EMPTY, Head
from audit.signer.state import State, StateFile, StateRefused, sync_directory
from kvcore import notes
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
            "one back; with it `signer --new-epoch REASON` makes a new one"
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
    state = State(origin, public, Head(checkpoint.size, checkpoint.root))
    held.save(state, before=before)
    return state


def new_epoch(files: Files, held: StateFile, *, reason: str, now: float) -> tuple[State, str]:
    """The log goes on under a new name and key; returns the new state and a record that both keys signed.

    The old key is kept beside as `<file>.<epoch>`; nothing signs with it any more. The record says where the old log
    ended for whoever was shown it, and why.

    Raises:
        StateRefused: the state is not there, or its name has no epoch.
    """
    keys, old = load(files, held)
    found = re.fullmatch(r"(.+/)([0-9]+)", old.origin)
    if found is None or not reason.strip() or not reason.isprintable():
        raise StateRefused("a new epoch needs a name that ends in a number, and a reason in one line")
    epoch = int(found[2])
    fresh = Ed25519PrivateKey.generate()
    state = State(f"{found[1]}{epoch + 1}", public_bytes(fresh), EMPTY)
    record = _record(old, state, keys.log, fresh, reason, now)
    part = files.log.with_name(f"{files.log.name}.next")
    _write(part, fresh.private_bytes_raw())
    _write(files.state.with_name(f"{files.state.name}.epoch-{epoch + 1}.note"), record.encode())
    os.replace(files.log, files.log.with_name(f"{files.log.name}.{epoch}"))
    os.replace(part, files.log)
    sync_directory(files.log.parent)
    held.save(state, before=old)
    key_file(files.log)
    return state, record


def _record(
    old: State, new: State, old_key: Ed25519PrivateKey, new_key: Ed25519PrivateKey, reason: str, now: float
) -> str:
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    key = VerifierKey(new.origin, notes.ED25519, new.key).text
    text = f"kvconsole/epoch/v1\nold {old.origin} {old.head.size} {old.head.root.hex()}\nnew {key}\nat {at}\n{reason}\n"
    first = notes.note_sign(text, old.origin, notes.ED25519, old.key, old_key.sign)
    second = notes.note_sign(text, new.origin, notes.ED25519, new.key, new_key.sign)
    return first + second.removeprefix(f"{text}\n")


def _write(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)
