"""Decides what an event frame and its items look like, and why a frame or an item is refused.

The contract is `docs/protocol.md`. `decode_frame` judges a frame, `decode_item` each item alone, so that
a malformed item never costs its valid neighbours. Called by agents (to build) and by ingest (to read).
`keys` and `parents` may come as lists of 32-byte strings or packed into one byte string; items that are handed out
have them packed.
"""

from typing import Any, assert_never

import msgspec

from kvcore import wire
from kvcore.blocks import TIERS
from kvcore.keys import KEY_BYTES, ROOT, unpack
from kvcore.refusals import REFUSALS as REFUSALS
from kvcore.refusals import Refused as Refused

VERSION = 1
FRAME_BYTES_MAX = 8 * 2**20
ITEMS_MAX = 65_536
KEYS_MAX = 262_144
"""Keys of one item. An engine event with more is refused; agents cut chains long before."""
REASONS = ("watermark", "ttl", "epoch", "quota", "delete", "value", "donor_reclaim", "hot_move", "engine")
GROUP_MAX = 32_767
"""Cache groups are numbered from 0; the catalog keeps the number in a smallint."""
NESTING_MAX = 3
"""Depth of an item: the item, a list or map in it, and its plain values."""
NAME_MAX = 200
"""Characters of a node, source, boot, stream, step or request name."""
Packed = bytes
"""Keys of `KEY_BYTES` each, one behind the other."""
STATES = ("committed", "referenced", "transferring", "quarantined", "evicting")
GAPS = ("ring", "map", "decode", "restart", "overflow")


class Add(msgspec.Struct, frozen=True, gc=False, tag_field="k", tag="add", kw_only=True):
    """Consecutive blocks of one chain came to a tier. `keys` is packed, 32 bytes each."""

    ns: bytes
    gen: int
    keys: Packed
    tier: str
    tokens: int
    bytes: int
    group: int = 0
    parent: Packed | None = None
    from_owner: int | None = None
    step: str | None = None


class Adds(msgspec.Struct, frozen=True, gc=False, tag_field="k", tag="adds", kw_only=True):
    """Single blocks of many chains came. `parents` is packed like `keys`; 32 zero bytes = start of a prompt."""

    ns: bytes
    gen: int
    keys: Packed
    parents: Packed
    tier: str
    tokens: int
    bytes: int
    group: int = 0


class Move(msgspec.Struct, frozen=True, gc=False, tag_field="k", tag="move", kw_only=True):
    """Blocks went from one tier of the node to another."""

    ns: bytes
    gen: int
    keys: Packed
    from_: str = msgspec.field(name="from")
    to: str
    group: int = 0


class Drop(msgspec.Struct, frozen=True, gc=False, tag_field="k", tag="drop", kw_only=True):
    """Blocks are no longer in a tier."""

    ns: bytes
    gen: int
    keys: Packed
    tier: str
    reason: str
    group: int = 0


class Clear(msgspec.Struct, frozen=True, tag_field="k", tag="clear", kw_only=True):
    """Tiers were emptied, of one namespace or of all; no tiers = scope unknown, so everything becomes unverified."""

    tiers: tuple[str, ...] = ()
    ns: bytes | None = None
    gen_upto: int | None = None


class State(msgspec.Struct, frozen=True, gc=False, tag_field="k", tag="state", kw_only=True):
    """Blocks changed their state in place."""

    ns: bytes
    gen: int
    keys: Packed
    tier: str
    state: str
    group: int = 0


class Use(msgspec.Struct, frozen=True, tag_field="k", tag="use", kw_only=True):
    """One request read the cache: hit tokens by tier, saved milliseconds, measured or estimated."""

    ns: bytes
    gen: int
    head: bytes | None
    hit_tokens: int
    tiers: dict[str, int]
    prompt_tokens: int
    saved_ms: float
    measured: bool
    request: str


class Load(msgspec.Struct, frozen=True, tag_field="k", tag="load", kw_only=True):
    """How busy the source is. prefill ms = a·n + b·n² for n tokens."""

    queue_ms: float
    running: int
    prefill_curve: tuple[float, float]
    measured: bool


class Mark(msgspec.Struct, frozen=True, tag_field="k", tag="mark", kw_only=True):
    """Fill of a tier in bytes, and its marks as shares of the capacity."""

    tier: str
    used: int
    capacity: int
    high: float
    low: float


class Gap(msgspec.Struct, frozen=True, tag_field="k", tag="gap", kw_only=True):
    """The agent could not see part of its engine's events."""

    since: float
    reason: str


Item = Add | Adds | Move | Drop | Clear | State | Use | Load | Mark | Gap


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """One numbered batch of items of one (source, dp_rank, shard) and one life of its outbox."""

    v: int
    node: str
    source: str
    boot: str
    stream: str
    seq: int
    ts: float
    items: list[msgspec.Raw]
    dp_rank: int | None = 0
    shard: int = 0
    fence_seq: int = 0
    allowances: int = 0


