"""Decides how the tier `ssd` keeps runs: one encrypted file per run, fsynced, found again after a restart.

Order of a write: value into the key file and file under a temporary name, both fsynced beside each other, then the
names, then fsync of the directory: one fsync for each file, and two for each batch. Order of a free: value destroyed,
file removed. So after a kill at any moment an object either is whole or cannot be read, and `stored` removes what
cannot. An erase is a free that looks afterwards.
"""

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from kvcore.blocks import Tier
from nodeagent.tiers.base import BlockRefused, Bytes, EncKey, Look, Lying, RunMeta, Stored, TierFull
from nodeagent.tiers.objects import (
    BLANK,
    FRONT_BYTES,
    ID_BYTES,
    KeyFile,
    NewObject,
    Room,
    names_with,
    object_into,
    object_parse,
    open_with,
)

_HEAD_BYTES = 16 * 1024
"""Enough for the front and the header of a run of 160 blocks."""
WRITERS = 8
"""Files that are made durable at once: their fsyncs share the medium's commits."""
OBJECT_SUFFIX = ".kvo"
Raw = Callable[[], Bytes]
"""Reads a run's sealed blocks, checked."""


class _Writer(threading.local):
    """What one of those who write works in: an object as it is sealed, and as it is read back."""

    def __init__(self) -> None:
        self.sealed, self.seen = Room(), Room()


