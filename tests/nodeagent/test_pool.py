"""What the pool tells and what it holds are the same, whatever happens to it."""

import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcore.blocks import BlockState, Tier
from kvcore.events import Add, Drop, Move, State, decode_item
from kvcore.fold import apply, fold
from kvcore.keys import digest_add, unpack
from nodeagent.engines.base import Request
from nodeagent.outbox import Outbox
from nodeagent.tiers.base import HEADER_BYTES, content
from tests.nodeagent.farside import pool_holds
from tests.nodeagent.rig import SLOT, Rig, blocks

TIERS = {"hbm": blocks(40), "pinned": blocks(40), "dram": blocks(60), "ssd": blocks(100)}


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path, TIERS)
    yield rig
    rig.close()


def check(rig: Rig) -> None:
    held = pool_holds(rig.pool, "reference")
    assert rig.folded("reference") == held
    assert rig.bad == []
    listed: dict = {}
    for item in rig.pool.listing(frozenset(rig.pool.order)):
        changes, _ = fold(listed, item)
        apply(listed, changes)
    assert {(p.tier, p.ns, p.gen, p.key) for p in listed} == held
    sums: dict = {}
    for tier, ns, gen, key in held:
        sums[ns, gen, 0, tier] = digest_add(sums.get((ns, gen, 0, tier), (0, 0, 0)), key)
    lines = rig.pool.digests(frozenset(rig.pool.order))
    assert {(x.ns, x.gen, x.group, x.tier): (x.blocks, x.lo, x.hi) for x in lines} == sums
    assert set(rig.pool.index) == {k for r in rig.pool.runs.values() for k in unpack(r.keys)}
    for name, store in rig.pool.tiers.items():
        count = sum(1 for x in held if x[0] == name)
        assert store.used_bytes == count * SLOT <= store.capacity_bytes
        assert all(
            r.copies[name].state in (BlockState.COMMITTED, BlockState.REFERENCED)
            for r in rig.pool.runs.values()
            if name in r.copies
        )


ASK = st.tuples(
    st.just("ask"), st.integers(0, 1), st.lists(st.integers(0, 6), min_size=1, max_size=6), st.integers(0, 200)
)
FLOOD = st.tuples(st.just("flood"), st.integers(0, 1), st.integers(0, 3))
STEP = st.one_of(
    ASK,
    FLOOD,
    st.tuples(st.just("wait"), st.integers(1, 400)),
    st.tuples(st.just("relieve")),
    st.tuples(st.just("spoil"), st.integers(0, 50)),
    st.tuples(st.just("fence"), st.integers(0, 1)),
    st.tuples(st.just("age")),
    st.tuples(st.just("quota"), st.integers(0, 20)),
    st.tuples(st.just("lease"), st.integers(0, 1)),
)


@given(
    steps=st.lists(STEP, min_size=5, max_size=40),
    policy=st.sampled_from(["value", "lru"]),
    pace=st.sampled_from([0.0, 1000.0]),
)
@settings(max_examples=100, deadline=None)
def test_what_is_told_is_what_is_held(steps, policy, pace):
    with tempfile.TemporaryDirectory() as directory:
        tiers = {  # so small that a few requests reach every tier
            "hbm": blocks(16), "pinned": blocks(8, ttl_seconds=500.0), "dram": blocks(8, ttl_seconds=300.0),
            "ssd": blocks(24),
        }  # fmt: skip
        rig = Rig(Path(directory), tiers, policy=policy, tpot_ms=pace)
        leases = [rig.lease(tenant="t1"), rig.lease(tenant="t2")]
        for step in steps:
            match step:
                case ("ask", which, ids, output):
                    rig.ask(leases[which], ids, output=output)
                case ("wait", seconds):
                    rig.now += seconds
                    rig.engine.tick(rig.now)
                case ("relieve",):
                    rig.relief.work(rig.now)
                case ("spoil", at):
                    spoil(rig, at)
                case ("fence", which):
                    rig.ring.fence(rig.ring.fence_seq + 1, [fence(leases[which])])
                    leases[which] = rig.lease(leases[which].gen + 1, leases[which].ns)
                case ("flood", which, base):
                    for i in range(8):
                        rig.ask(leases[which], [100 + base * 8 + i])
                        rig.relief.work(rig.now)
                case ("age",):
                    rig.now += 301
                    rig.ring.grant([renewed(rig, x) for x in leases])
                    rig.relief.expire(rig.now)
                case ("quota", count):
                    rig.allow(t1={"hbm": (count, 0)})
                    rig.relief.expire(rig.now)
                case ("lease", which):
                    rig.ring.grant([renewed(rig, leases[which])])
            check(rig)
        rig.settle()
        check(rig)
        rig.close()


