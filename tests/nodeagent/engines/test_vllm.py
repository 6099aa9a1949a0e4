"""vLLM's events as canonical items: namespaces by salt, keys by tokens, quarantine, copies, recorded runs."""

import time
from typing import Any

import msgspec
import pytest

from kvcore.blocks import Tier
from kvcore.dialects.vllm import decode_batch
from kvcore.events import Add, Clear, Drop, Gap, Item, decode_item
from kvcore.fold import Place, apply, fold
from kvcore.keys import chain_keys, directory_keys, salt_tag, unpack
from nodeagent.engines.vllm import Source, Vllm
from nodeagent.keymap import KeyMap
from nodeagent.keys import KeyRing, Lease
from tests.golden.frames import LIVE, expected, messages

pack = msgspec.msgpack.encode
A, B = b"a" * 32, b"b" * 32


def lease(ns: bytes, salt: str = "", gen: int = 1, block_tokens: int = 4) -> Lease:
    tag = salt_tag(salt) if salt else b""
    return Lease(ns=ns, gen=gen, block_tokens=block_tokens, blk=ns, enc=ns, salt_tag=tag, until=time.time() + 300)


@pytest.fixture
def ring() -> KeyRing:
    ring = KeyRing()
    ring.grant([lease(A), lease(B, "salt-b")])
    return ring


def engine(ring: KeyRing, **more: Any) -> Vllm:
    keymap = more.pop("keymap", None)
    return Vllm(Source(**{"name": "e", "default": A, "bytes_per_token": 64, **more}), ring, keymap)


def event(*hashes: int, parent: int | None = None, tokens: list[int] | None = None, **more: Any) -> dict[str, Any]:
    tokens = tokens if tokens is not None else [h * 4 + i for h in hashes for i in range(4)]
    return {"type": "BlockStored", "block_hashes": list(hashes), "parent_block_hash": parent, "token_ids": tokens,
            "block_size": 4, "lora_id": None, "medium": "GPU", "lora_name": None, **more}  # fmt: skip


def removed(*hashes: int, medium: str = "GPU") -> list[dict[str, Any]]:
    return [{"type": "BlockRemoved", "block_hashes": [h], "medium": medium} for h in hashes]


def placeholder(h: int, medium: str = "CPU") -> dict[str, Any]:
    return event(h, tokens=[], medium=medium, block_size=0)


def run(e: Vllm, *events: Any) -> list[Item]:
    items = e.items(decode_batch(pack([5.0, list(events), 0])))
    assert [decode_item(pack(i)) for i in items] == items  # what comes out is what the console takes
    return items


def keys(ns: bytes, *hashes: int, parent: bytes | None = None) -> list[bytes]:
    tokens = b"".join((h * 4 + i).to_bytes(4, "little") for h in hashes for i in range(4))
    return chain_keys(tokens, block_tokens=4, blk=ns, parent=parent)


def test_a_chain_of_the_default_namespace(ring: KeyRing) -> None:
    e = engine(ring)
    k1, k2 = keys(A, 1, 2)
    assert run(e, event(1, 2)) == [Add(ns=A, gen=1, keys=k1 + k2, parent=None, tier="hbm", tokens=4, bytes=256)]
    (item,) = run(e, event(3, parent=2))
    assert item == Add(ns=A, gen=1, keys=keys(A, 3, parent=k2)[0], parent=k2, tier="hbm", tokens=4, bytes=256)
    assert run(e, *removed(3, 2)) == [
        Drop(ns=A, gen=1, keys=keys(A, 3, parent=k2)[0] + k2, tier="hbm", reason="engine")
    ]


def test_the_salt_tells_the_namespace_and_children_inherit_it(ring: KeyRing) -> None:
    e = engine(ring)
    root, child = run(e, event(1, extra_keys=[["salt-b"]]), event(2, parent=1, extra_keys=[None]))
    assert (root.ns, child.ns) == (B, B)  # type: ignore[union-attr]
    assert [root.keys, child.keys] == keys(B, 1, 2)  # type: ignore[union-attr]


