"""A node's disk in somebody else's hands: its objects, and every way to open them with what lies beside them."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nodeagent.tiers.base import BlockRefused, LeaseOver, RunMeta
from nodeagent.tiers.disk import OBJECT_SUFFIX, DiskTier
from nodeagent.tiers.objects import KeyFile, object_open, object_parse

KEYS = "objects.keys"
WINDOW = 32


class Sealed(NamedTuple):
    """An object as it lies there, and its half of the key."""

    name: bytes
    meta: RunMeta
    blob: bytes
    value: bytes


def sealed(home: Path, digest: bytes) -> list[Sealed]:
    """The objects of a namespace on the disk of a node that does not run."""
    keys, found = KeyFile(home / KEYS), []
    for path in sorted((home / "ssd").glob(f"*{OBJECT_SUFFIX}")):
        blob = path.read_bytes()
        meta, name = object_parse(blob).meta, bytes.fromhex(path.stem)
        if meta.ns == digest:
            found.append(Sealed(name, meta, blob, keys.value(name)))
    keys.close()
    return found


def opens(one: Sealed, enc: bytes) -> bool:
    """Whether this is the subkey that opens it."""
    try:
        object_open(one.meta, one.blob, enc=enc, value=one.value, name=one.name)
    except BlockRefused:
        return False
    return True


def guesses(home: Path) -> Iterator[bytes]:
    """Each 32 bytes in a row of everything that lies there and is no object."""
    for path in sorted(home.rglob("*")):
        if path.is_file() and path.suffix != OBJECT_SUFFIX:
            raw = path.read_bytes()
            yield from {raw[at : at + WINDOW] for at in range(len(raw) - WINDOW + 1)}


def own_way(home: Path, some: list[Sealed], enc: object) -> set[str]:
    """What the agent's own tier says to reading these with keys from `enc`; "" where it could."""
    keys, said = KeyFile(home / KEYS), set()
    tier = DiskTier(home / "ssd", capacity_bytes=2**40, keys=keys, enc_key=enc)  # type: ignore[arg-type]
    for one in some:
        try:
            tier.read(one.meta, one.name)
            said.add("")
        except (LeaseOver, BlockRefused) as refused:
            said.add(type(refused).__name__)
    keys.close()
    return said
