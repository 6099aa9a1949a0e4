"""Decides what the bytes of vLLM's KV event publisher mean, in every version since 0.9; SGLang's have the same form.

A batch is an array `[ts, events, rank?]`; an event is a positional array up to 0.23 and a map from 0.24, decided per
event. Fields of later versions are ignored. Called by `nodeagent.engines.vllm`.
Source: bytes of the shipped publisher classes, `tests/golden/`.
"""

import functools
import struct
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from kvcore import wire
from kvcore.dialects.engine import Bad, Batch, Cleared, Event, Removed, Stored, extra_digest, pack_ids, tier_of
from kvcore.events import GROUP_MAX, KEYS_MAX, Refused
from kvcore.keys import salt_tag

BATCH_BYTES_MAX = 64 * 2**20
HASH_BYTES_MAX = 64
_U64 = 2**64 - 1
_NIL = Raw(b"\xc0")

Hashes = Annotated[list[int | bytes], Meta(max_length=KEYS_MAX)]


class _StoredArray(msgspec.Struct, array_like=True, tag="BlockStored", gc=False):
    block_hashes: Hashes
    parent_block_hash: int | bytes | None
    token_ids: Raw
    block_size: int
    lora_id: Any = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: Raw = _NIL
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    locality = None


class _RemovedArray(msgspec.Struct, array_like=True, tag="BlockRemoved", gc=False):
    block_hashes: Hashes
    medium: str | None = None
    group_idx: int | None = None
    locality = None


class _ClearedArray(msgspec.Struct, array_like=True, tag="AllBlocksCleared", gc=False):
    pass


class _StoredMap(msgspec.Struct, tag_field="type", tag="BlockStored", gc=False):
    block_hashes: Hashes
    parent_block_hash: int | bytes | None
    token_ids: Raw
    block_size: int
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: Raw = _NIL
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    locality: str | None = None


class _RemovedMap(msgspec.Struct, tag_field="type", tag="BlockRemoved", gc=False):
    block_hashes: Hashes
    medium: str | None = None
    group_idx: int | None = None
    locality: str | None = None


class _ClearedMap(msgspec.Struct, tag_field="type", tag="AllBlocksCleared", gc=False):
    pass


class _KeyedArray(_StoredArray, array_like=True, tag="BlockStored", gc=False):
    token_ids: list[int]  # type: ignore[assignment]


class _KeyedMap(_StoredMap, tag_field="type", tag="BlockStored", gc=False):
    token_ids: list[int]  # type: ignore[assignment]


_Array = _StoredArray | _RemovedArray | _ClearedArray
_Map = _StoredMap | _RemovedMap | _ClearedMap


class _Batch(msgspec.Struct, array_like=True, gc=False):
    ts: float
    events: list[Raw]
    rank: int | None = None


class _ArrayBatch(msgspec.Struct, array_like=True, gc=False):
    ts: float
    events: list[_Array]
    rank: int | None = None


class _MapBatch(msgspec.Struct, array_like=True, gc=False):
    ts: float
    events: list[_Map]
    rank: int | None = None


class _KeyedArrayBatch(msgspec.Struct, array_like=True, gc=False):
    ts: float
    events: list[_KeyedArray | _RemovedArray | _ClearedArray]
    rank: int | None = None


class _KeyedMapBatch(msgspec.Struct, array_like=True, gc=False):
    ts: float
    events: list[_KeyedMap | _RemovedMap | _ClearedMap]
    rank: int | None = None


_batch = msgspec.msgpack.Decoder(_Batch)
_array_batch = msgspec.msgpack.Decoder(_ArrayBatch)
_map_batch = msgspec.msgpack.Decoder(_MapBatch)
_keyed_array_batch = msgspec.msgpack.Decoder(_KeyedArrayBatch)
_keyed_map_batch = msgspec.msgpack.Decoder(_KeyedMapBatch)
_array = msgspec.msgpack.Decoder(_Array)
_map = msgspec.msgpack.Decoder(_Map)
_any = msgspec.msgpack.Decoder()
_STORED, _REMOVED = (_StoredMap, _StoredArray), (_RemovedMap, _RemovedArray)
KNOWN = frozenset({"BlockStored", "BlockRemoved", "AllBlocksCleared"})