def test_an_unknown_salt_waits_for_its_lease(ring: KeyRing) -> None:
    e = engine(ring)
    assert run(e, event(1, extra_keys=[["salt-c"]]), event(2, parent=1)) == []
    assert (e.map.waiting, e.counts["quarantined"]) == (2, 2)
    assert e.adopt() == []
    ring.grant([lease(b"c" * 32, "salt-c")])
    first, second = e.adopt()
    assert (first.ns, second.ns) == (b"c" * 32, b"c" * 32)  # type: ignore[union-attr]
    assert [first.keys, second.keys] == keys(b"c" * 32, 1, 2)  # type: ignore[union-attr]
    assert (e.map.waiting, e.counts["adopted"]) == (0, 2)
    assert e.adopt() == []


def test_without_a_default_namespace_chains_wait(ring: KeyRing) -> None:
    e = engine(ring, default=None)
    assert run(e, event(1)) == []
    assert e.adopt() == []
    assert e.map.waiting == 1


def test_a_child_waits_for_the_parents_lease(ring: KeyRing) -> None:
    e = engine(ring)
    run(e, event(1))
    old = ring.live()
    ring.clear()
    assert run(e, event(2, parent=1), *removed(1)) == [
        Drop(ns=A, gen=1, keys=keys(A, 1)[0], tier="hbm", reason="engine")
    ]
    ring.grant(old)
    (item,) = e.adopt()
    assert item.keys == keys(A, 1, 2)[1]  # type: ignore[union-attr]


def test_orphans_are_adopted_when_the_parent_shows_up(ring: KeyRing) -> None:
    e = engine(ring)
    assert run(e, event(3, parent=2), event(2, parent=1), *removed(3)) == []
    items = run(e, event(1))
    assert [i.keys for i in items] == keys(A, 1, 2)  # type: ignore[union-attr]
    (item,) = run(e, event(4, parent=3))  # a block that went while it waited is still its children's parent
    assert item.keys == keys(A, 1, 2, 3, 4)[3]  # type: ignore[union-attr]


def test_quarantine_is_bounded_and_what_is_given_up_is_a_gap(ring: KeyRing) -> None:
    e = engine(ring, keymap=KeyMap(waiting_max=1))
    items = run(e, event(3, parent=2), event(5, parent=4))
    assert items == [Gap(since=5.0, reason="map")]
    assert e.counts["given-up"] == 1


def test_a_full_map_is_a_gap(ring: KeyRing) -> None:
    e = engine(ring, keymap=KeyMap(blocks_max=1))
    add, gap = run(e, event(1, 2))
    assert add.keys == keys(A, 1)[0]  # type: ignore[union-attr]
    assert gap == Gap(since=5.0, reason="map")
    assert e.counts["map-full"] == 1


def test_copies_are_counted(ring: KeyRing) -> None:
    e = engine(ring)
    assert len(run(e, event(1), event(1))) == 1
    assert run(e, *removed(1)) == []
    assert len(run(e, *removed(1))) == 1
    assert run(e, *removed(1)) == []
    assert e.counts["removed-unknown"] == 1
    loud = engine(ring, reannounces=True)
    assert len(run(loud, event(1), event(1))) == 1
    assert len(run(loud, *removed(1))) == 1


def test_an_offloaded_block_is_in_both_tiers_until_each_is_removed(ring: KeyRing) -> None:
    e = engine(ring)
    k1, k2 = keys(A, 1, 2)
    run(e, event(1, 2))
    assert run(e, placeholder(2)) == [Add(ns=A, gen=1, keys=k2, parent=k1, tier="dram", tokens=4, bytes=256)]
    assert [i.tier for i in run(e, *removed(2))] == ["hbm"]  # type: ignore[union-attr]
    assert [i.tier for i in run(e, *removed(2, medium="CPU"))] == ["dram"]  # type: ignore[union-attr]
    assert [i.tier for i in run(e, placeholder(2, "STORAGE"))] == ["ssd"]  # type: ignore[union-attr]
    assert run(e, placeholder(9)) == []
    added, offloaded = run(e, event(9))
    assert (added.tier, offloaded.tier) == ("hbm", "dram")  # type: ignore[union-attr]


def test_clear_empties_the_accelerator_only(ring: KeyRing) -> None:
    e = engine(ring)
    run(e, event(1), placeholder(1))
    assert run(e, {"type": "AllBlocksCleared"}) == [Clear(tiers=("hbm",))]
    assert run(e, *removed(1)) == []
    assert len(run(e, *removed(1, medium="CPU"))) == 1


def test_order_within_a_batch_is_kept(ring: KeyRing) -> None:
    e = engine(ring)
    kinds = [type(i) for i in run(e, event(1), *removed(1), event(1), *removed(1), {"type": "AllBlocksCleared"})]
    assert kinds == [Add, Drop, Add, Drop, Clear]


