"""Bundles that were tampered with: one bit, a piece left out, two swapped, the end cut off, another log's part."""

import binascii
import io
import random
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.audit.verifier.bundles import packed


class Mutant(NamedTuple):
    """What was done to the bytes of a bundle, and where."""

    kind: str
    at: int
    data: bytes


def flipped(data: bytes, supply: random.Random) -> Mutant:
    at = supply.randrange(8 * len(data))
    return flipped_at(data, at)


def flipped_at(data: bytes, bit: int) -> Mutant:
    mutant = bytearray(data)
    mutant[bit // 8] ^= 1 << bit % 8
    return Mutant("flip", bit // 8, bytes(mutant))


def dropped(data: bytes, supply: random.Random) -> Mutant:
    at = supply.randrange(len(data))
    return Mutant("drop", at, data[:at] + data[at + supply.choice((1, 2, 32, 100)) :])


def doubled(data: bytes, supply: random.Random) -> Mutant:
    at, length = supply.randrange(len(data)), supply.choice((1, 2, 32, 100))
    return Mutant("double", at, data[: at + length] + data[at : at + length] + data[at + length :])


def swapped(data: bytes, supply: random.Random) -> Mutant:
    """Two pieces of equal length change places; they differ."""
    while True:
        length = supply.choice([n for n in (1, 2, 32, 100) if 3 * n < len(data)])
        a, b = sorted(supply.randrange(len(data) - length) for _ in range(2))
        if a + length <= b and data[a : a + length] != data[b : b + length]:
            whole = bytearray(data)
            whole[a : a + length], whole[b : b + length] = data[b : b + length], data[a : a + length]
            return Mutant("swap", a, bytes(whole))


def truncated(data: bytes, supply: random.Random) -> Mutant:
    at = supply.randrange(len(data))
    return Mutant("truncate", at, data[:at])


def lengthened(data: bytes, supply: random.Random) -> Mutant:
    return Mutant("append", len(data), data + supply.randbytes(supply.choice((1, 22, 100))))


BYTES: tuple[Callable[[bytes, random.Random], Mutant], ...] = (
    *(flipped,) * 5, dropped, doubled, swapped, truncated, lengthened,
)  # fmt: skip


def of_bytes(data: bytes, count: int, seed: int) -> Iterator[Mutant]:
    """Mutants of the bytes of a bundle; half of them are of one bit."""
    supply = random.Random(seed)
    for _ in range(count):
        yield supply.choice(BYTES)(data, supply)


class Bundle:
    """A bundle in parts, and how it is put together again without a flaw that only the zip has."""

    def __init__(self, data: bytes) -> None:
        self.data, self.raw = data, dict[str, tuple[int, bytes]]()
        with zipfile.ZipFile(io.BytesIO(data)) as found:
            self.files = {name: found.read(name) for name in found.namelist()}
            for one in found.infolist():
                self.raw[one.filename] = one.compress_type, data[self.start(one) :][: one.compress_size]
            self.places = {one.filename: (self.start(one), one.compress_size) for one in found.infolist()}
        assert self.put_together(self.files) == data

    @staticmethod
    def start(one: zipfile.ZipInfo) -> int:
        """Where the bytes of a file begin in the zip."""
        return one.header_offset + 30 + len(one.filename)

    def put_together(self, files: Mapping[str, bytes]) -> bytes:
        """A zip in the one form that bundles have. Source: docs/bundle.md."""
        out, directory = b"", b""
        for name, content in files.items():
            method, kept = self.raw.get(name, (0, content))
            if self.files.get(name) != content:
                kept = packed(content) if method else content
            head = struct.pack(
                "<HHHIIIHH", method, 0, 33, binascii.crc32(content), len(kept), len(content), len(name), 0
            )
            at = struct.pack("<HHHII", 0, 0, 0, 0o100644 << 16, len(out))
            directory += b"PK\1\2" + struct.pack("<HHH", 0x314, 20, 0) + head + at + name.encode()
            out += b"PK\3\4" + struct.pack("<HH", 20, 0) + head + name.encode() + kept
        count = len(files)
        return out + directory + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, count, count, len(directory), len(out), 0)


def of_parts(bundle: Bundle, others: Sequence[Mapping[str, bytes]], count: int, seed: int) -> Iterator[Mutant]:
    """Mutants that are whole zips: a file is changed, left out, added, or taken from another bundle."""
    supply = random.Random(seed)
    names, made = list(bundle.files), 0
    while made < count:
        files, name = dict(bundle.files), supply.choice(names)
        kind = supply.choice(("change", "lines", "leave", "cross", "add", "order"))
        if kind == "change" and files[name]:
            files[name] = supply.choice(BYTES)(files[name], supply).data
        elif kind == "lines" and files[name].count(b"\n") > 1:
            lines = files[name].splitlines(keepends=True)
            a, b = supply.sample(range(len(lines)), 2)
            if supply.random() < 0.5:
                lines[a], lines[b] = lines[b], lines[a]
            else:
                del lines[a]
            files[name] = b"".join(lines)
        elif kind == "leave":
            del files[name]
        elif kind == "cross":
            files[name] = supply.choice(others).get(name, b"")
        elif kind == "add":
            files["more.txt"] = b"more"
        else:
            files = dict(supply.sample(list(files.items()), len(files)))
        if list(files.items()) != list(bundle.files.items()):
            made += 1
            yield Mutant(kind, names.index(name), bundle.put_together(files))