def decode_batch(payload: bytes, *, ids: bool = False) -> Batch:
    """The batch; an event that cannot be read is a `Bad` in its place, its neighbours are exact.

    Args:
        payload: the message.
        ids: token ids are wanted: reading them in the same pass is a quarter cheaper than skipping them first.

    Raises:
        Refused: the payload is not a batch at all; none of its events is known.
    """
    if len(payload) > BATCH_BYTES_MAX:
        raise Refused("frame-too-large", f"{len(payload)} bytes")
    try:  # in one pass, if all events are good and of one form
        maps = _begins_with_map(payload)
        whole: _MapBatch | _ArrayBatch | _KeyedMapBatch | _KeyedArrayBatch
        if ids:
            whole = (_keyed_map_batch if maps else _keyed_array_batch).decode(payload)
        else:
            whole = (_map_batch if maps else _array_batch).decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, RecursionError):
        return _one_by_one(payload)
    _check_head(whole.ts, whole.rank)
    return Batch(whole.ts, whole.rank, [_known(i, e) for i, e in enumerate(whole.events)])


def _begins_with_map(payload: bytes) -> bool:
    """Whether the first event is a map: behind the head of the batch, a double, and the head of the events."""
    at = 10
    at += 1 if payload[at : at + 1] < b"\xdc" else 3 if payload[at : at + 1] == b"\xdc" else 5
    return _is_map(payload[at]) if at < len(payload) else False


def _is_map(first: int) -> bool:
    return first & 0xF0 == 0x80 or first in (0xDE, 0xDF)


def _check_head(ts: float, rank: int | None) -> None:
    if not 0 <= ts <= 2**63 or (rank is not None and not 0 <= rank < 2**16):
        raise Refused("malformed-frame", "ts or rank")


def _one_by_one(payload: bytes) -> Batch:
    try:
        batch = _batch.decode(payload)
    except RecursionError:
        batch = _split(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError) as e:
        raise Refused("truncated-frame" if "truncated" in str(e) else "malformed-frame", str(e)[:200]) from None
    _check_head(batch.ts, batch.rank)
    return Batch(batch.ts, batch.rank, [_event(i, raw) for i, raw in enumerate(batch.events)])


def _split(payload: bytes) -> _Batch:
    """The batch cut without recursion, because some event in it is nested beyond reason."""
    try:
        ts, events, *rest = wire.elements(payload)
        rank = msgspec.msgpack.decode(rest[0], type=int | None) if rest else None
        return _Batch(msgspec.msgpack.decode(ts, type=float), [Raw(x) for x in wire.elements(events)], rank)
    except (ValueError, RecursionError):  # DecodeError and Truncated are ValueErrors
        raise Refused("malformed-frame", "not a batch") from None


def _event(index: int, raw: Raw) -> Event:
    try:
        return _known(index, (_map if _is_map(memoryview(raw)[0]) else _array).decode(raw))
    except RecursionError:
        return Bad(index, "nesting")
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError) as e:
        return Bad(index, *_why(raw, str(e)))


def _known(index: int, e: _Array | _Map) -> Event:
    try:
        if isinstance(e, _STORED):
            return _stored(e)
        if isinstance(e, _REMOVED):
            return Removed(
                hashes=_hashes(e.block_hashes), tier=tier_of(e.medium, e.locality), group=_group(e.group_idx)
            )
        return Cleared()
    except Refused as refusal:
        return Bad(index, refusal.code, refusal.detail)


def _why(raw: Raw, message: str) -> tuple[str, str]:
    """The code of an event that no known form fits. The detail names fields, never values."""
    if "length <=" in message:
        return "too-many-keys", ""
    try:
        plain = _any.decode(raw)
    except RecursionError:
        return "nesting", ""
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, TypeError):
        return "wrong-type", ""
    name = plain.get("type") if isinstance(plain, dict) else plain[0] if isinstance(plain, list) and plain else None
    if isinstance(name, str) and name not in KNOWN:
        return "unknown-item", name[:40] if name.isidentifier() else ""
    return "wrong-type", message.rpartition(" - at ")[2][:60] if " - at " in message else ""