class DiskTier:
    """Files of a directory of its own. A place is the object's name (16 bytes)."""

    name = Tier.SSD
    persistent = True
    encrypted = True
    emulated = False

    def __init__(self, directory: Path, *, capacity_bytes: int, keys: KeyFile, enc_key: EncKey) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._dir, self._at, self._keys, self._enc_key = directory, str(directory), keys, enc_key
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self._writers = ThreadPoolExecutor(WRITERS, "ssd")
        self._writer = _Writer()

    def write(self, runs: Sequence[tuple[RunMeta, Bytes | Raw]], *, look: bool = False) -> list[bytes]:
        """Writes one file per run; all are durable when this returns, and with `look` were read back.

        Where a run's bytes are a callable, who writes them reads them, so that several are read beside each other.

        Raises:
            BlockRefused: readback: a file is not what was written; or as the callable raises. Nothing of the batch is
                stored.
        """
        if not runs:
            return []
        if self.used_bytes + sum(meta.size_bytes for meta, _ in runs) > self.capacity_bytes:
            raise TierFull(f"{self.name}: the batch does not fit")
        made = names_with(self._enc_key, self._keys, [meta for meta, _ in runs], durable=False)
        try:
            self._write_all(made, runs, look)
            for new in made:  # now that it and its value are durable
                os.rename(self._file(new.name, ".tmp"), self._file(new.name))
        except (OSError, BlockRefused) as e:
            self._remove([new.name for new in made])
            if isinstance(e, BlockRefused):
                raise
            raise TierFull(f"{self.name}: {e.strerror}") from None
        self._sync_directory()
        self.used_bytes += sum(meta.size_bytes for meta, _ in runs)
        return [new.name for new in made]

    def _write_all(self, made: Sequence[NewObject], runs: Sequence[tuple[RunMeta, Bytes | Raw]], look: bool) -> None:
        """Objects and values are durable, the objects under temporary names.

        One thread reads and checks, before any writes: a digest is so short that beside others it would mostly wait
        for its turn. Those who write seal what it read.
        """
        syncing = self._writers.submit(self._keys.sync)
        try:
            given = [raw() if callable(raw) else raw for _, raw in runs]
        finally:
            wait([syncing])
        writing = [syncing]
        writing += [
            self._writers.submit(self._write_one, new, meta, raw, look)
            for new, (meta, _), raw in zip(made, runs, given, strict=True)
        ]
        wait(writing)  # all of them, so that none writes what is removed then
        for one in writing:
            one.result()

    def _write_one(self, new: NewObject, meta: RunMeta, raw: Bytes, look: bool) -> None:
        """The object is durable under its temporary name. Sealing it is the only copy that is made of it here."""
        mine = self._writer
        size = object_into(mine.sealed, meta, raw, enc=new.enc, value=new.value, name=new.name)
        sealed = mine.sealed.view(size)
        with open(self._file(new.name, ".tmp"), "w+b", buffering=0, opener=_private) as file:
            if file.write(sealed) != size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
            if look:
                file.seek(0)
                read = file.readinto(mine.seen.view(size + 1))
                if not mine.seen.same(read or 0, sealed):
                    raise BlockRefused("readback")

    def read(self, meta: RunMeta, place: bytes) -> bytes:
        """The run, opened and checked."""
        try:
            blob = Path(self._file(place)).read_bytes()
        except OSError:
            raise BlockRefused("missing") from None
        return open_with(self._enc_key, self._keys, meta, place, blob)

    def free(self, runs: Sequence[tuple[RunMeta, bytes]]) -> None:
        """Destroys the objects' values, then removes their files."""
        self._remove([place for _, place in runs])
        self.used_bytes -= sum(meta.size_bytes for meta, _ in runs)

    def _remove(self, names: list[bytes]) -> list[bytes]:
        """Destroys values and files; what is read back of the values."""
        read = self._keys.destroy(names)
        for name in names:
            for file in self._files(name):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(file)
        return read

    def erase(self, runs: Sequence[tuple[RunMeta, bytes]], look: Look) -> None:
        """Destroys values and files, then looks for both: in the key file and by name."""
        self.scour([place for _, place in runs], look)
        self.used_bytes -= sum(meta.size_bytes for meta, _ in runs)

    def scour(self, places: Sequence[bytes | str], look: Look) -> None:
        """Destroys objects (by name) and other files of the directory (by file name), and looks for them."""
        names = [p for p in places if isinstance(p, bytes)]
        others = [self._other(p) for p in places if isinstance(p, str)]
        read = self._remove(names)
        for file in others:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file)
        self._sync_directory()
        for name, value in zip(names, read, strict=True):
            gone = not any(map(os.path.lexists, self._files(name)))
            look.saw(name + bytes([gone]) + value, clean=gone and value in (b"", BLANK))
        for file in others:
            look.saw(file.encode(), clean=not os.path.lexists(file))

    def remains(self, places: Sequence[bytes | str]) -> list[bytes | str]:
        """Objects and files that are there now."""
        return [p for p in places if os.path.lexists(self._files(p)[0] if isinstance(p, bytes) else self._other(p))]

    def lying(self, without: Collection[object] = ()) -> Iterator[Lying]:
        """Each file of the directory: objects by name, others by file name, and what their headers say."""
        for entry in os.scandir(self._dir):
            place = _name_of(entry.name) or entry.name
            if place in without:
                continue
            try:
                with open(entry.path, "rb") as f:
                    meta = object_parse(f.read(_HEAD_BYTES)).meta
            except FileNotFoundError:  # it went while we looked
                continue
            except (OSError, BlockRefused):
                meta = None
            yield Lying(meta, place)

    def _files(self, name: bytes) -> tuple[str, str]:
        """Where an object is, and where it was while it was written."""
        return self._file(name), self._file(name, ".tmp")

    def _file(self, name: bytes, suffix: str = OBJECT_SUFFIX) -> str:
        return f"{self._at}/{name.hex()}{suffix}"

    def _other(self, file: str) -> str:
        return f"{self._at}/{Path(file).name}"

    def stored(self) -> Iterable[Stored]:
        """What is whole, parents before children where depth tells; what is not is removed."""
        found, known = [], self._keys.names()
        for path in sorted(self._dir.iterdir()):
            entry = self._parse(path)
            if entry is None or entry.place not in known:
                path.unlink()
            else:
                found.append(entry)
        self.used_bytes = sum(x.meta.size_bytes for x in found)
        return sorted(found, key=lambda x: x.meta.depth)

    def _parse(self, path: Path) -> Stored | None:
        try:
            name = bytes.fromhex(path.stem)
            with path.open("rb") as f:
                parsed = object_parse(f.read(_HEAD_BYTES))
                whole = os.fstat(f.fileno()).st_size == parsed.size
        except (ValueError, BlockRefused):
            return None
        good = whole and path.suffix == OBJECT_SUFFIX and len(name) == ID_BYTES and parsed.body_at > FRONT_BYTES
        return Stored(parsed.meta, name) if good else None

    def close(self) -> None:
        """Ends the writers; every write is already durable."""
        self._writers.shutdown()

    def _sync_directory(self) -> None:
        fd = os.open(self._dir, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _name_of(file: str) -> bytes | None:
    """The object whose file it is; None if it is no object's."""
    stem, _, suffix = file.rpartition(".")
    try:
        name = bytes.fromhex(stem)
    except ValueError:
        return None
    return name if "." + suffix == OBJECT_SUFFIX and len(name) == ID_BYTES and stem == name.hex() else None
