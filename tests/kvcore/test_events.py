"""What a frame and its items may be, and the code of every refusal."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore import events as ev
from kvcore import items
from kvcore.events import Add, Adds, Clear, Drop, Gap, Load, Mark, Move, Refused, State, Use, decode_frame, decode_item

NS = bytes([7]) * 32
pack = msgspec.msgpack.encode


def k(*numbers: int) -> bytes:
    return b"".join(n.to_bytes(32, "little") for n in numbers)


BLOCKS: dict[str, Any] = {"ns": NS, "gen": 3, "group": 0}
ADD = {"k": "add", **BLOCKS, "keys": k(1, 2), "parent": None, "tier": "hbm", "tokens": 16, "bytes": 16384}
ADDS = {"k": "adds", **BLOCKS, "keys": k(1, 2), "parents": k(0, 9), "tier": "hbm", "tokens": 16, "bytes": 16384}
MOVE = {"k": "move", **BLOCKS, "keys": k(1), "from": "hbm", "to": "dram"}
DROP = {"k": "drop", **BLOCKS, "keys": k(1), "tier": "dram", "reason": "ttl"}
CLEAR = {"k": "clear", "tiers": ["hbm"], "ns": None, "gen_upto": None}
STATE = {"k": "state", **BLOCKS, "keys": k(1), "tier": "hbm", "state": "evicting"}
USE = {"k": "use", "ns": NS, "gen": 3, "head": None, "hit_tokens": 8, "tiers": {"hbm": 8}, "prompt_tokens": 10,
       "saved_ms": 6.5, "measured": True, "request": "r"}  # fmt: skip
LOAD = {"k": "load", "queue_ms": 12.0, "running": 3, "prefill_curve": [0.1, 0.2], "measured": True}
MARK = {"k": "mark", "tier": "hbm", "used": 1, "capacity": 2, "high": 0.9, "low": 0.8}
GAP = {"k": "gap", "since": 1.5, "reason": "ring"}
GOOD = [ADD, ADDS, MOVE, DROP, CLEAR, STATE, USE, LOAD, MARK, GAP]
BAD = [{**ADD, "keys": k(1, 1)}, {**ADD, "parent": k(2)}, {**ADDS, "keys": k(1, 2), "parents": k(2, 1)}, 7, None, "x",
       {**DROP, "reason": "x"}, {"k": "tea\x00"}, [[[[[]]]]], {**ADD, "keys": [k(1), k(2)]}, {**ADD, "tier": 3},
       {**USE, "request": "\x00"}]  # fmt: skip
FRAME = {"v": 1, "node": "n", "source": "s", "dp_rank": 0, "shard": 0, "boot": "b", "stream": "t", "seq": 4,
         "ts": 1.5, "fence_seq": 9, "allowances": 6, "items": GOOD}  # fmt: skip


def code(item: Any) -> str:
    with pytest.raises(Refused) as e:
        decode_item(item if isinstance(item, bytes) else pack(item))
    return e.value.code


def frame_code(body: bytes) -> str:
    with pytest.raises(Refused) as e:
        decode_frame(body)
    return e.value.code


def test_every_kind_decodes_and_encodes_to_the_same() -> None:
    frame = decode_frame(pack(FRAME))
    kinds = [decode_item(raw) for raw in frame.items]
    assert [type(i) for i in kinds] == [Add, Adds, Move, Drop, Clear, State, Use, Load, Mark, Gap]
    assert [decode_item(pack(i)) for i in kinds] == kinds


def test_keys_may_come_as_lists() -> None:
    assert decode_item(pack({**ADD, "keys": [k(1), k(2)]})) == decode_item(pack(ADD))
    assert decode_item(pack({**ADDS, "keys": [k(1), k(2)], "parents": [None, k(9)]})) == decode_item(pack(ADDS))
    assert decode_item(pack({**ADDS, "parents": [None, k(9)]})) == decode_item(pack(ADDS))
    assert code({**ADD, "keys": [k(1), b"short"]}) == "bad-keys"
    assert code({**ADD, "keys": [k(1), None]}) == "bad-keys"
    assert code({**ADD, "keys": [k(1), k(1)]}) == "duplicate-key"
    assert code({**ADD, "keys": [k(1)], "tier": 7}) == "wrong-type"
    assert code({**ADD, "keys": []}) == "bad-keys"
    assert code({**ADD, "keys": [[[1]]]}) == "nesting"


ITEMS = {item["k"]: item for item in GOOD}


@pytest.mark.parametrize("kind", sorted(ITEMS))
def test_an_unknown_field_is_passed_over_unless_it_is_nested_too_deep(kind: str) -> None:
    good = ITEMS[kind]
    assert good["k"] == kind
    for extra in (1, None, "x", b"x", [1], {"a": 1}, [[]], {"a": {}}, {1: 2}):
        assert decode_item(pack({**good, "later": extra})) == decode_item(pack(good))
    for deep in ([[1]], [[[]]], {"a": [1]}, {"a": {"b": {}}}, {1: [[2]]}):
        assert code({**good, "later": deep}) == "nesting"
        assert code({"later": deep, **good}) == "nesting"
        both = [msgspec.Raw(pack(good)), msgspec.Raw(pack({**good, "later": deep}))]
        first, second = ev.decode_items(both)
        assert first == decode_item(pack(good))
        assert isinstance(second, Refused)
        assert second.code == "nesting"
    raw = pack({**good, "later": 0})[:-1] + b"\x91" * 100_000 + b"\x01"
    assert code(raw) == "nesting"
    assert code({**good, 7: 1}) == "wrong-type"


def test_lists_of_keys_and_unknown_fields_come_together() -> None:
    assert decode_item(pack({**ADD, "keys": [k(1), k(2)], "later": 1})) == decode_item(pack(ADD))
    assert code({**ADD, "keys": [k(1), b"short"], "later": 1}) == "bad-keys"
    assert code({**ADD, "tier": 7, "later": 1}) == "wrong-type"
    assert code({**ADD, "k": "dance", "later": 1}) == "unknown-item"


def test_too_many_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ev, "KEYS_MAX", 2)
    monkeypatch.setattr(items, "KEYS_MAX", 2)
    assert code({**ADD, "keys": k(1, 2, 3)}) == "too-many-keys"
    assert code({**ADD, "keys": [k(1), k(2), k(3)]}) == "too-many-keys"


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({**ADD, "k": "explode"}, "unknown-item"),
        ({**ADD, "k": 5}, "wrong-type"),
        ({}, "wrong-type"),
        ([1, 2], "wrong-type"),
        (5, "wrong-type"),
        ({**ADD, "gen": "3"}, "wrong-type"),
        ({x: y for x, y in ADD.items() if x != "tier"}, "wrong-type"),
        ({**ADD, "tier": "l9"}, "wrong-type"),
        ({**ADD, "keys": k(1)[:31]}, "bad-keys"),
        ({**ADD, "keys": b""}, "bad-keys"),
        ({**ADD, "ns": b"x"}, "bad-keys"),
        ({**ADD, "parent": b"x"}, "bad-keys"),
        ({**ADD, "parent": k(2)}, "parent-cycle"),
        ({**ADD, "keys": k(2, 2)}, "duplicate-key"),
        ({**ADD, "bytes": -1}, "negative-size"),
        ({**ADD, "tokens": -1}, "negative-size"),
        ({**ADD, "gen": -1}, "negative-size"),
        ({**ADD, "gen": 2**64 - 1}, "negative-size"),
        ({**ADD, "group": 40_000}, "wrong-type"),
        ({**ADD, "from_owner": -4}, "negative-size"),
        ({**ADD, "step": "\x00"}, "wrong-type"),
        ({**ADDS, "parents": k(0)}, "bad-keys"),
        ({**ADDS, "keys": k(5, 5)}, "duplicate-key"),
        ({**ADDS, "keys": k(1, 2), "parents": k(2, 1)}, "parent-cycle"),
        ({**ADDS, "keys": k(1, 2), "parents": k(1, 0)}, "parent-cycle"),
        ({**ADDS, "keys": k(1, 2, 3), "parents": k(9, 3, 2)}, "parent-cycle"),
        ({**MOVE, "to": "x"}, "wrong-type"),
        ({**DROP, "reason": "boredom"}, "wrong-type"),
        ({**STATE, "state": "free"}, "wrong-type"),
        ({**CLEAR, "tiers": ["x"]}, "wrong-type"),
        ({**CLEAR, "ns": b"x"}, "wrong-type"),
        ({**CLEAR, "gen_upto": -2}, "negative-size"),
        ({**USE, "hit_tokens": -1}, "negative-size"),
        ({**USE, "saved_ms": float("nan")}, "negative-size"),
        ({**USE, "tiers": {"x": 1}}, "wrong-type"),
        ({**USE, "tiers": {"hbm": [[1]]}}, "nesting"),
        ({**USE, "head": b"x"}, "wrong-type"),
        ({**USE, "request": "r" * 201}, "wrong-type"),
        ({**LOAD, "queue_ms": float("inf")}, "negative-size"),
        ({**MARK, "used": 3}, "used-over-capacity"),
        ({**MARK, "low": 0.95}, "wrong-type"),
        ({**MARK, "tier": "x"}, "wrong-type"),
        ({**GAP, "reason": "x"}, "wrong-type"),
        ({**GAP, "since": -1.0}, "negative-size"),
        (b"\xc1", "wrong-type"),
        (b"\x91" * 5_000 + b"\x01", "nesting"),
        (b"\x81\xa1k\xa2\xff\xfe", "wrong-type"),
    ],
)
def test_item_codes(item: Any, expected: str) -> None:
    assert code(item) == expected
    assert expected in ev.REFUSALS


def test_acyclic_parents_within_an_item_are_fine() -> None:
    assert isinstance(decode_item(pack({**ADDS, "keys": k(1, 2, 3), "parents": k(0, 1, 1)})), Adds)
    assert isinstance(decode_item(pack({**ADDS, "keys": k(3, 2, 1), "parents": k(2, 1, 0)})), Adds)


def test_keys_that_agree_in_their_first_bytes_are_distinct() -> None:
    a, b = bytes(31) + b"\x01", bytes(31) + b"\x02"
    assert isinstance(decode_item(pack({**ADD, "keys": a + b, "parent": bytes(31) + b"\x03"})), Add)
    assert code({**ADD, "keys": a + b, "parent": b}) == "parent-cycle"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"v": 2}, "version-unsupported"),
        ({"seq": -1}, "malformed-frame"),
        ({"seq": 2**64 - 1}, "malformed-frame"),
        ({"dp_rank": -1}, "malformed-frame"),
        ({"ts": float("nan")}, "malformed-frame"),
        ({"ts": float("-inf")}, "malformed-frame"),
        ({"source": ""}, "malformed-frame"),
        ({"boot": "a\x00b"}, "malformed-frame"),
        ({"stream": "x" * 300}, "malformed-frame"),
        ({"items": 5}, "malformed-frame"),
        ({"items": [1] * 70_000}, "frame-too-large"),
    ],
)
def test_frame_codes(change: dict[str, Any], expected: str) -> None:
    assert frame_code(pack({**FRAME, **change})) == expected
    assert expected in ev.REFUSALS


def test_frame_bytes() -> None:
    assert frame_code(pack(FRAME)[:-3]) == "truncated-frame"
    assert frame_code(b"") == "truncated-frame"
    assert frame_code(b"\xc1") == "malformed-frame"
    assert frame_code(b"\x91" * 100_000) == "malformed-frame"
    assert frame_code(bytes(ev.FRAME_BYTES_MAX + 1)) == "frame-too-large"
    assert decode_frame(pack({**FRAME, "dp_rank": None})).dp_rank is None


def test_a_frame_can_carry_an_item_of_any_depth() -> None:
    """The depth costs that item alone."""
    body = pack({**FRAME, "items": [1]})
    deep = body.replace(pack("items") + b"\x91\x01", pack("items") + b"\x92" + b"\x91" * 400 + b"\x01" + pack(GAP))
    frame = decode_frame(deep)
    assert code(bytes(frame.items[0])) == "nesting"
    assert isinstance(decode_item(frame.items[1]), Gap)


@given(st.data())
def test_a_mutated_frame_raises_nothing_but_refused(data: st.DataObject) -> None:
    body = bytearray(pack(FRAME))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(body) - 1))
        if data.draw(st.booleans()):
            body[at] = data.draw(st.integers(0, 255))
        else:
            del body[at : at + data.draw(st.integers(1, 40))]
    frame = judged(lambda: decode_frame(bytes(body)))
    for raw in frame.items if isinstance(frame, ev.Frame) else ():
        item = judged(lambda raw=raw: decode_item(raw))
        assert item in ev.REFUSALS if isinstance(item, str) else decode_item(pack(item)) == item


def judged(decode: Callable[[], Any]) -> Any:
    """What came of it, or the code of the refusal."""
    try:
        return decode()
    except Refused as e:
        return e.code


@given(st.lists(st.sampled_from(range(len(BAD) + len(GOOD))), max_size=12), st.booleans())
def test_items_together_are_judged_as_items_alone(picks: list[int], suspicious: bool) -> None:
    """However good and bad ones are mixed, each costs itself alone; whoever looks for twins may suspect everybody."""
    raws = [msgspec.Raw(pack((GOOD + BAD)[i])) for i in picks]
    alone = [judged(lambda raw=raw: decode_item(raw)) for raw in raws]
    twice = (lambda chains: range(len(chains))) if suspicious else None
    together = ev.decode_items(raws, twice=twice)
    assert [i.code if isinstance(i, Refused) else i for i in together] == alone


def test_what_a_refusal_quotes_can_be_stored_and_shown() -> None:
    with pytest.raises(Refused) as e:
        decode_item(pack({"k": "a\x00\x1b\ud7ff"}))
    assert e.value.code == "unknown-item"
    assert e.value.detail.isprintable()
