"""What a listener lists is what it has told, whatever is held back, and its digests agree at every frame."""

import random
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcore.dialects.vllm import decode_batch
from kvcore.events import Adds, Gap, Item, decode_item
from kvcore.fold import Place, apply, fold
from kvcore.keys import digest_add
from nodeagent.engines.endpoints import Endpoint
from nodeagent.engines.vllm import Source, Vllm
from nodeagent.keys import KeyRing, Lease
from nodeagent.listen import Lane
from nodeagent.outbox import Outbox

A = b"a" * 32
pack = msgspec.msgpack.encode


def lane() -> Lane:
    ring = KeyRing()
    ring.grant([Lease(ns=A, gen=1, block_tokens=4, blk=A, enc=A, salt_tag=b"", until=time.time() + 300)])
    engine = Vllm(Source(name="e", default=A, bytes_per_token=64), ring)
    return Lane(Endpoint(rank=0, engine="tcp://h:1"), engine, Outbox("e", boot="b"), ranks=1, context=None)


def stored(h: int, parent: int | None, medium: str = "GPU", content: int | None = None) -> bytes:
    tokens = [(h if content is None else content) * 4 + i for i in range(4)]
    return pack([1.0, [["BlockStored", [h], parent, tokens, 4, None, medium]], 0])


def removed(h: int, medium: str = "GPU") -> bytes:
    return pack([1.0, [["BlockRemoved", [h], medium]], 0])


def feed(lane: Lane, payload: bytes) -> None:
    with lane.listing.lock:
        lane._put(lane.engine.items(decode_batch(payload)))


def take(lane: Lane, world: dict[Place, str]) -> None:
    """All frames there are, folded."""
    (out,) = lane.outbox.lanes
    while lane.outbox.due(out, flush_seconds=0.0):
        held = out.next()
        assert held is not None
        for raw in held.items:
            apply(world, fold(world, decode_item(msgspec.Raw(raw)))[0])
        lane.outbox.sent(out, lane.outbox.stream, held.seq)
        lane.outbox.acknowledge(out, lane.outbox.stream, held.seq)


def sums(world: dict[Place, str]) -> dict[tuple[bytes, int, int, str], tuple[int, int, int]]:
    out: dict[tuple[bytes, int, int, str], tuple[int, int, int]] = {}
    for p in world:
        at = (p.ns, p.gen, p.group, p.tier)
        out[at] = digest_add(out.get(at, (0, 0, 0)), p.key)
    return out


def listed(items: list[Item]) -> set[Place]:
    world: dict[Place, str] = {}
    for item in items:
        apply(world, fold(world, item)[0])
    return set(world)


def inventory(lane: Lane) -> list[Item]:
    """The items of the pages that the outbox makes; the lane's frames are contained in them."""
    (out,) = lane.outbox.lanes
    lane.outbox.owe_inventory()
    stream, seq, pages = lane.outbox.pages(out, node="n", fence_seq=0, allowances=0)
    lane.outbox.listed(out, stream, seq, applied=True)
    items = [msgspec.msgpack.decode(p)["items"] for p in pages]
    return [decode_item(msgspec.Raw(pack(x))) for page in items for x in page]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_inventories_and_digests_agree_with_what_was_told(seed: int) -> None:
    """Random lives of an engine; now and then the console has lost everything and takes an inventory."""
    rnd = random.Random(seed)
    ln, world = lane(), dict[Place, str]()
    alive: dict[tuple[int, str], int] = {}
    for n in range(rnd.randint(1, 80)):
        what = rnd.random()
        if what < 0.6 or not alive:
            h, medium = rnd.randrange(30), rnd.choice(["GPU", "GPU", "CPU"])
            feed(ln, stored(h, h - 1 if h % 5 else None, medium, content=h % 20))
        elif what < 0.9:
            feed(ln, removed(rnd.randrange(30), rnd.choice(["GPU", "CPU"])))
        elif what < 0.93:
            feed(ln, pack([1.0, [["AllBlocksCleared"]], 0]))
        else:
            ln.tick(1e9)
        alive[n, ""] = n
        if rnd.random() < 0.1:
            world.clear()
            items = inventory(ln)
            for item in items:
                apply(world, fold(world, item)[0])
            assert ln.gatherer.held == 0
        if rnd.random() < 0.2:
            take(ln, world)
            assert {(x.ns, x.gen, x.group, x.tier): (x.blocks, x.lo, x.hi) for x in ln.listing.digests()} == sums(world)
    ln.finish()
    take(ln, world)
    assert {(x.ns, x.gen, x.group, x.tier): (x.blocks, x.lo, x.hi) for x in ln.listing.digests()} == sums(world)
    assert listed(inventory(ln)) == set(world)


def test_what_is_held_back_is_listed_once_and_told_again_without_harm() -> None:
    ln, world = lane(), dict[Place, str]()
    feed(ln, stored(1, None))
    take(ln, world)
    feed(ln, stored(2, 1))
    assert ln.gatherer.held == 1
    assert len(listed(inventory(ln))) == 2
    assert ln.gatherer.held == 0
    assert [x.blocks for x in ln.listing.digests()] == [2]


def test_long_chains_are_runs_and_short_ones_packed() -> None:
    ln = lane()
    tokens = list(range(40))
    feed(ln, pack([1.0, [["BlockStored", list(range(100, 110)), None, tokens, 4, None, "GPU"]], 0]))
    for h in range(3):
        feed(ln, stored(h, None))
    kinds = [type(i) for i in inventory(ln)]
    assert len(kinds) == 2
    assert Adds in kinds


@pytest.mark.parametrize("seen", ["GPU", "CPU"])
def test_what_the_engine_lost_stays_open_until_all_its_tiers_are_empty(seen: str) -> None:
    ln = lane()
    feed(ln, stored(1, None))
    feed(ln, stored(2, None, seen))
    ln._lost("lost-ring", "ring")
    assert ln.listing.gap == "ring"
    inventory(ln)
    assert ln.listing.gap == "ring"
    feed(ln, pack([1.0, [["AllBlocksCleared"]], 0]))  # says nothing of host memory
    assert ln.listing.gap == ("" if seen == "GPU" else "ring")
    ln._lost("x", "decode")
    boot = ln.outbox.boot
    ln._begin_anew()
    assert ln.outbox.boot != boot
    assert (ln.listing.gap, list(ln.listing.digests()), inventory(ln)) == ("", [], [])


def test_a_gap_that_did_not_fit_is_told_by_the_inventory_and_the_digest() -> None:
    ln = lane()
    (out,) = ln.outbox.lanes
    feed(ln, stored(1, None))
    ln.outbox.owe_inventory()
    ln._lost("lost-ring", "ring")
    assert not any(isinstance(i, Gap) for i in map(decode_item, map(msgspec.Raw, out.pending)))
    _, _, (page,) = ln.outbox.pages(out, node="n", fence_seq=0, allowances=0)
    assert msgspec.msgpack.decode(page)["gap"] == "ring"
    report = ln.outbox.report(out, node="n", fence_seq=0, allowances=0)
    assert report is not None
    assert msgspec.msgpack.decode(report[2])["gap"] == "ring"
