"""What happens to blocks on their way down when a medium will not take them or they are spoiled."""

import pytest

from kvcore.blocks import BlockState, Tier
from kvcore.events import Drop, State
from kvcore.messages import Fence
from nodeagent.tiers.base import TierDown, TierFull, TierReset
from tests.nodeagent.rig import Rig, blocks
from tests.nodeagent.test_pool import check, spoil


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path, {"hbm": blocks(40), "dram": blocks(40), "ssd": blocks(80)})
    rig.pool.on_reset = lambda tier, boot: None
    yield rig
    rig.close()


def one(rig, ids=(1,)):
    key = rig.lease()
    rig.ask(key, list(ids))
    return key, next(iter(rig.pool.runs.values()))


def down(rig, tier, run):
    rig.relief.evict(tier, [(run, run.copies[tier])], rig.now)
    rig.pool.teller.flush()


def test_a_spoiled_block_does_not_go_down(rig):
    _, run = one(rig)
    spoil(rig, 0)
    down(rig, Tier.HBM, run)
    assert run.copies == {}
    assert [s.state for s in rig.items(State)] == ["quarantined"]
    assert [d.reason for d in rig.items(Drop)] == ["engine"]
    check(rig)


def test_without_a_lease_nothing_goes_to_ssd(rig):
    _, run = one(rig)
    down(rig, Tier.HBM, run)
    rig.now += 301
    down(rig, Tier.DRAM, run)
    assert run.copies == {}
    assert [d.reason for d in rig.items(Drop)] == ["watermark"]
    check(rig)


def test_without_a_lease_ssd_is_dropped_unread(tmp_path):
    rig = Rig(tmp_path, {"hbm": blocks(40), "ssd": blocks(80), "dram": blocks(40)})
    _, run = one(rig)
    for tier in (Tier.HBM, Tier.DRAM):
        down(rig, tier, run)
    assert list(run.copies) == [Tier.SSD]
    rig.now += 301
    rig.pool.order.append(Tier.DRAM)  # as if something colder took memory's blocks
    rig.relief._demote(Tier.SSD, Tier.DRAM, [(run, run.copies[Tier.SSD])], rig.now)
    rig.pool.teller.flush()
    assert run.copies == {}
    rig.close()


@pytest.mark.parametrize("error", [TierFull("full"), TierDown("away")])
def test_a_medium_that_refuses_loses_the_blocks_and_says_so(rig, monkeypatch, error):
    _, run = one(rig)

    def write(runs):
        raise error

    monkeypatch.setattr(rig.pool.tiers[Tier.DRAM], "write", write)
    down(rig, Tier.HBM, run)
    assert run.copies == {}
    assert [d.reason for d in rig.items(Drop)] == ["watermark"]
    assert rig.pool.up(Tier.DRAM, rig.now) is not isinstance(error, TierDown)
    check(rig)


def test_a_medium_that_is_new_is_reset_on_the_way(rig, monkeypatch):
    _, run = one(rig)
    seen = []
    rig.pool.on_reset = lambda tier, boot: seen.append((tier, boot))

    def write(runs):
        raise TierReset("b2")

    monkeypatch.setattr(rig.pool.tiers[Tier.DRAM], "write", write)
    down(rig, Tier.HBM, run)
    assert seen == [(Tier.DRAM, "b2")]
    assert run.copies == {}


@pytest.mark.parametrize("error", [TierDown("away"), TierReset("b2")])
def test_a_medium_that_is_away_when_blocks_are_freed(rig, monkeypatch, error):
    _, run = one(rig)

    def free(runs):
        raise error

    monkeypatch.setattr(rig.pool.tiers[Tier.HBM], "free", free)
    rig.pool.drop(run, Tier.HBM, "ttl")
    assert run.copies == {}
    assert rig.pool.index == {}


@pytest.mark.parametrize("error", [TierDown("away"), TierReset("b2")])
def test_a_medium_that_is_away_when_blocks_are_read(rig, monkeypatch, error):
    _, run = one(rig)
    down(rig, Tier.HBM, run)

    def read(meta, place):
        raise error

    monkeypatch.setattr(rig.pool.tiers[Tier.DRAM], "read", read)
    assert rig.pool.use(run, rig.now) is None
    assert (Tier.DRAM in run.copies) is isinstance(error, TierDown)


def test_nothing_fits_what_is_larger_than_the_tier(rig):
    assert not rig.relief.make_room(Tier.HBM, 10**9, rig.now)
    key, run = one(rig)
    copy = rig.pool.hold(run)
    rig.ask(key, list(range(100, 109)))  # 36 blocks: now nothing can leave
    for other in rig.pool.runs.values():
        if other is not run and Tier.HBM in other.copies:
            rig.pool.hold(other)
    assert not rig.relief.make_room(Tier.HBM, 1104, rig.now)
    assert copy.state is BlockState.REFERENCED


def test_a_tier_that_is_away_is_passed_over(rig):
    _, run = one(rig)
    rig.pool.down(Tier.DRAM)
    down(rig, Tier.HBM, run)
    assert list(run.copies) == [Tier.SSD]
    assert not rig.relief.work(rig.now)
    check(rig)


