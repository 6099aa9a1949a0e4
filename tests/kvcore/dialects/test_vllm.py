"""vLLM's bytes of every version, recorded runs, and what is refused."""

import copy
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.dialects import vllm
from kvcore.dialects.engine import Bad, Cleared, Removed, Stored, tier_of, token_bytes
from kvcore.dialects.vllm import decode_batch
from kvcore.events import REFUSALS, Refused
from kvcore.keys import salt_tag
from tests.golden.bytes import WIRE
from tests.golden.frames import LIVE, expected, messages

pack = msgspec.msgpack.encode


@pytest.mark.parametrize("version", WIRE)
def test_golden_bytes(version: str) -> None:
    batch = decode_batch(bytes.fromhex(WIRE[version]))
    stored, removed, cleared = batch.events
    sglang = version.startswith("sglang")
    h = (-5 % 2**64 if sglang else 17).to_bytes(8, "big")
    assert isinstance(stored, Stored)
    assert (stored.hashes, stored.parent, stored.block_tokens, stored.tier) == ([h], None, 4, "hbm")
    assert stored.tokens is not None
    assert token_bytes(stored.tokens) == b"".join(n.to_bytes(4, "little") for n in (1, 2, 3, 4))
    assert (stored.group, stored.exact, stored.salt_tags, stored.extras) == (0, True, (), None)
    assert removed == Removed(hashes=[h], tier=tier_of("CPU_PINNED" if sglang else None))
    assert cleared == Cleared()
    assert (batch.ts, batch.rank) == (1.5, None if version == "vllm-0.9.0" else 0)


def held_after_each_phase(run: str) -> list[tuple[str | None, int, set[str]]]:
    """Ownership as a plain consumer would keep it: live messages only, a falling sequence is a new life."""
    out: list[tuple[str | None, int, set[str]]] = []
    held: dict[int, Counter[tuple[str, int, bytes]]] = {}
    phase, last = None, -1
    live = [m for m in messages(run) if m.kind == "pub"]
    for message, after in zip(live, [*live[1:], None], strict=True):
        phase = message.phase
        batch = decode_batch(message.payload)
        rank = batch.rank or 0
        blocks = held.setdefault(rank, Counter())
        if message.seq <= last:
            blocks.clear()
        last = message.seq
        for event in batch.events:
            match event:
                case Stored():
                    blocks.update(
                        (event.tier, event.group, h) for h in event.hashes if not blocks[event.tier, event.group, h]
                    )
                case Removed():
                    for h in event.hashes:
                        del blocks[event.tier, event.group, h]
                case Cleared():
                    for place in [p for p in blocks if p[0] == "hbm"]:
                        del blocks[place]
                case Bad():
                    pytest.fail(str(event))
        if after is None or after.phase != phase:
            medium = {"hbm": "GPU"}
            shown = {
                f"{medium[t]}/{g}/{int.from_bytes(h, 'big') if len(h) == 8 else h.hex()}"
                for (t, g, h), n in blocks.items()
                if n
            }
            out.append((phase, rank, shown))
    return out


@pytest.mark.parametrize("run", LIVE)
def test_recorded_runs_give_the_ownership_beside_them(run: str) -> None:
    assert held_after_each_phase(run) == expected(run)


def stored(**change: Any) -> dict[str, Any]:
    event = {"type": "BlockStored", "block_hashes": [1, 2], "parent_block_hash": None, "token_ids": list(range(8)),
             "block_size": 4, "lora_id": None, "medium": "GPU", "lora_name": None}  # fmt: skip
    return {**event, **change}


GOOD = stored(block_hashes=[91, 92])
REMOVED = {"type": "BlockRemoved", "block_hashes": [91], "medium": "GPU"}


def one(event: Any) -> Any:
    """The event between two good ones, which must stay exact whatever it is."""
    events = decode_batch(pack([1.0, [GOOD, event, REMOVED], 0])).events
    assert isinstance(events[0], Stored)
    assert [int.from_bytes(h, "big") for h in events[0].hashes] == [91, 92]
    assert events[2] == Removed(hashes=[(91).to_bytes(8, "big")], tier=tier_of("GPU"))
    return events[1]


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({"type": "BlockTeleported", "x": 1}, "unknown-item"),
        (["BlockTeleported", 1], "unknown-item"),
        (5, "wrong-type"),
        ([], "wrong-type"),
        ({}, "wrong-type"),
        (stored(medium="TAPE"), "unknown-medium"),
        (stored(block_hashes=["x"]), "wrong-type"),
        (stored(block_hashes=[True]), "wrong-type"),
        (stored(block_hashes=[]), "bad-keys"),
        (stored(block_hashes=[b"", b"a"]), "bad-keys"),
        (stored(block_hashes=[b"x" * 65]), "bad-keys"),
        (stored(block_hashes=[1, 1]), "duplicate-key"),
        (stored(parent_block_hash=2), "parent-cycle"),
        (stored(block_hashes=[1, 2, 3]), "hashes-over-tokens"),
        (stored(block_size=5), "hashes-over-tokens"),
        (stored(block_size=-4), "negative-size"),
        (stored(block_size=0), "negative-size"),
        (stored(token_ids=None), "wrong-type"),
        (stored(token_ids={}), "wrong-type"),
        (stored(group_idx=-1), "negative-size"),
        (stored(extra_keys=5), "wrong-type"),
        (stored(extra_keys=[5, None]), "wrong-type"),
        (stored(extra_keys=[["salt", ["image", 0]]]), "wrong-type"),
        (["BlockStored", [1]], "wrong-type"),
        (["BlockRemoved"], "wrong-type"),
        (["BlockRemoved", [1], "TAPE"], "unknown-medium"),
    ],
)
def test_each_bad_event_has_its_code_and_costs_itself_only(event: Any, code: str) -> None:
    bad = one(event)
    assert isinstance(bad, Bad)
    assert (bad.index, bad.code) == (1, code)
    assert code in REFUSALS