_frame = msgspec.msgpack.Decoder(Frame)
_item = msgspec.msgpack.Decoder(Item)
_any = msgspec.msgpack.Decoder()
_encode = msgspec.msgpack.Encoder().encode
_TIERS, _REASONS, _STATES, _GAPS = frozenset(TIERS), frozenset(REASONS), frozenset(STATES), frozenset(GAPS)
_KINDS = frozenset(("add", "adds", "move", "drop", "clear", "state", "use", "load", "mark", "gap"))
_I63 = 2**63 - 1


def decode_frame(body: bytes) -> Frame:
    """The frame, its items still undecoded.

    Raises:
        Refused: with a frame code; no item of it may be applied.
    """
    if len(body) > FRAME_BYTES_MAX:
        raise Refused("frame-too-large", f"{len(body)} bytes")
    try:
        frame = _frame.decode(body)
    except RecursionError:
        frame = _decode_nested(body)
    except msgspec.ValidationError as e:
        raise Refused("malformed-frame", str(e)[:200]) from None
    except msgspec.DecodeError as e:
        raise Refused("truncated-frame" if "truncated" in str(e) else "malformed-frame", str(e)[:200]) from None
    except (UnicodeDecodeError, OverflowError) as e:
        raise Refused("malformed-frame", type(e).__name__) from None
    if frame.v != VERSION:
        raise Refused("version-unsupported", str(frame.v))
    numbers = (frame.seq, frame.shard, frame.fence_seq, frame.dp_rank or 0, frame.allowances, frame.ts)
    if not all(0 <= n <= _I63 for n in numbers):  # also refuses NaN
        raise Refused("malformed-frame", "a number is negative, not finite, or above 2^63")
    if not (_name(frame.node) and _name(frame.source) and _name(frame.boot) and _name(frame.stream)):
        raise Refused("malformed-frame", "a name is empty, too long or not printable")
    if len(frame.items) > ITEMS_MAX:
        raise Refused("frame-too-large", f"{len(frame.items)} items")
    return frame


def _decode_nested(body: bytes) -> Frame:
    """The frame, cut without recursion because some item in it is nested beyond reason: that costs the item alone."""
    try:
        parts = wire.elements(body)
        if body[0] & 0xF0 != 0x80 and body[0] not in (0xDE, 0xDF):
            raise Refused("malformed-frame", "a frame is a map")
        fields = dict(zip(map(_any.decode, parts[::2]), parts[1::2], strict=True))
        items = wire.elements(fields.pop("items"))
        frame = msgspec.convert({**{k: _any.decode(v) for k, v in fields.items()}, "items": []}, Frame)
    except (ValueError, KeyError, TypeError, RecursionError):  # DecodeError and Truncated are ValueErrors
        raise Refused("malformed-frame", "nested") from None
    return msgspec.structs.replace(frame, items=[msgspec.Raw(x) for x in items])


def decode_item(raw: msgspec.Raw | bytes) -> Item:
    """One checked item, its keys packed.

    Raises:
        Refused: with an item code; the item has no effect, its neighbours keep theirs.
    """
    try:
        item = _item.decode(raw)
    except msgspec.ValidationError as e:
        item = _decode_listed(raw, str(e))
    except RecursionError:
        raise Refused("nesting") from None
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError) as e:
        raise Refused("wrong-type", str(e)[:200]) from None
    _check(item)
    return item


def _decode_listed(raw: msgspec.Raw | bytes, message: str) -> Item:
    """The item after its lists of keys were packed; refused with the right code if that is not what was wrong."""
    try:
        plain = _any.decode(raw)
    except RecursionError:
        raise Refused("nesting") from None
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, TypeError):
        raise Refused("wrong-type", message[:200]) from None
    if _depth(plain) > NESTING_MAX:
        raise Refused("nesting")
    if not isinstance(plain, dict):
        raise Refused("wrong-type", "an item is a map")
    kind = plain.get("k")
    if isinstance(kind, str) and kind not in _KINDS:
        raise Refused("unknown-item", kind[:40])
    listed = {name: value for name in ("keys", "parents") if isinstance(value := plain.get(name), list)}
    if not listed:
        raise Refused("wrong-type", message[:200])
    for name, keys in listed.items():
        plain[name] = _packed(keys, nil_is_root=name == "parents")
    try:
        return _item.decode(_encode(plain))
    except msgspec.ValidationError as e:
        raise Refused("wrong-type", str(e)[:200]) from None


def _packed(keys: list[Any], *, nil_is_root: bool) -> bytes:
    if len(keys) > KEYS_MAX:
        raise Refused("too-many-keys", str(len(keys)))
    if nil_is_root:
        keys = [ROOT if k is None else k for k in keys]
    if not all(type(k) is bytes and len(k) == KEY_BYTES for k in keys):
        raise Refused("bad-keys", "a key is not 32 bytes")
    return b"".join(keys)