def test_blocks_of_another_size_are_not_kept(rig):
    from nodeagent.runs import Run

    key = rig.lease()
    space = rig.pool.space(key.ns, 1, 0, block_tokens=16, block_bytes=2048)
    meta = rig.pool.meta(space, depth=0, parent=None, keys=bytes(range(32)))
    assert not rig.pool.commit([(Run(space, meta, now=rig.now), bytes(meta.size_bytes))], rig.now)
    assert rig.pool.index == {}


def test_the_same_blocks_found_twice_are_kept_once(rig):
    _, run = one(rig)
    for tier in (Tier.HBM, Tier.DRAM):
        down(rig, tier, run)
    ssd = rig.pool.tiers[Tier.SSD]
    import msgspec

    twin = msgspec.structs.replace(run.meta, version=run.meta.version + 1)
    raw = ssd.read(run.meta, run.copies[Tier.SSD].place)
    ssd.write([(twin, raw)])
    used = ssd.used_bytes
    assert rig.pool.adopt(Tier.SSD, rig.now) == 0  # one is known, the other a double
    assert ssd.used_bytes < used


def test_a_run_larger_than_the_next_tier_goes_to_the_one_below_it(tmp_path):
    rig = Rig(tmp_path, {"hbm": blocks(40), "dram": blocks(3), "ssd": blocks(80)})
    _, run = one(rig)
    assert run.blocks == 4
    down(rig, Tier.HBM, run)
    assert list(run.copies) == [Tier.SSD]
    check(rig)
    rig.close()


def test_a_run_larger_than_every_tier_below_leaves_with_its_reason_and_costs_nobody_there_anything(tmp_path):
    rig = Rig(tmp_path, {"hbm": blocks(40), "dram": blocks(3)})
    key = rig.lease()
    rig.ask(key, [1], tokens=32)  # two blocks
    small = next(iter(rig.pool.runs.values()))
    down(rig, Tier.HBM, small)
    assert list(small.copies) == [Tier.DRAM]
    rig.ask(key, [2])
    run = next(r for r in rig.pool.runs.values() if r is not small)
    down(rig, Tier.HBM, run)
    assert (run.copies, list(small.copies)) == ({}, [Tier.DRAM])
    assert [d.reason for d in rig.items(Drop)] == ["watermark"]
    assert rig.pool.dropped == {(Tier.HBM, "watermark"): 4}
    check(rig)
    rig.close()


def test_more_than_the_next_tier_holds_goes_down_in_parts(tmp_path):
    rig = Rig(tmp_path, {"hbm": blocks(40), "dram": blocks(9), "ssd": blocks(80)})
    key = rig.lease()
    for n in range(5):
        rig.ask(key, [n])
    runs = list(rig.pool.runs.values())
    rig.relief.evict(Tier.HBM, [(r, r.copies[Tier.HBM]) for r in runs], rig.now)
    rig.pool.teller.flush()
    assert sorted(t.value for r in runs for t in r.copies) == ["dram"] * 2 + ["ssd"] * 3
    assert not rig.items(Drop)
    check(rig)
    rig.close()


def test_what_cannot_fit_beside_an_arena_empties_nobody(tmp_path):
    rig = Rig(tmp_path, {"hbm": blocks(40), "dram": blocks(10)})
    key = rig.lease()
    rig.ask(key, [1], tokens=32)
    small = next(iter(rig.pool.runs.values()))
    down(rig, Tier.HBM, small)
    rig.allow(arenas=["t"], t={"dram": (7, 0)})
    rig.ask(key, [2])
    run = next(r for r in rig.pool.runs.values() if r is not small)
    down(rig, Tier.HBM, run)
    assert (run.copies, list(small.copies)) == ({}, [Tier.DRAM])
    check(rig)
    rig.close()


def test_a_move_of_a_generation_that_was_fenced_a_moment_ago_is_refused_and_counted(rig):
    key, run = one(rig)
    rig.ring.on_fence = lambda: None  # the pool has not looked at its spaces again yet
    rig.ring.fence(1, [Fence(ns=key.ns, min_gen=2)])
    assert not run.space.fenced
    down(rig, Tier.HBM, run)
    assert run.copies == {}
    assert [(d.tier, d.reason) for d in rig.items(Drop)] == [("hbm", "epoch")]
    assert rig.pool.budget.refused == {(key.ns, Tier.DRAM, "stale-generation"): run.blocks}
    check(rig)


def test_a_move_into_a_tier_that_is_being_erased_is_refused_and_counted(rig):
    key, run = one(rig)
    rig.pool.erasing.append((Tier.DRAM, lambda space: space.ns == key.ns))
    down(rig, Tier.HBM, run)
    assert run.copies == {}
    assert [(d.tier, d.reason) for d in rig.items(Drop)] == [("hbm", "delete")]
    assert rig.pool.budget.refused == {(key.ns, Tier.DRAM, "erasing"): run.blocks}
    check(rig)
