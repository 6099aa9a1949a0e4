"""Decides what every engine's events mean before keys are known: the form all dialects decode into.

Hashes are the engine's own, as bytes. Token ids stay undecoded where nobody asks. Nothing of this form is stored,
logged or sent: the agent turns it into canonical items and forgets it.
"""

import functools
import hashlib
import struct
from collections.abc import Sequence

import msgspec

from kvcore.blocks import Tier
from kvcore.events import Refused

MEDIA: dict[str, Tier] = {
    "gpu": Tier.HBM, "hbm": Tier.HBM, "device": Tier.HBM, "cpu_pinned": Tier.PINNED, "pinned": Tier.PINNED,
    "cpu": Tier.DRAM, "dram": Tier.DRAM, "host": Tier.DRAM, "fs": Tier.SSD, "storage": Tier.SSD, "disk": Tier.SSD,
    "ssd": Tier.SSD, "nvme": Tier.SSD, "obj": Tier.REMOTE, "s3": Tier.REMOTE, "shared_storage": Tier.REMOTE,
    "remote": Tier.REMOTE, "external": Tier.REMOTE,
}  # fmt: skip


def tier_of(medium: str | None, locality: str | None = None) -> Tier:
    """The tier an engine's medium is, whatever its case; no medium = the accelerator's memory.

    Raises:
        Refused: `unknown-medium`.
    """
    if medium is None:
        return Tier.HBM
    tier = MEDIA.get(medium.lower())
    if tier is None:
        raise Refused("unknown-medium", medium[:40])
    return Tier.REMOTE if tier is Tier.SSD and locality is not None and locality.upper() == "REMOTE" else tier


class Stored(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Consecutive blocks of one chain came to a tier.

    `tokens`: the range's token ids, as `token_bytes` takes them, None in a placeholder: the engine tells only that a
    block it announced before is in that tier as well (`parent` says nothing then). `exact`: every block of the range
    has its hash; where a group skips blocks nobody can say which tokens belong to which hash. `salt_tags`: tags of the
    strings that may be the chain's salt, at its start only. `extras`: per block a digest of what else made its content
    (images, embeddings), None where nothing did.
    """

    hashes: list[bytes]
    parent: bytes | None
    tokens: msgspec.Raw | bytes | None
    block_tokens: int
    tier: Tier
    group: int = 0
    exact: bool = True
    salt_tags: tuple[bytes, ...] = ()
    extras: tuple[bytes | None, ...] | None = None
    lora: str | None = None
    kind: str | None = None


class Removed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One physical copy of each block left a tier."""

    hashes: list[bytes]
    tier: Tier
    group: int = 0


class Cleared(msgspec.Struct, frozen=True):
    """The engine emptied its own pool: the tiers named, all others are as they were."""

    tiers: tuple[Tier, ...] = (Tier.HBM,)


class Bad(msgspec.Struct, frozen=True, gc=False):
    """An event that was refused; its neighbours were not."""

    index: int
    code: str
    detail: str = ""


Event = Stored | Removed | Cleared | Bad


class Batch(msgspec.Struct, frozen=True, gc=False):
    """One message of an engine's publisher. `rank` None = the engine did not say."""

    ts: float
    rank: int | None
    events: list[Event]


_ids = msgspec.msgpack.Decoder(list[int])


def token_bytes(tokens: msgspec.Raw | bytes) -> bytes:
    """The token ids as u32 little-endian, the form keys are made of.

    Args:
        tokens: an undecoded array of numbers, or what this function gave before.

    Raises:
        Refused: `wrong-type`, where an id is no u32.
    """
    if isinstance(tokens, bytes):
        return tokens
    try:
        return pack_ids(_ids.decode(tokens))
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, RecursionError):
        raise Refused("wrong-type", "a token id is not an unsigned 32-bit number") from None


def pack_ids(ids: list[int]) -> bytes:
    """Token ids as u32 little-endian.

    Raises:
        Refused: `wrong-type`, where an id is no u32.
    """
    try:
        return _u32(len(ids)).pack(*ids)
    except struct.error:
        raise Refused("wrong-type", "a token id is not an unsigned 32-bit number") from None


@functools.lru_cache(maxsize=256)
def _u32(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}I")


def extra_digest(values: Sequence[object]) -> bytes:
    """16 bytes for what besides tokens made a block's content."""
    return hashlib.sha256(b"kvconsole/extra/v1" + msgspec.msgpack.encode(list(values))).digest()[:16]
