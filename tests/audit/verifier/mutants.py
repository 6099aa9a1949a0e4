"""Bundles that were tampered with: one bit, a piece left out, two swapped, the end cut off, another log's part."""

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.audit.verifier.bundles import zipped


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


def of_parts(bundle: dict, other: dict, count: int, seed: int) -> Iterator[Mutant]:
    """Mutants that are whole zips: a file is changed, left out, added, or taken from another log's bundle."""
    supply = random.Random(seed)
    names = list(bundle["files"])
    for _ in range(count):
        files, name = dict(bundle["files"]), supply.choice(names)
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
            files[name] = other["files"].get(name, b"")
        elif kind == "add":
            files["more.txt"] = b"more"
        else:
            files = dict(supply.sample(list(files.items()), len(files)))
        if list(files.items()) != list(bundle["files"].items()):
            yield Mutant(kind, names.index(name), zipped({"files": files, "deflate": bundle["deflate"]}))