def test_a_million_hashes_in_one_event() -> None:
    assert one(stored(block_hashes=list(range(10**6)))).code == "too-many-keys"


@pytest.mark.parametrize("depth", [900, 200_000])
def test_nesting_costs_the_event_only(depth: int) -> None:
    body = pack([1.0, [GOOD, 7, REMOVED], 0])
    first = pack(GOOD)
    body = body.replace(first + b"\x07", first + b"\x91" * depth + b"\x07")
    events = decode_batch(body).events
    assert isinstance(events[0], Stored)
    assert isinstance(events[1], Bad)
    assert events[1].code in ("nesting", "wrong-type")
    assert isinstance(events[2], Removed)


def test_bodies_that_are_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    good = pack([1.0, [GOOD], 0])
    for body, code in [
        (good[:-4], "truncated-frame"), (b"", "truncated-frame"), (b"\xc1", "malformed-frame"),
        (pack({}), "malformed-frame"),
        (pack([float("nan"), [], 0]), "malformed-frame"), (pack([1.0, [], -1]), "malformed-frame"),
        (b"\x91" * 300_000, "malformed-frame"), (b"\x93\x00\x91" + b"\x91" * 200_000 + b"\xc1", "malformed-frame"),
    ]:  # fmt: skip
        with pytest.raises(Refused) as e:
            decode_batch(body)
        assert e.value.code == code
    monkeypatch.setattr(vllm, "BATCH_BYTES_MAX", 10)
    with pytest.raises(Refused, match="frame-too-large"):
        decode_batch(good)


def test_fields_of_later_versions_are_ignored() -> None:
    later = stored(locality="LOCAL", ownership="x", session_id="s", lookahead_token_ids=[[1]], brand_new={"a": [1]})
    assert one(later) == one(stored())
    array = [
        "BlockStored",
        [1, 2],
        None,
        list(range(8)),
        4,
        None,
        "GPU",
        None,
        None,
        0,
        "full_attention",
        None,
        "more",
        {},
    ]
    assert isinstance(one(array), Stored)


def test_media() -> None:
    tiers = {m: one(stored(medium=m)).tier for m in ("GPU", "gpu", "CPU", "cpu", "CPU_PINNED", "FS", "STORAGE", "OBJ")}
    assert list(tiers.values()) == ["hbm", "hbm", "dram", "dram", "pinned", "ssd", "ssd", "remote"]
    assert one(stored(medium=None)).tier == "hbm"
    assert one(stored(medium="FS", locality="REMOTE")).tier == "remote"
    assert one({**REMOVED, "medium": "cpu"}).tier == "dram"


def test_an_offload_placeholder_is_no_root() -> None:
    event = one(stored(block_hashes=[1], block_size=0, token_ids=[], medium="CPU"))
    assert (event.tokens, event.block_tokens, event.tier) == (None, 0, "dram")


def test_groups_may_skip_blocks() -> None:
    event = one(stored(block_hashes=[2], group_idx=1, kv_cache_spec_kind="sliding_window", extra_keys=[None, ["x"]]))
    assert (event.exact, event.group, event.kind) == (False, 1, "sliding_window")
    assert isinstance(one(stored(block_hashes=[9], token_ids=[1, 2], block_size=2)), Stored)  # a partial block


def test_hashes_of_all_kinds() -> None:
    event = one(stored(block_hashes=[2**64 - 1, -7], parent_block_hash=b"p" * 32))
    assert event.hashes == [b"\xff" * 8, (-7 % 2**64).to_bytes(8, "big")]
    assert event.parent == b"p" * 32
    assert one(stored(block_hashes=[b"a" * 32, b"b" * 16])).hashes == [b"a" * 32, b"b" * 16]