def _depth(value: Any) -> int:
    """Nesting of a decoded value, measured without recursion."""
    deepest, todo = 0, [(value, 1)]
    while todo:
        v, d = todo.pop()
        deepest = max(deepest, d)
        if d > NESTING_MAX:
            return d
        inner = v.values() if isinstance(v, dict) else v if isinstance(v, list) else ()
        todo.extend((x, d + 1) for x in inner if d > 1 or isinstance(x, dict | list))
    return deepest


def _name(text: str) -> bool:
    """Whether a name can be stored and shown: PostgreSQL takes no NUL, a page no control characters."""
    return 0 < len(text) <= NAME_MAX and text.isprintable()


def _check(item: Item) -> None:
    match item:
        case Add() | Adds() | Move() | Drop() | State():
            _check_blocks(item)
        case Clear(tiers=tiers, ns=ns, gen_upto=gen):
            if not _TIERS.issuperset(tiers) or (ns is not None and len(ns) != KEY_BYTES):
                raise Refused("wrong-type", "tiers or ns")
            _natural(gen or 0)
        case Use():
            _natural(item.gen, item.hit_tokens, item.prompt_tokens, item.saved_ms, *item.tiers.values())
            if len(item.ns) != KEY_BYTES or not _TIERS.issuperset(item.tiers):
                raise Refused("wrong-type", "ns or tiers")
            if (item.head is not None and len(item.head) != KEY_BYTES) or not _name(item.request):
                raise Refused("wrong-type", "head or request")
        case Load():
            _natural(item.queue_ms, item.running, *item.prefill_curve)
        case Mark():
            _natural(item.used, item.capacity, item.high, item.low)
            if item.tier not in _TIERS or not item.low <= item.high <= 1:
                raise Refused("wrong-type", "tier or marks")
            if item.used > item.capacity:
                raise Refused("used-over-capacity", item.tier)
        case Gap():
            _natural(item.since)
            if item.reason not in _GAPS:
                raise Refused("wrong-type", "reason")
        case _:
            assert_never(item)


def _check_blocks(item: Add | Adds | Move | Drop | State) -> None:
    n = len(item.keys)
    if not n or n % KEY_BYTES or len(item.ns) != KEY_BYTES:
        raise Refused("bad-keys", f"{n} bytes of keys")
    if n > KEYS_MAX * KEY_BYTES:
        raise Refused("too-many-keys", str(n // KEY_BYTES))
    _natural(item.gen, item.group)
    match item:
        case Add() | Adds():
            _natural(item.tokens, item.bytes)
            known = item.tier in _TIERS
            _check_ancestry(item)
        case Move():
            known = item.from_ in _TIERS and item.to in _TIERS
        case Drop():
            known = item.tier in _TIERS and item.reason in _REASONS
        case State():
            known = item.tier in _TIERS and item.state in _STATES
        case _:
            assert_never(item)
    if not known:
        raise Refused("wrong-type", "tier, reason or state")
    if item.group > GROUP_MAX:
        raise Refused("wrong-type", "group")


def _check_ancestry(item: Add | Adds) -> None:
    heads = _heads(item.keys)
    distinct = set(heads)
    if len(distinct) != len(heads) and len(set(unpack(item.keys))) != len(heads):
        raise Refused("duplicate-key")
    if isinstance(item, Adds):
        if len(item.parents) != len(item.keys):
            raise Refused("bad-keys", "keys and parents differ in number")
        if not distinct.isdisjoint(_heads(item.parents)):
            _check_acyclic(dict(zip(unpack(item.keys), unpack(item.parents), strict=True)))
        return
    if item.parent is not None:
        if len(item.parent) != KEY_BYTES:
            raise Refused("bad-keys", "parent")
        if _heads(item.parent)[0] in distinct and item.parent in unpack(item.keys):
            raise Refused("parent-cycle")
    if item.from_owner is not None:
        _natural(item.from_owner)
    if item.step is not None and not _name(item.step):
        raise Refused("wrong-type", "step")


def _heads(keys: bytes) -> list[int]:
    """The first 8 bytes of every key: where they differ the keys differ, at a fifth of the price."""
    return memoryview(keys).cast("Q")[:: KEY_BYTES // 8].tolist()


def _check_acyclic(parent_of: dict[bytes, bytes]) -> None:
    """Refuses if a walk from key to parent comes back to where it was."""
    safe: set[bytes] = set()
    for key in parent_of:
        path: set[bytes] = set()
        at: bytes | None = key
        while at is not None and at not in safe:
            if at in path:
                raise Refused("parent-cycle")
            path.add(at)
            at = parent_of.get(at)
        safe |= path


def _natural(*values: float) -> None:
    for v in values:
        if not 0 <= v <= _I63:  # also refuses NaN
            raise Refused("negative-size", str(v)[:40])
