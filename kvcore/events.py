"""Decides what an event frame and its items look like, and why a frame or an item is refused.

The contract is `docs/protocol.md`. `decode_frame` judges a frame, `decode_item` each item alone, so that
a malformed item never costs its valid neighbours. Called by agents (to build) and by ingest (to read).
"""

from typing import Any

import msgspec

from kvcore.blocks import TIERS
from kvcore.keys import KEY_BYTES

VERSION = 1
FRAME_BYTES_MAX = 8 * 2**20
ITEMS_MAX = 65_536
KEYS_MAX = 262_144
"""Keys of one item. An engine event with more is refused; agents cut chains long before."""
REASONS = ("watermark", "ttl", "epoch", "quota", "delete", "value", "donor_reclaim", "hot_move", "engine")
STATES = ("committed", "referenced", "transferring", "quarantined", "evicting")
GAPS = ("ring", "map", "decode", "restart", "overflow")


class Add(msgspec.Struct, frozen=True, tag_field="k", tag="add", kw_only=True):
    """Consecutive blocks of one chain came to a tier. `keys` is packed, 32 bytes each."""

    ns: bytes
    gen: int
    keys: bytes
    tier: str
    tokens: int
    bytes: int
    group: int = 0
    parent: bytes | None = None
    from_owner: int | None = None
    step: str | None = None


class Adds(msgspec.Struct, frozen=True, tag_field="k", tag="adds", kw_only=True):
    """Single blocks of many chains came. `parents` is packed like `keys`; 32 zero bytes = start of a prompt."""

    ns: bytes
    gen: int
    keys: bytes
    parents: bytes
    tier: str
    tokens: int
    bytes: int
    group: int = 0


class Move(msgspec.Struct, frozen=True, tag_field="k", tag="move", kw_only=True):
    """Blocks went from one tier of the node to another."""

    ns: bytes
    gen: int
    keys: bytes
    from_: str = msgspec.field(name="from")
    to: str
    group: int = 0


class Drop(msgspec.Struct, frozen=True, tag_field="k", tag="drop", kw_only=True):
    """Blocks are no longer in a tier."""

    ns: bytes
    gen: int
    keys: bytes
    tier: str
    reason: str
    group: int = 0


class Clear(msgspec.Struct, frozen=True, tag_field="k", tag="clear", kw_only=True):
    """Tiers were emptied, of one namespace or of all; no tiers = scope unknown, so everything becomes unverified."""

    tiers: tuple[str, ...] = ()
    ns: bytes | None = None
    gen_upto: int | None = None


class State(msgspec.Struct, frozen=True, tag_field="k", tag="state", kw_only=True):
    """Blocks changed their state in place."""

    ns: bytes
    gen: int
    keys: bytes
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


class Refused(Exception):
    """A frame or item is malformed. Nothing of it was applied; `code` is stable and documented."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code, self.detail = code, detail


REFUSALS = {
    "malformed-frame": "the body is not a frame of this contract",
    "truncated-frame": "the msgpack ends before the frame does",
    "frame-too-large": "more than 8 MiB, or more items or keys than allowed",
    "version-unsupported": "the frame's v is not one this console speaks",
    "foreign-token": "no token, or one of another node",
    "foreign-owner": "the item names an owner of another node",
    "fenced-boot": "this boot was replaced by a newer one",
    "seq-backwards": "the stream's seq went backwards without a new boot",
    "missing-dp-rank": "the source has several ranks and the frame names none",
    "unknown-item": "an item kind this console does not know",
    "wrong-type": "a field is missing, has another type, or a value outside its set",
    "nesting": "an item is nested deeper than the contract allows",
    "negative-size": "a size, count or time is negative or not finite",
    "used-over-capacity": "a tier reports more bytes used than it has",
    "bad-keys": "keys or parents are not whole 32-byte keys, or their numbers differ",
    "too-many-keys": "more keys than one item may carry",
    "duplicate-key": "a chain names the same key twice",
    "parent-cycle": "a key is its own ancestor within the item",
    "block-size-mismatch": "tokens or bytes of a block disagree with the registration",
    "hashes-over-tokens": "more block hashes than the tokens can fill",
}
"""Every code and what it means; each is counted per source and shown on the node's page."""