def test_what_extra_keys_tell() -> None:
    salted = one(stored(extra_keys=[["tenant-a"], None]))
    assert (salted.salt_tags, salted.extras) == ((salt_tag("tenant-a"),), None)
    lora = one(stored(lora_name="ad1", extra_keys=[["ad1", "tenant-a"], ["ad1"]]))
    assert (lora.salt_tags, lora.extras, lora.lora) == ((salt_tag("tenant-a"),), None, "ad1")
    image = one(stored(extra_keys=[None, [["img", 0]]]))
    assert image.salt_tags == ()
    assert image.extras[0] is None
    other = one(stored(extra_keys=[None, [["img2", 0]]]))
    assert image.extras[1] != other.extras[1]
    assert len(image.extras[1]) == 16
    tagged = one(stored(extra_keys=[[["cache_salt", "tenant-a"], ["lora", "x", "/p"]], None]))
    assert (tagged.salt_tags, tagged.extras) == ((salt_tag("tenant-a"),), None)
    later = one(stored(parent_block_hash=5, extra_keys=[["embeds"], None]))
    assert later.salt_tags == ()
    assert later.extras is not None


def test_no_value_of_an_event_is_in_a_refusal() -> None:
    for event in (
        stored(token_ids="canary"),
        stored(block_hashes=["canary"]),
        ["canary canary", 1],
        stored(extra_keys="canary"),
    ):
        bad = one(event)
        assert "canary" not in bad.detail


def test_token_ids_that_are_none() -> None:
    for tokens in ([-1, 0, 0, 0], [2**32, 0, 0, 0], ["x"], [[1]]):
        with pytest.raises(Refused):
            token_bytes(msgspec.Raw(pack(tokens)))


ids = st.one_of(st.integers(0, 2**32 - 1), st.integers(0, 200), st.sampled_from([127, 128, 255, 256, 65_535, 65_536]))


@given(st.lists(st.lists(ids, min_size=4, max_size=4), min_size=1, max_size=20), st.booleans())
def test_ids_read_in_the_same_pass_are_the_same_ids(blocks: list[list[int]], as_array: bool) -> None:
    tokens = [i for block in blocks for i in block]
    more: dict[str, Any] = {"block_hashes": list(range(len(blocks))), "token_ids": tokens, "block_size": 4}
    event = dict(GOOD) | more | {"parent_block_hash": None, "extra_keys": None}
    body = pack(
        [1.0, [list(arrayed(event)) if as_array else event, REMOVED if not as_array else ["BlockRemoved", [1]]], 0]
    )
    (slow, one), (fast, two) = decode_batch(body).events, decode_batch(body, ids=True).events
    assert isinstance(slow, Stored)
    assert isinstance(fast, Stored)
    assert slow.tokens is not None
    assert fast.tokens == token_bytes(slow.tokens) == b"".join(t.to_bytes(4, "little") for t in tokens)
    assert msgspec.structs.replace(fast, tokens=slow.tokens) == slow
    assert one == two


def arrayed(event: dict[str, Any]) -> tuple[Any, ...]:
    """The event as engines up to 0.23 sent it."""
    return ("BlockStored", event["block_hashes"], event["parent_block_hash"], event["token_ids"], event["block_size"],
            None, event["medium"])  # fmt: skip


@pytest.mark.parametrize("tokens", [[-1, 0, 0, 0], [2**32, 0, 0, 0], ["x", 0, 0, 0], "canary"])
def test_ids_that_are_none_cost_their_event_only(tokens: Any) -> None:
    event = dict(GOOD) | {"block_hashes": [1], "token_ids": tokens, "block_size": 4, "extra_keys": None}
    bad, good = decode_batch(pack([1.0, [event, REMOVED], 0]), ids=True).events
    if isinstance(bad, Stored):
        assert bad.tokens is not None
        with pytest.raises(Refused, match="wrong-type"):
            token_bytes(bad.tokens)
    else:
        assert isinstance(bad, Bad)
        assert bad.code == "wrong-type"
    assert isinstance(good, Removed)


def test_adapters_of_before_they_had_names_are_told_apart() -> None:
    for said, lora in ((None, None), (7, "#7")):
        (event,) = decode_batch(pack([1.0, [["BlockStored", [1], None, [1, 2, 3, 4], 4, said]], 0])).events
        assert isinstance(event, Stored)
        assert event.lora == lora


@given(st.data())
def test_a_mutated_batch_raises_nothing_but_refused(data: st.DataObject) -> None:
    body = bytearray(
        pack([1.0, [copy.copy(GOOD), REMOVED, {"type": "AllBlocksCleared"}, ["BlockRemoved", [5], "CPU"]], 0])
    )
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(body) - 1))
        if data.draw(st.booleans()):
            body[at] = data.draw(st.integers(0, 255))
        else:
            del body[at : at + data.draw(st.integers(1, 30))]
    try:
        batch = decode_batch(bytes(body))
    except Refused:
        return
    codes = [e.code for e in batch.events if isinstance(e, Bad)]
    assert set(codes) <= set(REFUSALS)