def fence(lease):
    from kvcore.messages import Fence

    return Fence(ns=lease.ns, min_gen=lease.gen + 1)


def renewed(rig, lease):
    return msgspec.structs.replace(lease, until=rig.now + 300)


def spoil(rig: Rig, at: int) -> None:
    """Flips a bit of a block in memory."""
    runs = [r for r in rig.pool.runs.values() if Tier.HBM in r.copies or Tier.DRAM in r.copies]
    if runs:
        run = runs[at % len(runs)]
        tier = Tier.HBM if Tier.HBM in run.copies else Tier.DRAM
        rig.pool.tiers[tier]._view[run.copies[tier].place[0] * SLOT + HEADER_BYTES + 3] ^= 4


def test_the_longest_prefix_is_found_and_the_rest_is_made(rig):
    key = rig.lease()
    assert rig.ask(key, [1, 2, 3]).hit_tokens == 0
    assert rig.ask(key, [1, 2, 9]).hit_tokens == 128
    assert rig.ask(key, [1, 2, 3], tokens=150).hit_tokens == 144
    assert rig.ask(key, [9, 2, 3]).hit_tokens == 0
    other = rig.lease()
    assert rig.ask(other, [1, 2, 3]).hit_tokens == 0
    check(rig)


def test_content_is_the_keystream_of_its_key(rig):
    key = rig.lease()
    rig.ask(key, [1, 2])
    stream = rig.engine.keystream(key)
    for run in rig.pool.runs.values():
        raw = rig.pool.tiers[Tier.HBM].read(run.meta, run.copies[Tier.HBM].place)
        for i, block in enumerate(unpack(run.keys)):
            assert content(run.meta, raw, i) == stream.content(block)


def test_a_spoiled_block_is_quarantined_dropped_and_made_again(rig):
    key = rig.lease()
    rig.ask(key, [1, 2])
    spoil(rig, 0)
    assert rig.ask(key, [1, 2]).hit_tokens < 128
    assert [i.state for i in rig.items(State)] == ["quarantined"]
    assert [i.reason for i in rig.items(Drop)] == ["engine"]
    assert rig.pool.refused_blocks == {"digest": 1}
    assert rig.ask(key, [1, 2]).hit_tokens == 128
    check(rig)


def test_a_hit_below_is_promoted(rig):
    key = rig.lease()
    for i in range(8):
        rig.ask(key, [100 + i, 200 + i, 300 + i])
        rig.settle()
    low = next(
        r for r in rig.pool.runs.values() if Tier.HBM not in r.copies and Tier.SSD not in r.copies and not r.depth
    )
    tier = next(iter(low.copies))
    seen = len(rig.items(Move))
    assert rig.pool.use(low, rig.now) is tier
    rig.pool.teller.flush()
    assert list(low.copies) == [Tier.HBM]
    assert any(m.from_ == tier and m.to == "hbm" and low.keys in m.keys for m in rig.items(Move)[seen:])
    check(rig)


def test_a_hit_on_ssd_leaves_its_copy_there(rig):
    key = rig.lease()
    rig.ask(key, [1])
    (run,) = rig.pool.runs.values()
    rig.relief.evict(Tier.HBM, [(run, run.copies[Tier.HBM])], rig.now)
    for tier in (Tier.PINNED, Tier.DRAM):
        rig.relief.evict(tier, [(run, run.copies[tier])], rig.now)
    assert list(run.copies) == [Tier.SSD]
    assert rig.ask(key, [1]).tiers == {"ssd": 64}
    assert set(run.copies) == {Tier.SSD, Tier.HBM}
    rig.relief.evict(Tier.HBM, [(run, run.copies[Tier.HBM])], rig.now)
    rig.pool.teller.flush()
    assert list(run.copies) == [Tier.SSD]
    assert [d.reason for d in rig.items(Drop)] == ["watermark"]
    check(rig)


