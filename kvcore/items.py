"""Decides what an item of a frame looks like, and why one that has the right types is refused all the same.

The contract is `docs/protocol.md`. Called by `kvcore.events`, which has everything of this module that others use.
Checks are written for items that are good: what is wrong with a bad one may cost more to say.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from kvcore.blocks import TIERS
from kvcore.keys import KEY_BYTES, unpack
from kvcore.refusals import Refused

KEYS_MAX = 262_144
"""Keys of one item. An engine event with more is refused; agents cut chains long before."""
REASONS = ("watermark", "ttl", "epoch", "quota", "delete", "value", "donor_reclaim", "hot_move", "engine")
GROUP_MAX = 32_767
"""Cache groups are numbered from 0; the catalog keeps the number in a smallint."""
BLOCK_TOKENS_MAX = 2**20
BLOCK_BYTES_MAX = 2**32
"""Of one block. Sums over hours of blocks must fit a bigint, or one frame could stop the catalog."""
REQUEST_TOKENS_MAX = 2**26
RUNNING_MAX = 2**31 - 1
NAME_MAX = 200
"""Characters of a node, source, boot, stream, step or request name."""
Packed = bytes
"""Keys of `KEY_BYTES` each, one behind the other."""
STATES = ("committed", "referenced", "transferring", "quarantined", "evicting")
GAPS = ("ring", "map", "decode", "restart", "overflow")


class Add(msgspec.Struct, frozen=True, gc=False, tag_field="k", tag="add", kw_only=True, forbid_unknown_fields=True):
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


class Adds(msgspec.Struct, frozen=True, gc=False, tag_field="k", tag="adds", kw_only=True, forbid_unknown_fields=True):
    """Single blocks of many chains came. `parents` is packed like `keys`; 32 zero bytes = start of a prompt."""

    ns: bytes
    gen: int
    keys: Packed
    parents: Packed
    tier: str
    tokens: int
    bytes: int
    group: int = 0


class Move(msgspec.Struct, frozen=True, gc=False, tag_field="k", tag="move", kw_only=True, forbid_unknown_fields=True):
    """Blocks went from one tier of the node to another."""

    ns: bytes
    gen: int
    keys: Packed
    from_: str = msgspec.field(name="from")
    to: str
    group: int = 0


class Drop(msgspec.Struct, frozen=True, gc=False, tag_field="k", tag="drop", kw_only=True, forbid_unknown_fields=True):
    """Blocks are no longer in a tier."""

    ns: bytes
    gen: int
    keys: Packed
    tier: str
    reason: str
    group: int = 0


class Clear(msgspec.Struct, frozen=True, tag_field="k", tag="clear", kw_only=True, forbid_unknown_fields=True):
    """Tiers were emptied, of one namespace or of all; no tiers = scope unknown, so everything becomes unverified."""

    tiers: tuple[str, ...] = ()
    ns: bytes | None = None
    gen_upto: int | None = None


class State(
    msgspec.Struct, frozen=True, gc=False, tag_field="k", tag="state", kw_only=True, forbid_unknown_fields=True
):
    """Blocks changed their state in place."""

    ns: bytes
    gen: int
    keys: Packed
    tier: str
    state: str
    group: int = 0


class Use(msgspec.Struct, frozen=True, tag_field="k", tag="use", kw_only=True, forbid_unknown_fields=True):
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


class Load(msgspec.Struct, frozen=True, tag_field="k", tag="load", kw_only=True, forbid_unknown_fields=True):
    """How busy the source is. prefill ms = a·n + b·n² for n tokens."""

    queue_ms: float
    running: int
    prefill_curve: tuple[float, float]
    measured: bool


class Mark(msgspec.Struct, frozen=True, tag_field="k", tag="mark", kw_only=True, forbid_unknown_fields=True):
    """Fill of a tier in bytes, and its marks as shares of the capacity."""

    tier: str
    used: int
    capacity: int
    high: float
    low: float


class Gap(msgspec.Struct, frozen=True, tag_field="k", tag="gap", kw_only=True, forbid_unknown_fields=True):
    """The agent could not see part of its engine's events."""

    since: float
    reason: str


Item = Add | Adds | Move | Drop | Clear | State | Use | Load | Mark | Gap


_TIERS, _REASONS, _STATES, _GAPS = frozenset(TIERS), frozenset(REASONS), frozenset(STATES), frozenset(GAPS)
I63 = 2**63 - 1


def named(text: str) -> bool:
    """Whether a name can be stored and shown: PostgreSQL takes no NUL, a page no control characters."""
    return 0 < len(text) <= NAME_MAX and text.isprintable()


def check(item: Item) -> None:
    """The item may be applied.

    Raises:
        Refused: with an item code.
    """
    _CHECKS[type(item)](item)
    if type(item) is Add or type(item) is Adds:
        check_distinct(item)


