"""Decides how the tier `ssd` keeps runs: one encrypted file per run, fsynced, found again after a restart.

Order of a write: value into the key file, file under a temporary name, fsync, rename, fsync of the directory. Order of
a free: value destroyed, file removed. So after a kill at any moment an object either is whole or cannot be read, and
`stored` removes what cannot. An erase is a free that looks afterwards.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from kvcore.blocks import Tier
from nodeagent.tiers.base import BlockRefused, EncKey, Look, Lying, RunMeta, Stored, TierFull
from nodeagent.tiers.objects import (
    BLANK,
    FRONT_BYTES,
    ID_BYTES,
    KeyFile,
    NewObject,
    names_with,
    object_parse,
    object_parts,
    open_with,
)

_HEAD_BYTES = 16 * 1024
"""Enough for the front and the header of a run of 160 blocks."""
WRITERS = 8
"""Files that are made durable at once: their fsyncs share the medium's commits."""
OBJECT_SUFFIX = ".kvo"
Raw = Callable[[], bytes]
"""Reads a run's sealed blocks, checked."""


class DiskTier:
    """Files of a directory of its own. A place is the object's name (16 bytes)."""

    name = Tier.SSD
    persistent = True
    encrypted = True
    emulated = False

    def __init__(self, directory: Path, *, capacity_bytes: int, keys: KeyFile, enc_key: EncKey) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._dir, self._keys, self._enc_key = directory, keys, enc_key
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self._writers = ThreadPoolExecutor(WRITERS, "ssd")

    def write(self, runs: Sequence[tuple[RunMeta, bytes | Raw]], *, look: bool = False) -> list[bytes]:
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
        made = names_with(self._enc_key, self._keys, [meta for meta, _ in runs])
        try:
            writing = [
                self._writers.submit(self._write_one, new, meta, raw, look)
                for new, (meta, raw) in zip(made, runs, strict=True)
            ]
            wait(writing)  # all of them, so that none writes what is being removed below
            for one in writing:
                one.result()
        except (OSError, BlockRefused) as e:
            self._remove([new.name for new in made])
            if isinstance(e, BlockRefused):
                raise
            raise TierFull(f"{self.name}: {e.strerror}") from None
        self._sync_directory()
        self.used_bytes += sum(meta.size_bytes for meta, _ in runs)
        return [new.name for new in made]

    def _write_one(self, new: NewObject, meta: RunMeta, raw: bytes | Raw, look: bool) -> None:
        raw = raw if isinstance(raw, bytes) else raw()
        parts = object_parts(meta, raw, enc=new.enc, value=new.value, name=new.name)
        size = sum(map(len, parts))
        path = self._path(new.name)
        temporary = path.with_suffix(".tmp")
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            if os.writev(fd, parts) != size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(fd)
            if look:
                seen = os.pread(fd, size + 1, 0)
                if len(seen) != size or not (seen.startswith(parts[0]) and seen.startswith(parts[1], len(parts[0]))):
                    raise BlockRefused("readback")
        finally:
            os.close(fd)
        temporary.rename(path)

    def read(self, meta: RunMeta, place: bytes) -> bytes:
        """The run, opened and checked."""
        try:
            blob = self._path(place).read_bytes()
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
        path = f"{self._dir}/{name.hex()}"
        return path + OBJECT_SUFFIX, path + ".tmp"

    def _other(self, file: str) -> str:
        return f"{self._dir}/{Path(file).name}"

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

    def _path(self, name: bytes) -> Path:
        return self._dir / (name.hex() + OBJECT_SUFFIX)

    def _sync_directory(self) -> None:
        fd = os.open(self._dir, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _name_of(file: str) -> bytes | None:
    """The object whose file it is; None if it is no object's."""
    stem, _, suffix = file.rpartition(".")
    try:
        name = bytes.fromhex(stem)
    except ValueError:
        return None
    return name if "." + suffix == OBJECT_SUFFIX and len(name) == ID_BYTES and stem == name.hex() else None
