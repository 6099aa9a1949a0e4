"""Decides what a tier is, how a block is headed, and when bytes read back may be used.

A tier stores *runs*: up to `RUN_BLOCKS_MAX` consecutive blocks of one chain. Each block carries a header with magic,
done bit, digest, layout, group, length, generation, version and key; a read compares all of them with what the index
expects before anything is used. Called by `nodeagent.pool`; every tier passes the same contract suite.
"""

import hashlib
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from kvcore.blocks import Tier
from kvcore.keys import KEY_BYTES

MAGIC = b"KVB1"
LAYOUT = 1
HEADER = struct.Struct("<4sB3x16sHHIQQ32s")
"""magic, done, digest, layout, group, length, generation, version, key."""
HEADER_BYTES = HEADER.size
DONE_AT = 4
_FRONT = struct.Struct("<4sB3x16s")
_COVERED = struct.Struct("<HHIQQ32s")
_DONE = _FRONT.pack(MAGIC, 1, b"")[:-16]
_COVERED_FROM = _FRONT.size
"""The digest covers the block from here to its end; what is before it is compared byte by byte."""
RUN_BLOCKS_MAX = 160
_I64 = struct.Struct("<QQ16x")
_MASK = 2**64 - 1
Bytes = bytes | memoryview
"""A run's blocks: a copy, or where they lie."""


class RunMeta(msgspec.Struct, frozen=True, eq=False):
    """What a run is, apart from its bytes. `parent` is None at the start of a prompt, `keys` is packed.

    `depth` counts blocks before the run; `version` is a number of the agent that never repeats.
    """

    ns: bytes
    gen: int
    group: int
    depth: int
    parent: bytes | None
    keys: bytes
    version: int
    block_tokens: int
    block_bytes: int

    @property
    def blocks(self) -> int:
        """How many blocks the run has."""
        return len(self.keys) // KEY_BYTES

    @property
    def slot_bytes(self) -> int:
        """Bytes of one block with its header."""
        return HEADER_BYTES + self.block_bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of the run with headers."""
        return self.blocks * self.slot_bytes


class Stored(NamedTuple):
    """A run that a persistent tier found again."""

    meta: RunMeta
    place: Any


class Lying(NamedTuple):
    """Something that lies on a medium, whether anybody knows of it or not. `meta` is None where it does not say."""

    meta: RunMeta | None
    place: Any


class Look:
    """What was seen where something had been erased: a place is clean if nothing of what was there is left."""

    def __init__(self) -> None:
        self.sampled = self.clean = 0
        self._seen = hashlib.sha256()

    def saw(self, seen: bytes | memoryview, *, clean: bool) -> None:
        """One place was read back."""
        self.sampled += 1
        self.clean += clean
        self._seen.update(seen)

    def passed(self, count: int) -> None:
        """So many places more were read, and nothing was there."""
        self.sampled += count
        self.clean += count
        self._seen.update(count.to_bytes(8, "big"))

    @property
    def evidence(self) -> str:
        """Hex SHA-256 of everything that was read, in that order."""
        return self._seen.hexdigest()


class TierFull(Exception):
    """The batch does not fit below the cap. Nothing of it was written."""


class TierDown(Exception):
    """The medium does not answer. What it holds is unknown until it does; nothing was changed in the index."""


class TierReset(Exception):
    """The medium lost everything since the last call (a new life of it). `boot` names the new life."""

    def __init__(self, boot: str) -> None:
        super().__init__("the medium began a new life; everything it held is gone")
        self.boot = boot


class LeaseOver(Exception):
    """The keys of this namespace generation are not leased now. The bytes stay where they are, unread."""


class BlockRefused(Exception):
    """What was read is not the block that was asked for. It must not be used; `code` says which check failed."""

    def __init__(self, code: str, index: int = 0) -> None:
        super().__init__(f"block {index} of the run: {code}")
        self.code, self.index = code, index


class TierStore(Protocol):
    """One capped medium. Places are its own words; they are valid until freed, or until it resets."""

    name: Tier
    capacity_bytes: int
    used_bytes: int
    emulated: bool
    encrypted: bool
    persistent: bool

    def write(self, runs: Sequence[tuple[RunMeta, Bytes]]) -> list[Any]:
        """Stores the runs (each as concatenated sealed blocks) and answers their places.

        Raises:
            TierFull, TierDown, TierReset, LeaseOver: nothing of the batch is stored.
        """
        ...

    def read(self, meta: RunMeta, place: Any) -> bytes:
        """The run's sealed blocks, all checked.

        Raises:
            BlockRefused: a check failed; the bytes are not returned.
            TierDown, TierReset, LeaseOver: nothing was read.
        """
        ...

    def free(self, runs: Sequence[tuple[RunMeta, Any]]) -> None:
        """Gives the places back; what they held cannot be read through this tier any more."""
        ...

    def erase(self, runs: Sequence[tuple[RunMeta, Any]], look: Look) -> None:
        """Like `free`; what was there is destroyed, and every place is read back.

        Raises:
            TierDown, TierReset: as in `free`; nothing was read back then.
        """
        ...

    def lying(self, without: Collection[Any] = ()) -> Iterator[Lying]:
        """Everything on the medium, found by looking at the medium alone. What changes meanwhile may be left out.

        Places in `without` are passed over. Of memory: each slot that holds anything but zeros, by its number.

        Raises:
            TierDown, TierReset.
        """
        ...

    def remains(self, places: Sequence[Any]) -> list[Any]:
        """Those of the places that `lying` named where something lies still.

        Raises:
            TierDown, TierReset.
        """
        ...

    def scour(self, places: Sequence[Any], look: Look) -> None:
        """Destroys what `lying` found at places that are no run's, and reads them back; no room is given back.

        Raises:
            TierDown, TierReset.
        """
        ...

    def stored(self) -> Iterable[Stored]:
        """What a persistent medium still holds from an earlier process; empty for memory."""
        ...

    def close(self) -> None:
        """Gives the medium back. Persistent content stays."""
        ...


EncKey = Callable[[bytes, int], bytes]
"""(namespace, generation) -> its `enc` subkey. Raises LeaseOver."""


def seal(meta: RunMeta, fill: Callable[[bytes], bytes]) -> bytes:
    """The run's blocks, headed and finished, with content `fill(key)`."""
    keys, parts = meta.keys, []
    for i in range(0, len(keys), KEY_BYTES):
        key = keys[i : i + KEY_BYTES]
        covered = _COVERED.pack(LAYOUT, meta.group, meta.block_bytes, meta.gen, meta.version, key) + fill(key)
        parts.append(_FRONT.pack(MAGIC, 1, hashlib.sha256(covered).digest()[:16]))
        parts.append(covered)
    return b"".join(parts)