def check_values(item: Item) -> None:
    """As `check`, but whether an `add` names a key twice was or will be found out in another way.

    Raises:
        Refused: with an item code.
    """
    _CHECKS[type(item)](item)
    if type(item) is Adds:
        check_distinct(item)


def check_distinct(item: Add | Adds) -> None:
    """No key is named twice, and none is its own ancestor.

    Raises:
        Refused: duplicate-key or parent-cycle.
    """
    heads = _heads(item.keys)
    distinct = set(heads)
    if len(distinct) != len(heads) and len(set(unpack(item.keys))) != len(heads):
        raise Refused("duplicate-key")
    if type(item) is Adds and not distinct.isdisjoint(_heads(item.parents)):
        _check_acyclic(dict(zip(unpack(item.keys), unpack(item.parents), strict=True)))


def _add(item: Add) -> None:
    _blocks(item)
    _size(item)
    parent = item.parent
    if parent is not None:
        if len(parent) != KEY_BYTES:
            raise Refused("bad-keys", "parent")
        if item.keys.find(parent) >= 0 and parent in unpack(item.keys):
            raise Refused("parent-cycle")
    if item.from_owner is not None:
        _natural(item.from_owner)
    if item.step is not None and not named(item.step):
        raise Refused("wrong-type", "step")


def _adds(item: Adds) -> None:
    _blocks(item)
    _size(item)
    if len(item.parents) != len(item.keys):
        raise Refused("bad-keys", "keys and parents differ in number")


def _move(item: Move) -> None:
    _blocks(item)
    if item.from_ not in _TIERS or item.to not in _TIERS:
        raise Refused("wrong-type", "tier")


def _drop(item: Drop) -> None:
    _blocks(item)
    if item.tier not in _TIERS or item.reason not in _REASONS:
        raise Refused("wrong-type", "tier or reason")


def _state(item: State) -> None:
    _blocks(item)
    if item.tier not in _TIERS or item.state not in _STATES:
        raise Refused("wrong-type", "tier or state")


def _clear(item: Clear) -> None:
    if not _TIERS.issuperset(item.tiers) or (item.ns is not None and len(item.ns) != KEY_BYTES):
        raise Refused("wrong-type", "tiers or ns")
    _natural(item.gen_upto or 0)


def _use(item: Use) -> None:
    _natural(item.gen, item.hit_tokens, item.prompt_tokens, item.saved_ms, *item.tiers.values())
    if len(item.ns) != KEY_BYTES or not _TIERS.issuperset(item.tiers):
        raise Refused("wrong-type", "ns or tiers")
    if (item.head is not None and len(item.head) != KEY_BYTES) or not named(item.request):
        raise Refused("wrong-type", "head or request")
    if max(item.hit_tokens, item.prompt_tokens, *item.tiers.values()) > REQUEST_TOKENS_MAX:
        raise Refused("negative-size", f"more than {REQUEST_TOKENS_MAX} tokens")


def _load(item: Load) -> None:
    _natural(item.queue_ms, item.running, *item.prefill_curve)
    if item.running > RUNNING_MAX:
        raise Refused("negative-size", "running")


def _mark(item: Mark) -> None:
    _natural(item.used, item.capacity, item.high, item.low)
    if item.tier not in _TIERS or not item.low <= item.high <= 1:
        raise Refused("wrong-type", "tier or marks")
    if item.used > item.capacity:
        raise Refused("used-over-capacity", item.tier)


def _gap(item: Gap) -> None:
    _natural(item.since)
    if item.reason not in _GAPS:
        raise Refused("wrong-type", "reason")


_CHECKS: dict[type, Callable[[Any], None]] = {
    Add: _add, Adds: _adds, Move: _move, Drop: _drop, Clear: _clear, State: _state, Use: _use, Load: _load,
    Mark: _mark, Gap: _gap,
}  # fmt: skip


def _blocks(item: Add | Adds | Move | Drop | State) -> None:
    n = len(item.keys)
    if not n or n % KEY_BYTES or len(item.ns) != KEY_BYTES:
        raise Refused("bad-keys", f"{n} bytes of keys")
    if n > KEYS_MAX * KEY_BYTES:
        raise Refused("too-many-keys", str(n // KEY_BYTES))
    if not 0 <= item.gen <= I63:
        raise Refused("negative-size", str(item.gen)[:40])
    if not 0 <= item.group <= GROUP_MAX:
        raise Refused("negative-size" if item.group < 0 else "wrong-type", "group")


def _size(item: Add | Adds) -> None:
    if not (0 <= item.tokens <= BLOCK_TOKENS_MAX and 0 <= item.bytes <= BLOCK_BYTES_MAX):
        raise Refused("negative-size", "tokens or bytes of a block")
    if item.tier not in _TIERS:
        raise Refused("wrong-type", "tier")


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
        if not 0 <= v <= I63:  # also refuses NaN
            raise Refused("negative-size", str(v)[:40])