def _stored(e: _StoredMap | _StoredArray) -> Stored:
    hashes = _hashes(e.block_hashes)
    tier, group, size = tier_of(e.medium, e.locality), _group(e.group_idx), e.block_size
    tokens: Raw | list[int] = e.token_ids
    count = len(tokens) if isinstance(tokens, list) else wire.array_length(memoryview(tokens))
    if count is None:
        raise Refused("wrong-type", "token_ids")
    if size == 0 and count == 0:
        return Stored(hashes=hashes, parent=None, tokens=None, block_tokens=0, tier=tier, group=group, lora=e.lora_name)
    if size <= 0:
        raise Refused("negative-size", "block_size")
    if len(hashes) * size > count:
        raise Refused("hashes-over-tokens", f"{len(hashes)} hashes of {size} tokens, {count} tokens")
    distinct = set(e.block_hashes)
    if len(distinct) != len(hashes):
        raise Refused("duplicate-key")
    if e.parent_block_hash in distinct:
        raise Refused("parent-cycle")
    parent = None if e.parent_block_hash is None else _hashes([e.parent_block_hash])[0]
    exact = len(hashes) * size == count
    lora = e.lora_name
    if lora is None and isinstance(e, _StoredArray) and e.lora_id is not None:
        lora = f"#{e.lora_id}"[:64]  # of before adapters were named: equal tokens must still be kept apart
    tags, extras = _extras(e.extra_keys, lora, len(hashes) if exact else None, starts=parent is None)
    return Stored(
        hashes=hashes, parent=parent, tokens=pack_ids(tokens) if isinstance(tokens, list) else tokens,
        block_tokens=size, tier=tier, group=group,
        exact=exact, salt_tags=tags, extras=extras, lora=lora, kind=e.kv_cache_spec_kind,
    )  # fmt: skip


def _group(index: int | None) -> int:
    if index is None:
        return 0
    if not 0 <= index <= GROUP_MAX:
        raise Refused("negative-size", "group_idx")
    return index


@functools.lru_cache(maxsize=256)
def _structs(count: int) -> tuple[struct.Struct, struct.Struct]:
    """What turns so many numbers into big-endian bytes, and those into pieces of eight."""
    return struct.Struct(f">{count}Q"), struct.Struct("8s" * count)


def _hashes(hashes: list[int | bytes]) -> list[bytes]:
    """The hashes as bytes; an integer is the last eight bytes of its digest, big-endian, whatever sign it was given."""
    if not hashes:
        raise Refused("bad-keys", "no hash")
    try:
        numbers, cuts = _structs(len(hashes))
        return list(cuts.unpack(numbers.pack(*hashes)))
    except struct.error:
        pass
    out = []
    for h in hashes:
        if isinstance(h, bytes):
            if not 0 < len(h) <= HASH_BYTES_MAX:
                raise Refused("bad-keys", "length of a hash")
            out.append(h)
        else:
            out.append((h & _U64).to_bytes(8, "big"))
    return out


def _extras(
    raw: Raw, lora: str | None, blocks: int | None, *, starts: bool
) -> tuple[tuple[bytes, ...], tuple[bytes | None, ...] | None]:
    """(tags of what may be the salt, digests of the rest per block). The values themselves are forgotten here."""
    view = memoryview(raw)
    count = wire.array_length(view)
    if count is None and view[0] == 0xC0:
        return (), None
    if count is not None and bytes(view[-count:] if count else b"") == b"\xc0" * count and len(view) - count <= 5:
        return (), None
    per_block = _any.decode(raw)
    if not isinstance(per_block, list):
        raise Refused("wrong-type", "extra_keys")
    tags: tuple[bytes, ...] = ()
    digests: list[bytes | None] = []
    for i, keys in enumerate(per_block):
        if keys is not None and not isinstance(keys, list):
            raise Refused("wrong-type", "extra_keys")
        strings, rest = _sort_out(keys or [], lora)
        if i == 0 and starts:
            tags = tuple(salt_tag(s) for s in strings)
            rest = [*rest, *strings[1:]]  # behind the salt: prompt embeddings
        else:
            rest = [*rest, *strings]
        digests.append(extra_digest(rest) if rest else None)
    if not any(digests) or blocks is None:
        return tags, None
    if len(digests) != blocks:
        raise Refused("wrong-type", "extra_keys has not one entry per block")
    return tags, tuple(digests)


def _sort_out(keys: list[Any], lora: str | None) -> tuple[list[str], list[Any]]:
    """(strings in order, without the adapter's name; everything else). Tagged pairs are read as what they say."""
    strings, rest = [], []
    if lora is not None and keys and keys[0] == lora:
        keys = keys[1:]
    for key in keys:
        match key:
            case str():
                strings.append(key)
            case ["cache_salt", str(salt)]:
                strings.insert(0, salt)
            case ["lora", *_]:
                pass
            case _:
                rest.append(key)
    return strings, rest
