"""Decides what a ledger row says: absolute facts of one transaction, so that replaying it twice is harmless.

Written by `catalog.store`; read by its loading, by `routing`'s replica of the catalog and by the live pictures.
"""

import msgspec

PREFIX = None
"""In place of a mask: the first n offsets."""


class Facts(msgspec.Struct, omit_defaults=True):
    """What is so after the transaction, by number; a reader takes the lists in the order of the fields."""

    keyspaces: list[tuple[int, bytes, bytes, int, int]] = []
    """(keyspace, tenant's uuid, digest, generation, group) of new and claimed ones."""
    sources: list[tuple[int, bytes, str, int, str]] = []
    """(source, node's uuid, name, dp_rank, state) of new ones and of those whose state changed."""
    owners: list[tuple[int, int, str, bool]] = []
    """(owner, source, tier, retired); what a retired owner held is void."""
    born: list[tuple[int, int, int, int, int, bytes | None]] = []
    """(segment, keyspace, up, offset in up, family, parent) of new segments; −1 or less where `up` is not known."""
    keys: list[tuple[int, int, bytes]] = []
    """(segment, offset, keys of 16 bytes) that the segment grew by."""
    up: list[tuple[int, int, int]] = []
    """(segment, up, offset): orphans whose parent has come."""
    places: list[tuple[int, int, int, bytes | None, bytes | None]] = []
    """(owner, segment, n, mask, states): n = 0 means that the owner holds nothing of it."""
    holdings: list[tuple[int, int, int]] = []
    """(keyspace, owner, blocks)."""
    dead: list[int] = []
    """Segments that are gone."""
    heirs: list[tuple[int, int, int]] = []
    """(owner, segment, owner before): what was moved is as old as it was there."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Facts)
_states = msgspec.msgpack.Decoder(list[tuple[str, bytes]])
encode = _encoder.encode
decode = _decoder.decode


def pack(mask: int) -> tuple[int, bytes | None]:
    """(n, held) of a mask; held is None for a prefix."""
    n = mask.bit_count()
    return n, None if mask == (1 << n) - 1 else mask.to_bytes((mask.bit_length() + 7) // 8, "little")


def unpack(n: int, held: bytes | None) -> int:
    """The inverse of `pack`."""
    return (1 << n) - 1 if held is None else int.from_bytes(held, "little")


def pack_states(states: dict[str, int] | None) -> bytes | None:
    """Masks of the blocks that are not committed, by state; None where all are."""
    if not states:
        return None
    return _encoder.encode([(s, m.to_bytes((m.bit_length() + 7) // 8, "little")) for s, m in states.items()])


def unpack_states(packed: bytes | None) -> dict[str, int]:
    """The inverse of `pack_states`; an empty dictionary where all are committed."""
    return {s: int.from_bytes(m, "little") for s, m in _states.decode(packed)} if packed else {}
