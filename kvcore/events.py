"""Decides what an event frame and its items look like, and why a frame or an item is refused.

The contract is `docs/protocol.md`. `decode_frame` judges a frame, `decode_item` each item alone, so that
a malformed item never costs its valid neighbours. Called by agents (to build) and by ingest (to read).
`keys` and `parents` may come as lists of 32-byte strings or packed into one byte string; items that are handed out
have them packed.
"""

from collections.abc import Callable, Sequence
from typing import Any, get_args

import msgspec

from kvcore import wire
from kvcore.items import BLOCK_BYTES_MAX as BLOCK_BYTES_MAX
from kvcore.items import BLOCK_TOKENS_MAX as BLOCK_TOKENS_MAX
from kvcore.items import GAPS as GAPS
from kvcore.items import GROUP_MAX as GROUP_MAX
from kvcore.items import I63, Packed, check, check_distinct, check_values, named
from kvcore.items import KEYS_MAX as KEYS_MAX
from kvcore.items import NAME_MAX as NAME_MAX
from kvcore.items import REASONS as REASONS
from kvcore.items import REQUEST_TOKENS_MAX as REQUEST_TOKENS_MAX
from kvcore.items import STATES as STATES
from kvcore.items import Add as Add
from kvcore.items import Adds as Adds
from kvcore.items import Clear as Clear
from kvcore.items import Drop as Drop
from kvcore.items import Gap as Gap
from kvcore.items import Item as Item
from kvcore.items import Load as Load
from kvcore.items import Mark as Mark
from kvcore.items import Move as Move
from kvcore.items import State as State
from kvcore.items import Use as Use
from kvcore.keys import KEY_BYTES, ROOT
from kvcore.refusals import REFUSALS as REFUSALS
from kvcore.refusals import Refused as Refused

VERSION = 1
FRAME_BYTES_MAX = 8 * 2**20
ITEMS_MAX = 65_536
NESTING_MAX = 3
"""Depth of an item: the item, a list or map in it, and its plain values."""


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
_FIELDS = {str(kind.__struct_config__.tag): frozenset((*kind.__struct_encode_fields__, "k")) for kind in get_args(Item)}
"""Fields by kind of item. Where an item has another one the decoder stops, so that what is in it is looked at."""


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
    if not all(0 <= n <= I63 for n in numbers):  # also refuses NaN
        raise Refused("malformed-frame", "a number is negative, not finite, or above 2^63")
    if not (named(frame.node) and named(frame.source) and named(frame.boot) and named(frame.stream)):
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
    check(item)
    return item


Twice = Callable[[Sequence[Packed]], Sequence[int]]
"""The keys of many items → which of these items may name a key twice; more than do is fine, fewer is not."""


def decode_items(raws: Sequence[msgspec.Raw], *, twice: Twice | None = None) -> list[Item | Refused]:
    """Each item checked, or why it is refused: what `decode_item` says of each, at a fraction of the price.

    Args:
        raws: of one frame or page.
        twice: finds out for all chains at once what is dear to find out for each; None = one by one.
    """
    decode, judge = _item.decode, check if twice is None else check_values
    out: list[Item | Refused] = []
    for raw in raws:
        try:
            item = decode(raw)
            judge(item)
        except Refused as e:
            out.append(e)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, OverflowError):
            out.append(_judged(raw))
        else:
            out.append(item)
    if twice is not None:
        chains = [(i, item) for i, item in enumerate(out) if type(item) is Add]
        for n in twice([item.keys for _, item in chains]):
            i, item = chains[n]
            try:
                check_distinct(item)
            except Refused as e:
                out[i] = e
    return out


def _judged(raw: msgspec.Raw) -> Item | Refused:
    try:
        return decode_item(raw)
    except Refused as e:
        return e


def _decode_listed(raw: msgspec.Raw | bytes, message: str) -> Item:
    """The item after its lists of keys were packed and its unknown fields left out; refused with the right code if
    that is not what was wrong.
    """
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
    if isinstance(kind, str) and kind not in _FIELDS:
        raise Refused("unknown-item", kind[:40])
    unknown = [name for name in plain if name not in _FIELDS.get(str(kind), ())]
    if not all(isinstance(name, str) for name in unknown):
        raise Refused("wrong-type", "a field without a name")
    for name in unknown:  # of a later version; what it says here is nothing
        del plain[name]
    listed = {name: value for name in ("keys", "parents") if isinstance(value := plain.get(name), list)}
    if not listed and not unknown:
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
