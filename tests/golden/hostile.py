"""Makes frames that an enemy or a broken agent would send, each with the verdict it must get.

Used against `kvcore`, against the ingest process and by the accept tests. Deterministic in the seed.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

pack = msgspec.msgpack.encode
TIERS = ("hbm", "pinned", "dram", "ssd", "remote")


class Hostile(NamedTuple):
    """A frame body. Either the whole frame is refused (`frame_code`), or each item has its code (None = it is good).

    `neighbours` are the packed keys of the good items that have keys, in order; all of them must be applied.
    """

    body: bytes
    frame_code: str | None
    item_codes: list[str | None]
    neighbours: list[bytes]
    kind: str


Item = dict[str, Any]


def hostile_frames(n: int, seed: int, *, ns: bytes | None = None, gen: int = 1, **head: Any) -> Iterator[Hostile]:
    """`n` frames, each with at least one thing that must be refused.

    Args:
        n: how many.
        seed: same seed, same frames.
        ns: namespace of the items; made up if None.
        gen: generation of the items.
        head: fields of the frame (node, source, boot, stream, first `seq`, …); seq grows by one with every frame
            that is not refused as a whole.
    """
    rnd = random.Random(seed)
    space = ns or rnd.randbytes(32)
    seq = int(head.pop("seq", 0))
    for i in range(n):
        frame = {"v": 1, "node": "node", "source": "engine", "dp_rank": 0, "shard": 0, "boot": "boot",
                 "stream": "stream", "ts": 1790000000.0, "fence_seq": 0, "allowances": 0,
                 **head, "seq": seq}  # fmt: skip
        if i % 3 == 2:
            kind, body, code = _bad_frame(rnd, frame, [_good(rnd, space, gen)])
            yield Hostile(body, code, [], [], kind)
            continue
        items: list[Any] = []
        codes: list[str | None] = []
        kinds = []
        neighbours = []
        for _ in range(rnd.randint(1, 3)):
            good = _good(rnd, space, gen)
            name, bad, code = _bad_item(rnd, space, gen)
            for item, verdict in ((good, None), (bad, code)):
                items.append(item)
                codes.append(verdict)
            kinds.append(name)
            neighbours.append(good["keys"])
        yield Hostile(_encode(frame, items), None, codes, neighbours, "+".join(kinds))
        seq += 1


def _encode(frame: dict[str, Any], items: list[Any]) -> bytes:
    return pack({**frame, "items": [msgspec.Raw(x) if isinstance(x, bytes) else x for x in items]})


def _good(rnd: random.Random, ns: bytes, gen: int) -> Item:
    keys = rnd.randbytes(32 * rnd.randint(1, 6))
    return {"k": "add", "ns": ns, "gen": gen, "group": 0, "keys": keys, "parent": None, "tier": "hbm",
            "tokens": 16, "bytes": 1024}  # fmt: skip


def _add(change: Item) -> Callable[[random.Random, Item], Any]:
    return lambda rnd, good: {**good, **change}


def _without(field: str) -> Callable[[random.Random, Item], Any]:
    return lambda rnd, good: {k: v for k, v in good.items() if k != field}


def _keys(n: int, rnd: random.Random) -> list[bytes]:
    return [rnd.randbytes(32) for _ in range(n)]


def _cycle(rnd: random.Random, good: Item) -> Item:
    a, b, c = _keys(3, rnd)
    adds = {**good, "k": "adds", "keys": a + b + c, "parents": c + a + b}
    del adds["parent"]
    return adds


def _twice(rnd: random.Random, good: Item) -> Item:
    (a,) = _keys(1, rnd)
    return {**good, "keys": a + a}


def _own_parent(rnd: random.Random, good: Item) -> Item:
    a, b = _keys(2, rnd)
    return {**good, "keys": a + b, "parent": b}


def _mark(change: Item) -> Callable[[random.Random, Item], Any]:
    mark = {"k": "mark", "tier": "hbm", "used": 1, "capacity": 2, "high": 0.9, "low": 0.8}
    return lambda rnd, good: {**mark, **change}


ITEMS: dict[str, tuple[Callable[[random.Random, Item], Any], str]] = {
    "unknown kind": (_add({"k": "explode"}), "unknown-item"),
    "no kind": (_without("k"), "wrong-type"),
    "not a map": (lambda rnd, good: rnd.choice([5, None, "x", [], [good]]), "wrong-type"),
    "keys cut": (lambda rnd, good: {**good, "keys": good["keys"][:-1]}, "bad-keys"),
    "no keys": (_add({"keys": b""}), "bad-keys"),
    "keys of text": (_add({"keys": "x" * 32}), "wrong-type"),
    "listed key too short": (_add({"keys": [b"short"]}), "bad-keys"),
    "namespace cut": (_add({"ns": b"x" * 31}), "bad-keys"),
    "parent cut": (_add({"parent": b"x"}), "bad-keys"),
    "same key twice": (_twice, "duplicate-key"),
    "own parent": (_own_parent, "parent-cycle"),
    "cycle": (_cycle, "parent-cycle"),
    "negative bytes": (_add({"bytes": -1}), "negative-size"),
    "negative tokens": (_add({"tokens": -(2**40)}), "negative-size"),
    "negative generation": (_add({"gen": -1}), "negative-size"),
    "generation too big": (_add({"gen": 2**64 - 1}), "negative-size"),
    "group too big": (_add({"group": 2**20}), "wrong-type"),
    "unknown tier": (_add({"tier": "tape"}), "wrong-type"),
    "missing tier": (_without("tier"), "wrong-type"),
    "generation of text": (_add({"gen": "3"}), "wrong-type"),
    "nested": (_add({"keys": [[[[[1]]]]]}), "nesting"),
    "deeply nested": (lambda rnd, good: b"\x91" * rnd.randint(2_000, 20_000) + b"\x01", "nesting"),
    "full over": (_mark({"used": 3}), "used-over-capacity"),
    "negative use": (_mark({"used": -3}), "negative-size"),
    "not a number": (_mark({"high": float("nan")}), "negative-size"),
    "marks crossed": (_mark({"low": 0.95}), "wrong-type"),
    "unknown reason": (lambda rnd, good: {"k": "gap", "since": 1.0, "reason": "boredom"}, "wrong-type"),
    "bad text": (lambda rnd, good: b"\x81\xa1k\xa2\xff\xfe", "wrong-type"),
}


def _bad_item(rnd: random.Random, ns: bytes, gen: int) -> tuple[str, Any, str]:
    name = rnd.choice(sorted(ITEMS))
    make, code = ITEMS[name]
    return name, make(rnd, _good(rnd, ns, gen)), code


FRAMES: dict[str, tuple[Item, str]] = {
    "version": ({"v": 99}, "version-unsupported"),
    "negative seq": ({"seq": -1}, "malformed-frame"),
    "huge seq": ({"seq": 2**64 - 1}, "malformed-frame"),
    "seq of text": ({"seq": "0"}, "malformed-frame"),
    "no time": ({"ts": float("nan")}, "malformed-frame"),
    "negative rank": ({"dp_rank": -1}, "malformed-frame"),
    "nul in a name": ({"source": "a\x00b"}, "malformed-frame"),
    "long name": ({"boot": "b" * 5_000}, "malformed-frame"),
    "empty name": ({"stream": ""}, "malformed-frame"),
}


def _bad_frame(rnd: random.Random, frame: dict[str, Any], items: list[Any]) -> tuple[str, bytes, str]:
    whole = _encode(frame, items)
    choice = rnd.randrange(len(FRAMES) + 5)
    names = sorted(FRAMES)
    if choice < len(names):
        change, code = FRAMES[names[choice]]
        return names[choice], _encode({**frame, **change}, items), code
    match choice - len(names):
        case 0:
            return "truncated", whole[: rnd.randrange(1, len(whole))], "truncated-frame"
        case 1:
            return "empty", b"", "truncated-frame"
        case 2:
            return "noise", b"\xc1" + rnd.randbytes(rnd.randint(0, 200)), "malformed-frame"
        case 3:
            return "items are no list", pack({**frame, "items": 7}), "malformed-frame"
        case _:
            return "nothing but depth", b"\x91" * rnd.randint(2_000, 20_000), "malformed-frame"