def verify(meta: RunMeta, index: int, block: memoryview) -> None:
    """Passes if `block` is block `index` of the run, whole and finished.

    Raises:
        BlockRefused: with the first check that failed; nothing of the block may be used.
    """
    if len(block) != meta.slot_bytes:
        raise BlockRefused("length", index)
    magic, done, want, layout, group, length, gen, version, key = HEADER.unpack_from(block)
    if (
        magic == MAGIC
        and done == 1
        and length == meta.block_bytes
        and gen == meta.gen
        and version == meta.version
        and layout == LAYOUT
        and group == meta.group
        and key == meta.keys[index * KEY_BYTES : (index + 1) * KEY_BYTES]
        and want == hashlib.sha256(block[_COVERED_FROM:]).digest()[:16]
    ):
        return
    checks = {
        "magic": magic == MAGIC,
        "done": done == 1,
        "layout": layout == LAYOUT,
        "length": length == meta.block_bytes,
        "generation": gen == meta.gen,
        "version": version == meta.version,
        "group": group == meta.group,
        "key": key == meta.keys[index * KEY_BYTES : (index + 1) * KEY_BYTES],
    }
    raise BlockRefused(next((code for code, good in checks.items() if not good), "digest"), index)


def sound(block: bytes | memoryview) -> bool:
    """Whether this is a whole, finished block of some run: its digest covers what it says of itself, and its bytes."""
    if len(block) < HEADER_BYTES or bytes(block[: len(MAGIC)]) != MAGIC or block[DONE_AT] != 1:
        return False
    return bytes(HEADER.unpack_from(block)[2]) == hashlib.sha256(block[_COVERED_FROM:]).digest()[:16]


def key_of(block: bytes | memoryview) -> bytes:
    """The key that the head of a block names."""
    return bytes(block[HEADER_BYTES - KEY_BYTES : HEADER_BYTES])


def verify_all(meta: RunMeta, blocks: Iterable[memoryview]) -> None:
    """Passes if these are the run's blocks, in order, all whole and finished.

    A header has one form for what it says, so it is made and compared as a whole; which check failed, `verify` says.

    Raises:
        BlockRefused: as `verify`.
    """
    keys, size = meta.keys, meta.slot_bytes
    said = _COVERED.pack(LAYOUT, meta.group, meta.block_bytes, meta.gen, meta.version, bytes(KEY_BYTES))[:-KEY_BYTES]
    at = 0
    for block in blocks:
        digest = hashlib.sha256(block[_COVERED_FROM:]).digest()[:16]
        if len(block) != size or _DONE + digest + said + keys[at : at + KEY_BYTES] != block[:HEADER_BYTES].tobytes():
            verify(meta, at // KEY_BYTES, block)
        at += KEY_BYTES


def verify_run(meta: RunMeta, raw: bytes) -> bytes:
    """The bytes, if they are exactly the run's blocks.

    Raises:
        BlockRefused: with the first check that failed.
    """
    if len(raw) != meta.size_bytes:
        raise BlockRefused("length")
    view, slot = memoryview(raw), meta.slot_bytes
    verify_all(meta, (view[at : at + slot] for at in range(0, len(raw), slot)))
    return raw


def content(meta: RunMeta, raw: bytes, index: int) -> bytes:
    """Content of one block of a run that was read."""
    at = index * meta.slot_bytes
    return raw[at + HEADER_BYTES : at + meta.slot_bytes]


def sums(keys: bytes) -> tuple[int, int]:
    """(lo, hi) of packed keys, as `kvcore.keys.digest_add` would add them one by one."""
    lo = hi = 0
    for a, b in _I64.iter_unpack(keys):
        lo += a
        hi += b
    return lo & _MASK, hi & _MASK
