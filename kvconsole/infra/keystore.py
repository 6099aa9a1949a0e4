"""Decides where secrets of namespaces, nodes, tenants and people live: in files of their own, never in PostgreSQL.

One file per namespace generation (and per node, tenant or person's period) in a directory of mode 0700. A secret is
made once, never changed, and destroyed for good: a marker stays in its place, so nothing can make it again. Backups of
the database therefore hold no key, and destroying the file ends every copy of what was encrypted or keyed with it.
With shred epochs (`keyepochs`) the files are sealed, and copies of destroyed ones end with the epoch.
"""

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from uuid import UUID

from django.conf import settings

from kvconsole.infra.keyepochs import SEALED_BYTES, EpochOver, KeyEpochs, NotSealed, epoch_of

SECRET_BYTES = 32
PERIOD_SECONDS = 90 * 86_400
"""A person's key is replaced after this long, so that what was sealed can be destroyed by period."""
_rehearsed: ContextVar[dict[str, bytes] | None] = ContextVar("kvc_rehearsed_keys", default=None)
FENCE_MARK = "fences"
"""File that names the newest fence: a database that does not know it is older than the key store."""
_GENERATION = re.compile(r"ns-([0-9a-f]{64})-([0-9]{1,18})\.(key|gone)")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class KeyStoreUnavailable(Exception):
    """The key store is not configured or not safe; nothing was read or made."""


class KeyMissing(LookupError):
    """There is no such secret."""


class KeyDestroyed(KeyMissing):
    """The secret was destroyed; it can neither be read nor made again."""


@contextlib.contextmanager
def rehearsal() -> Iterator[None]:
    """What happens inside will be undone: no secret is made or destroyed, `ensure` answers one that is forgotten."""
    token = _rehearsed.set({})
    try:
        yield
    finally:
        _rehearsed.reset(token)


def rehearsing() -> bool:
    """Whether this is a rehearsal: what is outside the database must not be touched."""
    return _rehearsed.get() is not None


def namespace_name(digest: bytes, generation: int) -> str:
    """The secret from which a namespace generation's subkeys come."""
    return f"ns-{digest.hex()}-{generation}"


def node_name(node: UUID | str) -> str:
    """The secret from which a node's ticket keys come."""
    return f"node-{node}"


def tenant_name(tenant: UUID | str) -> str:
    """The secret under which a tenant is named in the audit log."""
    return f"tenant-{tenant}"


