"""Decides how the files of a bundle grow on disk: deflated slice by slice, and the same bytes whoever resumes them.

Each slice is deflated by itself and ends at a byte: a file that was cut back to the end of a slice goes on as if
nothing had been. What a zip says of a file (its hashes, both sizes) is kept as it grows and made again when it resumes.
"""

import hashlib
import os
import shutil
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

LEVEL = 1
"""zlib's; most of a record is hashes, which no level makes smaller."""
LIMIT = 2**32 - 1
"""Sizes and places from here on stand in fields of 64 bits (zip64), and smaller ones never do: one form of each zip."""
MOST = 64 << 30
"""A bundle, unpacked, has no more, and its zip less: what the verifier takes."""
HEADERS = 600
"""Of a file in a zip they take less: twice its name of 200 bytes at most, and some 150."""
CHUNK = 1 << 20
_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END = struct.Struct("<4sHHHHIIH")
_NEAR, _PLACED = struct.Struct("<HHQQ"), struct.Struct("<HHQQQ")
_END64, _LOCATOR = struct.Struct("<4sQHHIIQQQQ"), struct.Struct("<4sIQI")
_FAR = 0xFFFFFFFF
_DATE, _MODE = 0x0021, 0x81A40000


class TooLarge(ValueError):
    """The bundle would be larger than the verifier takes; a larger export is several bundles."""


class Entry(NamedTuple):
    """One file of a zip: stored (`content`), or deflated beforehand (`packed`)."""

    name: str
    size: int
    crc: int
    sha256: str
    rows: int | None = None
    content: bytes = b""
    packed: Path | None = None
    packed_size: int = 0
    packed_sha256: str = ""

    def described(self) -> dict[str, Any]:
        """As the manifest says it."""
        found: dict[str, Any] = {"bytes": self.size, "path": self.name, "sha256": self.sha256}
        if self.packed is not None:
            found["packed"] = {"bytes": self.packed_size, "sha256": self.packed_sha256}
        return found if self.rows is None else found | {"rows": self.rows}


def stored(name: str, content: bytes, rows: int | None = None) -> Entry:
    """A small file, as it is."""
    return Entry(name, len(content), zlib.crc32(content), hashlib.sha256(content).hexdigest(), rows, content)


class Part:
    """A file that grows in slices."""

    def __init__(self, path: Path, *, upto: int = 0) -> None:
        """The file as it was when `upto` packed bytes were in it; what came after is gone."""
        self.path, self.size, self.packed_size, self.crc = path, 0, upto, 0
        self._sha, self._packed_sha = hashlib.sha256(), hashlib.sha256()
        self._file: IO[bytes] = open(path, "r+b" if path.exists() else "w+b")  # noqa: SIM115 (it grows for minutes)
        self._file.truncate(upto)
        if upto:
            self._reread()
        self._file.seek(upto)

    def add(self, data: bytes) -> None:
        """One slice more."""
        packer = zlib.compressobj(LEVEL, zlib.DEFLATED, -15)
        self._append(data, packer.compress(data) + packer.flush(zlib.Z_FULL_FLUSH))

    def sync(self) -> int:
        """All of it is on disk; how many packed bytes that is."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self.packed_size

    def close(self) -> None:
        """Nothing is written any more."""
        self._file.close()

    def entry(self, name: str, rows: int | None = None) -> Entry:
        """The finished file as a part of the zip."""
        self._append(b"", zlib.compressobj(LEVEL, zlib.DEFLATED, -15).flush(zlib.Z_FINISH))
        self.sync()
        self.close()
        return Entry(
            name, self.size, self.crc, self._sha.hexdigest(), rows, b"", self.path, self.packed_size,
            self._packed_sha.hexdigest(),
        )  # fmt: skip

    def _append(self, data: bytes, packed: bytes) -> None:
        self._file.write(packed)
        self._count(data, packed)
        self.packed_size += len(packed)
        if self.size > MOST:
            raise TooLarge(self.path.name)

    def _count(self, data: bytes, packed: bytes) -> None:
        self.size += len(data)
        self.crc = zlib.crc32(data, self.crc)
        self._sha.update(data)
        self._packed_sha.update(packed)

    def _reread(self) -> None:
        self._file.seek(0)
        reader = zlib.decompressobj(-15)
        while packed := self._file.read(CHUNK):
            self._count(reader.decompress(packed), packed)


def write_zip(path: Path, entries: Sequence[Entry], *, limit: int = LIMIT) -> None:
    """The file is a zip of these entries, on disk, in the one form that `docs/bundle.md` allows.

    Args:
        path: of the zip.
        entries: its files, in their order.
        limit: from which size on it is zip64.

    Raises:
        TooLarge: it would hold more than `MOST`, or take as much itself; there is no file.
    """
    packed = sum(_packed(entry) + HEADERS for entry in entries)
    if sum(entry.size for entry in entries) > MOST or packed >= MOST:
        raise TooLarge(path.name)
    part = path.with_suffix(".part")
    with part.open("wb") as out:
        offsets = []
        for entry in entries:
            offsets.append(out.tell())
            out.write(_local(entry, limit))
            if entry.packed is None:
                out.write(entry.content)
            else:
                with entry.packed.open("rb") as source:
                    shutil.copyfileobj(source, out, CHUNK)
        directory = b"".join(_central(entry, at, limit) for entry, at in zip(entries, offsets, strict=True))
        out.write(directory + _end(len(entries), len(directory), out.tell(), limit))
        out.flush()
        os.fsync(out.fileno())
    part.rename(path)


def _packed(entry: Entry) -> int:
    return entry.size if entry.packed is None else entry.packed_size


def _shared(entry: Entry, far: bool, extra: int) -> tuple[int, ...]:
    """Version, method, time, date, CRC, sizes and lengths: the same in both places. `far`: the sizes stand behind."""
    sizes = (_FAR, _FAR) if far else (_packed(entry), entry.size)
    version, method = 45 if far else 20, 0 if entry.packed is None else 8
    return version, 0, method, 0, _DATE, entry.crc, *sizes, len(entry.name.encode()), extra if far else 0


def _local(entry: Entry, limit: int) -> bytes:
    far = max(_packed(entry), entry.size) >= limit
    head = _LOCAL.pack(b"PK\x03\x04", *_shared(entry, far, _NEAR.size)) + entry.name.encode()
    return head + (_NEAR.pack(1, 16, entry.size, _packed(entry)) if far else b"")


def _central(entry: Entry, offset: int, limit: int) -> bytes:
    far = max(_packed(entry), entry.size, offset) >= limit
    shared, at = _shared(entry, far, _PLACED.size), _FAR if far else offset
    head = _CENTRAL.pack(b"PK\x01\x02", 0x0314, *shared, 0, 0, 0, _MODE, at) + entry.name.encode()
    return head + (_PLACED.pack(1, 24, entry.size, _packed(entry), offset) if far else b"")


def _end(count: int, length: int, at: int, limit: int) -> bytes:
    """What stands behind the directory, which begins at `at`."""
    far = at >= limit
    found = _END.pack(b"PK\x05\x06", 0, 0, count, count, length, _FAR if far else at, 0)
    if not far:
        return found
    more = _END64.pack(b"PK\x06\x06", 44, 0x0314, 45, 0, 0, count, count, length, at)
    return more + _LOCATOR.pack(b"PK\x06\x07", 0, at + length, 1) + found
