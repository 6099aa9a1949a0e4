"""Decides how the signer remembers what it signed last: one small file that only moves forward, and one owner of it.

The file is on the disk, whole, before a signature leaves. Not in the database, nor in its backups: a database that was
set back meets a signer that was not.
"""

import fcntl
import hashlib
import json
import os
from pathlib import Path
from typing import NamedTuple

import rfc8785

from audit.signer.heads import Head
from kvcore.proofs import EMPTY_ROOT


class StateRefused(Exception):
    """The file is missing, damaged, another's, or in use; says which. Nothing may be signed."""


class State(NamedTuple):
    """Which log this is, the public key (32 bytes) that signs it, what was signed last, and how it goes on after
    another log: the record that both keys signed; "" = it is the first."""

    origin: str
    key: bytes
    head: Head
    record: str = ""


class StateFile:
    """The file, held by one process; `close` lets go of it."""

    def __init__(self, path: Path) -> None:
        """The file is ours: beside it `<path>.lock` is locked until `close`, or until the process ends.

        Raises:
            StateRefused: another process holds it, or its directory cannot be written.
        """
        self.path = path
        try:
            self._lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as e:
            raise StateRefused(f"the signer's state: {e.strerror}: {path.parent}") from e
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            os.close(self._lock)
            raise StateRefused(f"another signer works with this state: {path}") from e

    def close(self) -> None:
        """Another process may have it."""
        os.close(self._lock)

    def exists(self) -> bool:
        """Whether anything was ever signed or set up."""
        return self.path.exists()

    def load(self) -> State:
        """What the file says.

        Raises:
            StateRefused: it is missing, open to others, or not as it was written.
        """
        try:
            raw, mode = self.path.read_bytes(), self.path.stat().st_mode
        except OSError as e:
            raise StateRefused(f"the signer's state: {e.strerror}: {self.path}") from e
        if mode & 0o077:
            raise StateRefused(f"the signer's state is open to others: {self.path} must have mode 0600")
        try:
            found = json.loads(raw)
            head = Head(found["size"], bytes.fromhex(found["root"]))
            state = State(found["origin"], bytes.fromhex(found["key"]), head, found.get("record", ""))
            whole = _bytes(state) == raw and len(state.key) == len(state.head.root) == 32
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            whole = False
        if not whole or (state.head.size == 0) != (state.head.root == EMPTY_ROOT):
            raise StateRefused(f"the signer's state is damaged: {self.path}")
        return state

    def save(self, state: State, *, before: State | None) -> None:
        """The file says `state`, also after the power went.

        Args:
            state: what it says then.
            before: what it says now; None: there is none.

        Raises:
            StateRefused: it says something else by now, so that somebody else wrote it.
            OSError: it was not written; nothing may be signed by it.
        """
        if (self.load() if self.exists() else None) != before:
            raise StateRefused(f"somebody else wrote the signer's state: {self.path}")
        part = self.path.with_name(f".{self.path.name}.new")
        part.unlink(missing_ok=True)
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(_bytes(state))
            file.flush()
            os.fsync(fd)
        os.replace(part, self.path)
        sync_directory(self.path.parent)


def sync_directory(path: Path) -> None:
    """What was made, renamed or removed in the directory stays so when the power goes."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _bytes(state: State) -> bytes:
    """The file's content; `sum` is over the rest, so that damage is not taken for another state."""
    fields: dict[str, str | int] = {
        "key": state.key.hex(), "origin": state.origin, "root": state.head.root.hex(), "size": state.head.size, "v": 1
    }  # fmt: skip
    if state.record:
        fields["record"] = state.record
    total = hashlib.sha256(rfc8785.dumps(dict(fields))).hexdigest()
    return rfc8785.dumps({**fields, "sum": total}) + b"\n"