def subject_name(subject: str, *, now: float) -> str:
    """The secret under which a person or other actor is named, and its personal data sealed, in this period.

    The subject's id is hashed: the name can be kept beside sealed data without saying whose it is.
    """
    text = f"kvconsole/subject/v1\0{subject}\0{int(now // PERIOD_SECONDS)}"
    return f"subject-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def subject_names(subject: str, since: float, until: float) -> list[str]:
    """The secrets of all periods of a subject between two times, in seconds since 1970; nothing else finds them."""
    periods = range(int(since // PERIOD_SECONDS), int(until // PERIOD_SECONDS) + 1)
    return [subject_name(subject, now=period * PERIOD_SECONDS) for period in periods]


class KeyStore:
    """The file provider (`keyprovider.KeyProvider`)."""

    medium = "unknown"
    """What its directory lies on: files cannot vouch for it."""

    def __init__(self, directory: Path, epochs: KeyEpochs | None = None) -> None:
        self.directory, self.epochs = directory, epochs

    def secret(self, name: str) -> bytes:
        """The secret of this name.

        Raises:
            KeyDestroyed: it was destroyed.
            KeyMissing: it was never made.
            KeyStoreUnavailable: directory or file are not ours alone.
        """
        path = self._path(name)
        if made := (_rehearsed.get() or {}).get(name):
            return made
        blob = self._read(path, name)
        while True:
            try:
                return self._unsealed(blob, name)
            except EpochOver:
                again = self._read(path, name)  # it may have gone over to the next epoch since it was read
                if again == blob:
                    raise KeyDestroyed(name) from None
                blob = again

    def _read(self, path: Path, name: str) -> bytes:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            if self._gone(name).exists():
                raise KeyDestroyed(name) from None
            raise KeyMissing(name) from None
        except OSError as e:
            raise KeyStoreUnavailable(f"{path.name}: {e.strerror}") from e
        with open(fd, "rb") as file:
            if os.fstat(fd).st_mode & 0o077:
                raise KeyStoreUnavailable(f"{path.name} can be read by others")
            blob = file.read(SEALED_BYTES + 1)
        if self._gone(name).exists():  # said before it is wiped: what was read may be zeros, or part of them
            raise KeyDestroyed(name)
        return blob

    def _unsealed(self, blob: bytes, name: str) -> bytes:
        """What a file holds; one that lies there unsealed was made before there were epochs."""
        if len(blob) == SECRET_BYTES:
            return blob
        try:
            if self.epochs is not None:
                return self.epochs.unseal(blob, name)
        except NotSealed:
            pass
        raise KeyStoreUnavailable(f"{name} is damaged, or lies sealed and KVC_SHRED_DIR is not set")

    def ensure(self, name: str) -> bytes:
        """The secret of this name, made now if there was none. It is on disk before anybody sees it.

        Two callers at once get the same one: the first link wins.

        Raises:
            KeyDestroyed: it was destroyed.
            KeyStoreUnavailable: it can neither be read nor made.
        """
        with contextlib.suppress(KeyMissing):
            return self.secret(name)
        if self._gone(name).exists():
            raise KeyDestroyed(name)
        self._check_directory()
        if (rehearsed := _rehearsed.get()) is not None:
            return rehearsed.setdefault(name, secrets.token_bytes(SECRET_BYTES))
        path = self._path(name)
        with self._writing():
            part = self._written(secrets.token_bytes(SECRET_BYTES), name)
            try:
                with contextlib.suppress(FileExistsError):
                    os.link(part, path)
            except OSError as e:
                raise KeyStoreUnavailable(f"{path.name} cannot be made: {e.strerror}") from e
            finally:
                part.unlink(missing_ok=True)
            self._sync()
        if self._gone(name).exists():  # destroyed between our look and our link: the destruction holds
            path.unlink(missing_ok=True)
            self._sync()
            raise KeyDestroyed(name)
        return self.secret(name)

    def _writing(self) -> contextlib.AbstractContextManager[None]:
        return self.epochs.writing() if self.epochs else contextlib.nullcontext()

    def _written(self, secret: bytes, name: str) -> Path:
        """A new file without a name of its own that holds the secret, durable."""
        part = self.directory / f".new-{secrets.token_hex(8)}"
        try:
            blob = self.epochs.seal(secret, name) if self.epochs else secret
            fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with open(fd, "wb") as file:
                file.write(blob)
                file.flush()
                os.fsync(fd)
        except (OSError, NotSealed) as e:
            part.unlink(missing_ok=True)
            raise KeyStoreUnavailable(f"{name} cannot be made: {e}") from e
        return part

    def turn(self) -> int:
        """A new shred epoch has begun and all before it are over; how many secrets went over to it.

        Whoever makes secrets meanwhile goes on. Killed anywhere, nothing is lost, and the next turn ends what is left.

        Raises:
            KeyStoreUnavailable: there are no epochs here, or a secret could not go over; no epoch has ended.
        """
        if self.epochs is None:
            raise KeyStoreUnavailable("KVC_SHRED_DIR is not set")
        self._check_directory()
        before, new = self.epochs.numbers(), self.epochs.begin()
        count = sum(self._went_over(path, new) for path in sorted(self.directory.glob("*.key")))
        with self.epochs.writing(alone=True):
            count += sum(self._went_over(path, new) for path in sorted(self.directory.glob("*.key")))
            self._sync()
            for number in before:
                self.epochs.end(number)
        return count

    def _went_over(self, path: Path, epoch: int) -> bool:
        name = path.stem
        if not self._gone(name).exists():
            try:
                blob = path.read_bytes()
                if len(blob) == SEALED_BYTES and epoch_of(blob) >= epoch:
                    return False
                self._written(self._unsealed(blob, name), name).rename(path)
            except (FileNotFoundError, EpochOver):
                return False
        if self._gone(name).exists():  # destroyed meanwhile: the destruction holds
            self._wiped(path)
            return False
        return True

    def exists(self, name: str) -> bool:
        """Whether there is such a secret."""
        return self._path(name).exists()

    def destroy(self, name: str) -> bool:
        """The secret is gone for good, and the directory says so after a power cut too.

        Returns:
            Whether there was one. Either way it can never be made again.
        """
        self._check_directory()
        path, gone = self._path(name), self._gone(name)
        if rehearsing():
            return path.exists()
        os.close(os.open(gone, os.O_WRONLY | os.O_CREAT, 0o600))
        self._sync()
        there = path.exists()
        if there:
            self._wiped(path)
        return there

    def _wiped(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            with open(path, "r+b") as file:
                file.write(bytes(os.fstat(file.fileno()).st_size))
                file.flush()
                os.fsync(file.fileno())
            path.unlink(missing_ok=True)
        self._sync()

    def was(self, name: str) -> bool:
        """Whether there was such a secret, and it was destroyed."""
        return self._gone(name).exists()

    def generations(self) -> dict[bytes, int]:
        """Digest → the generation below which the namespace was fenced for sure, by what keys there are or were.

        The key of a generation is made when the one before it is fenced.
        """
        found: dict[bytes, int] = {}
        for entry in os.scandir(self.directory) if self.directory.is_dir() else ():
            if (named := _GENERATION.fullmatch(entry.name)) is not None:
                digest, least = bytes.fromhex(named[1]), int(named[2]) + (named[3] == "gone")
                found[digest] = max(found.get(digest, 0), least)
        return found

    def mark_fence(self, seq: int, name: str) -> None:
        """The newest fence of the database is this one, unless a newer one was noted."""
        known = self.fence_mark()
        if known is not None and known[0] >= seq:
            return
        self._check_directory()
        part = self.directory / f".new-{secrets.token_hex(8)}"
        part.write_text(f"{seq} {name}\n")
        part.chmod(0o600)
        part.rename(self.directory / FENCE_MARK)

    def fence_mark(self) -> tuple[int, str] | None:
        """Number and name of the newest fence that was noted."""
        try:
            seq, name = (self.directory / FENCE_MARK).read_text().split()
        except (OSError, ValueError):
            return None
        return int(seq), name

    def problems(self) -> list[str]:
        """Why the store cannot be used; empty when it can."""
        try:
            self._check_directory()
        except KeyStoreUnavailable as e:
            return [str(e)]
        return self.epochs.problems() if self.epochs else []

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise ValueError(f"not a name of a secret: {name!r}")
        return self.directory / f"{name}.key"

    def _gone(self, name: str) -> Path:
        return self.directory / f"{name}.gone"

    def _check_directory(self) -> None:
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            mode = self.directory.stat().st_mode
        except OSError as e:
            raise KeyStoreUnavailable(f"the key store's directory: {e.strerror}") from e
        if mode & 0o077:
            raise KeyStoreUnavailable("the key store's directory is open to others: it must have mode 0700")

    def _sync(self) -> None:
        fd = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def keystore() -> KeyStore:
    """The store that the settings name.

    Raises:
        KeyStoreUnavailable: KVC_KEYSTORE_DIR is not set.
    """
    if not settings.KEYSTORE_DIR:
        raise KeyStoreUnavailable("KVC_KEYSTORE_DIR is not set")
    epochs = KeyEpochs(Path(settings.SHRED_DIR)) if settings.SHRED_DIR else None
    return KeyStore(Path(settings.KEYSTORE_DIR), epochs)