_frame = msgspec.msgpack.Decoder(Frame)
_item = msgspec.msgpack.Decoder(Item)
_any = msgspec.msgpack.Decoder()
_TIERS, _REASONS, _STATES, _GAPS = frozenset(TIERS), frozenset(REASONS), frozenset(STATES), frozenset(GAPS)
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
    except msgspec.ValidationError as e:
        raise Refused("malformed-frame", str(e)[:200]) from None
    except msgspec.DecodeError as e:
        raise Refused("truncated-frame" if "truncated" in str(e) else "malformed-frame", str(e)[:200]) from None
    except (RecursionError, UnicodeDecodeError, OverflowError) as e:
        raise Refused("malformed-frame", type(e).__name__) from None
    if frame.v != VERSION:
        raise Refused("version-unsupported", str(frame.v))
    if frame.seq < 0 or frame.shard < 0 or frame.fence_seq < 0 or (frame.dp_rank or 0) < 0:
        raise Refused("malformed-frame", "negative number")
    if max(frame.seq, frame.shard, frame.fence_seq, frame.dp_rank or 0) > _I63:
        raise Refused("malformed-frame", "number above 2^63")
    if len(frame.items) > ITEMS_MAX:
        raise Refused("frame-too-large", f"{len(frame.items)} items")
    return frame


def decode_item(raw: msgspec.Raw | bytes) -> Item:
    """One checked item.

    Raises:
        Refused: with an item code; the item has no effect, its neighbours keep theirs.
    """
    try:
        item = _item.decode(raw)
    except msgspec.ValidationError as e:
        raise Refused(*_why(raw, str(e))) from None
    except RecursionError:
        raise Refused("nesting") from None
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError) as e:
        raise Refused("wrong-type", str(e)[:200]) from None
    _check(item)
    return item


def _why(raw: msgspec.Raw | bytes, message: str) -> tuple[str, str]:
    try:
        plain = _any.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError):
        return "nesting" if "recurs" in message.lower() else "wrong-type", message[:200]
    if isinstance(plain, dict) and isinstance(plain.get("k"), str) and "tag" in message.lower() or "Invalid value" in message:
        return "unknown-item", message[:200]
    return ("nesting", "") if _depth(plain) > 4 else ("wrong-type", message[:200])


def _depth(value: Any) -> int:
    """Nesting of a decoded value, measured without recursion."""
    deepest, todo = 0, [(value, 1)]
    while todo:
        v, d = todo.pop()
        deepest = max(deepest, d)
        if d > 8:
            return d
        inner = v.values() if isinstance(v, dict) else v if isinstance(v, list) else ()
        todo.extend((x, d + 1) for x in inner)
    return deepest


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
            if item.head is not None and len(item.head) != KEY_BYTES or len(item.request) > 64:
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
            tiers: tuple[str, ...] = (item.tier,)
            _check_ancestry(item)
        case Move():
            tiers = (item.from_, item.to)
        case Drop():
            tiers = (item.tier,)
            if item.reason not in _REASONS:
                raise Refused("wrong-type", "reason")
        case State():
            tiers = (item.tier,)
            if item.state not in _STATES:
                raise Refused("wrong-type", "state")
    if not _TIERS.issuperset(tiers):
        raise Refused("wrong-type", "tier")


def _check_ancestry(item: Add | Adds) -> None:
    keys = item.keys
    count = len(keys) // KEY_BYTES
    if isinstance(item, Adds):
        if len(item.parents) != len(keys):
            raise Refused("bad-keys", "keys and parents differ in number")
        for i in range(0, len(keys), KEY_BYTES):
            if keys[i : i + KEY_BYTES] == item.parents[i : i + KEY_BYTES]:
                raise Refused("parent-cycle")
        return
    if item.parent is not None and len(item.parent) != KEY_BYTES:
        raise Refused("bad-keys", "parent")
    seen = {keys[i : i + KEY_BYTES] for i in range(0, len(keys), KEY_BYTES)}
    if len(seen) != count:
        raise Refused("duplicate-key")
    if item.parent in seen:
        raise Refused("parent-cycle")


def _natural(*values: float) -> None:
    for v in values:
        if not 0 <= v <= _I63:  # also refuses NaN
            raise Refused("negative-size", str(v)[:40])
