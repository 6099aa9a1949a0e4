"""Decides under which key the key store's files are sealed, and when that key is gone: shred epochs.

Each secret lies sealed under the key of an epoch, which is kept in a directory of its own (another disk, a mount of a
key service). When an epoch ends, what is still there is sealed anew under the next one's key and the old key is
destroyed: then every copy of a secret that was destroyed meanwhile, in a backup of the key store, on flash, in a
snapshot, is as gone as the secret itself. Called by `keystore`, and by who turns the epoch.
"""

import contextlib
import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
_NUMBER, _NONCE, _TAG = 8, 12, 16
SEALED_BYTES = _NUMBER + _NONCE + KEY_BYTES + _TAG
_LABEL = b"kvconsole/sealed-secret/v1\0"
_NAME = re.compile(r"epoch-([0-9]{8})\.key")


class EpochOver(LookupError):
    """The epoch's key was destroyed: what is sealed under it can be read by nobody."""


class NotSealed(ValueError):
    """This is no secret that was sealed here, or not under this name."""


class KeyEpochs:
    """The keys of a directory, one file an epoch. More than one are there only while one ends."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def numbers(self) -> list[int]:
        """Epochs whose key is there, in order."""
        found = os.listdir(self.directory) if self.directory.is_dir() else []
        return sorted(int(named[1]) for name in found if (named := _NAME.fullmatch(name)))

    def problems(self) -> list[str]:
        """Why they cannot be used; empty when they can."""
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            mode = self.directory.stat().st_mode
        except OSError as e:
            return [f"the directory of shred epochs: {e.strerror}"]
        return ["the directory of shred epochs is open to others: it must have mode 0700"] if mode & 0o077 else []

    def began(self) -> float | None:
        """When the newest epoch began, in seconds since 1970; None before the first."""
        numbers = self.numbers()
        return self._path(numbers[-1]).stat().st_mtime if numbers else None

    def begin(self) -> int:
        """There is an epoch after the newest one, whose key is durable; whatever is sealed from now on is under it."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = max(self.numbers(), default=0) + 1
        part = self.directory / f".new-{secrets.token_hex(8)}"
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(fd, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(fd)
        try:
            with contextlib.suppress(FileExistsError):  # somebody else began the same one
                os.link(part, self._path(number))
        finally:
            part.unlink()
        self._sync()
        return number

    def end(self, number: int) -> None:
        """The epoch's key is gone for good."""
        path = self._path(number)
        with contextlib.suppress(FileNotFoundError):
            with open(path, "r+b") as file:
                file.write(bytes(KEY_BYTES))
                file.flush()
                os.fsync(file.fileno())
            path.unlink()
        self._sync()

    def seal(self, secret: bytes, name: str) -> bytes:
        """The secret under the newest epoch's key, bound to its name."""
        number = (self.numbers() or [self.begin()])[-1]
        front, nonce = number.to_bytes(_NUMBER, "big"), secrets.token_bytes(_NONCE)
        return front + nonce + AESGCM(self._key(number)).encrypt(nonce, secret, _LABEL + front + name.encode())

    def unseal(self, blob: bytes, name: str) -> bytes:
        """The secret.

        Raises:
            EpochOver: nobody can read it any more.
            NotSealed: it was changed, or is another one's.
        """
        if len(blob) != SEALED_BYTES:
            raise NotSealed(name)
        front, nonce, sealed = blob[:_NUMBER], blob[_NUMBER : _NUMBER + _NONCE], blob[_NUMBER + _NONCE :]
        key = self._key(epoch_of(blob))
        try:
            return AESGCM(key).decrypt(nonce, sealed, _LABEL + front + name.encode())
        except InvalidTag:
            if self._key(epoch_of(blob)) != key:  # it was wiped while it was read
                raise EpochOver(str(epoch_of(blob))) from None
            raise NotSealed(name) from None

    @contextlib.contextmanager
    def writing(self, *, alone: bool = False) -> Iterator[None]:
        """What is sealed inside is in its place before the epoch that it is under can end.

        Args:
            alone: nobody else is inside; for who ends an epoch.
        """
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(self.directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            yield
        finally:
            os.close(fd)

    def _key(self, number: int) -> bytes:
        path = self._path(number)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise EpochOver(str(number)) from None
        with open(fd, "rb") as file:
            key = file.read(KEY_BYTES + 1)
            if os.fstat(fd).st_mode & 0o077 or len(key) != KEY_BYTES:
                raise NotSealed(path.name)
        if not any(key):  # `end` has wiped it, and unlinks it next
            raise EpochOver(str(number))
        return key

    def _path(self, number: int) -> Path:
        return self.directory / f"epoch-{number:08d}.key"

    def _sync(self) -> None:
        fd = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def epoch_of(blob: bytes) -> int:
    """The epoch under whose key a sealed secret lies."""
    return int.from_bytes(blob[:_NUMBER], "big")