def test_groups_that_skip_are_keyed_by_the_engines_hash(ring: KeyRing) -> None:
    e = engine(ring)
    (item,) = run(e, event(2, tokens=list(range(8)), group_idx=1))
    expected_key = directory_keys(A, engine="e", algorithm="vllm", hashes=[(2).to_bytes(8, "big")])[0]
    assert (item.keys, item.group) == (expected_key, 1)  # type: ignore[union-attr]


def test_adapters_and_images_keep_equal_tokens_apart(ring: KeyRing) -> None:
    seen = set()
    for more in ({}, {"lora_name": "ad1", "extra_keys": [["ad1"]]}, {"lora_name": "ad2", "extra_keys": [["ad2"]]},
                 {"extra_keys": [[["img", 0]]]}, {"extra_keys": [[["img2", 0]]]}):  # fmt: skip
        (item,) = run(engine(ring), event(1, **more))
        seen.add(item.keys)  # type: ignore[union-attr]
    assert len(seen) == 5
    (salted,) = run(engine(ring), event(1, lora_name="x", extra_keys=[["x", "salt-b"]]))
    assert salted.keys == keys(B, 1)[0]  # type: ignore[union-attr]


def test_a_refused_event_is_counted_and_leaves_a_gap(ring: KeyRing) -> None:
    e = engine(ring)
    items = run(e, event(1), {"type": "BlockTeleported"}, event(2, tokens=[-1, 0, 0, 0]), event(3))
    assert [i.keys for i in items[:2]] == [keys(A, 1)[0], keys(A, 3)[0]]  # type: ignore[union-attr]
    assert items[2] == Gap(since=5.0, reason="decode")
    assert (e.counts["unknown-item"], e.counts["wrong-type"]) == (1, 1)


def test_reset_forgets_everything(ring: KeyRing) -> None:
    e = engine(ring)
    run(e, event(1), event(5, parent=4))
    e.reset()
    assert (len(e.map), e.map.waiting) == (0, 0)
    assert run(e, *removed(1)) == []


@pytest.mark.parametrize("name", LIVE)
def test_recorded_runs_give_the_ownership_beside_them(name: str) -> None:
    """Folded items = blocks of the map = what the engine's own bookkeeping says, after each phase."""
    ring = KeyRing()
    ring.grant([lease(A, block_tokens=32), lease(B, "tenant-a"), lease(b"c" * 32, "tenant-b")])
    e = engine(ring)
    world: dict[Place, str] = {}
    last, after = -1, {}
    for m in messages(name):
        if m.kind != "pub":
            continue
        if m.seq <= last:
            e.reset()
            world.clear()
        last = m.seq
        for item in e.items(decode_batch(m.payload)):
            changes, notes = fold(world, item)
            assert notes == []
            apply(world, changes)
        held = {place for place in world if place.tier == "hbm"}
        assert {k.key for k in e.map.blocks() if k.copies(Tier.HBM)} == {p.key for p in held}
        shown = {
            f"GPU/{g}/{int.from_bytes(h, 'big') if len(h) == 8 else h.hex()}"
            for g, table in e.map._known.items()
            for h, k in table.items()
            if k.copies(Tier.HBM)
        }
        after[m.phase] = shown
        assert len(shown) == len(held)
    assert [(phase, 0, after[phase]) for phase in after] == expected(name)
    assert e.map.waiting == 0


CANARY = 4_242_424


def test_no_canary_comes_out(ring: KeyRing) -> None:
    """Token ids, salts, adapter names and engine hashes are in no item and no counter."""
    e = engine(ring)
    items = run(
        e,
        event(
            0xABCDEF0123456789,
            tokens=[CANARY] * 4,
            lora_name="canary-adapter",
            extra_keys=[["canary-adapter", "salt-b"]],
        ),
        event(7, tokens=[CANARY] * 4, parent=99),
        {"type": "canary canary"},
    )
    told = pack(items) + repr(items).encode() + repr(e.counts).encode()
    for secret in (CANARY.to_bytes(4, "little"), CANARY.to_bytes(4, "big"), b"canary", b"salt-b",
                   bytes.fromhex("abcdef0123456789"), str(CANARY).encode()):  # fmt: skip
        assert secret not in told
    assert unpack(items[0].keys)  # type: ignore[union-attr]