def test_without_a_lease_ssd_is_kept_unread(rig):
    key = rig.lease()
    rig.ask(key, [1])
    (run,) = rig.pool.runs.values()
    for tier in (Tier.HBM, Tier.PINNED, Tier.DRAM):
        rig.relief.evict(tier, [(run, run.copies[tier])], rig.now)
    rig.now += 301
    assert rig.ask(key, [1]).code == "lease-over"
    assert rig.pool.use(run, rig.now) is None
    assert list(run.copies) == [Tier.SSD]
    rig.ring.grant([renewed(rig, key)])
    assert rig.ask(key, [1]).tiers == {"ssd": 64}
    check(rig)


def test_a_prompt_larger_than_the_fastest_tier_is_carried_out(rig):
    key = rig.lease()
    result = rig.ask(key, list(range(30)))
    assert result.code == ""
    rig.settle()
    check(rig)


def test_decode_is_gathered(tmp_path):
    rig = Rig(tmp_path, TIERS, tpot_ms=20.0)
    key = rig.lease()
    rig.ask(key, [1], tokens=60, output=400)
    assert rig.engine.running == 1
    before = len(rig.items(Add))
    for _ in range(10):
        rig.now += 0.1
        rig.engine.tick(rig.now)
    assert len(rig.items(Add)) == before  # 3 blocks in one second: held back
    for _ in range(40):
        rig.now += 0.2
        rig.engine.tick(rig.now)
    assert rig.engine.running == 0
    added = [len(a.keys) // 32 for a in rig.items(Add)[before:]]
    assert sum(added) == (60 + 400) // 16 - 3
    assert all(4 <= n <= 8 for n in added[:-1])
    check(rig)
    rig.close()


def test_a_request_says_what_is_wrong_with_it(rig):
    key = rig.lease()
    assert rig.ask(key, [1], tokens=65).code == "request-malformed"
    assert rig.ask(key, [1], tokens=0).code == "request-malformed"
    assert rig.ask(rig_lease(rig, block_tokens=32), [1]).code == "block-size-mismatch"
    assert rig.ask(key, [1], tokens=10).hit_tokens == 0  # not one full block
    check(rig)


@pytest.mark.parametrize(
    "more",
    [
        {"input_length": -5, "output_length": 9}, {"output_length": -1}, {"hash_tokens": 0}, {"hash_ids": [2**63]},
        {"hash_ids": [-(2**63) - 1]}, {"model_seed": 2**63}, {"request": ""}, {"request": "a\0b"},
        {"hash_ids": [], "hash_tokens": -1, "input_length": -1, "output_length": 2},
    ],
)  # fmt: skip
def test_a_strange_request_costs_its_neighbours_nothing(rig, more):
    key = rig.lease()
    good = Request(request="r", ns=key.ns, gen=key.gen, hash_ids=[1], hash_tokens=64, input_length=64)
    bad = msgspec.structs.replace(good, **more)
    first, second = rig.engine.handle([bad, good], rig.now)
    assert (first.code, second.code) == ("request-malformed", "")
    check(rig)


def rig_lease(rig, **more):
    made = msgspec.structs.replace(rig.lease(), ns=bytes(32), **more)
    rig.ring.grant([made])
    return made


def test_odd_hash_blocks_chain_through(rig):
    key = rig.lease()
    assert rig.ask(key, [1, 2, 3], size=50).hit_tokens == 0
    assert rig.ask(key, [1, 2, 4], size=50).hit_tokens == 96
    assert rig.ask(key, [1, 2, 3], size=50).hit_tokens == 144
    check(rig)


def test_no_token_is_told(rig):
    key = rig.lease()
    rig.ask(key, [7], output=20)
    tokens = rig.engine.tokens(7, 64, 0)
    box: Outbox = rig.media.outboxes[0]
    box.lanes[0].cut(rig.now)
    wire = b"".join(x for f in box.lanes[0].frames for x in f.items)
    assert all(tokens[i : i + 8] not in wire for i in range(0, len(tokens), 8))
    assert key.enc not in wire
    assert key.blk not in wire
    assert [decode_item(x) for f in box.lanes[0].frames for x in f.items]
