import random

import pytest

from kvcore.blocks import Tier
from kvcore.events import Drop, Move
from nodeagent.watermarks import Curve, Gate, Policy
from tests.nodeagent.rig import Rig, blocks


def test_relief_starts_above_high_and_ends_at_low():
    gate = Gate(1000, 0.9, 0.7)
    assert gate.excess(900) == 0
    assert gate.excess(901) == 201
    assert gate.excess(750) == 50
    assert gate.relieving(750)
    assert gate.excess(700) == 0
    assert gate.excess(899) == 0  # between the marks nothing happens until high is passed again
    assert not gate.relieving(899)
    assert gate.opened == 1
    assert gate.excess(950) == 250
    assert gate.opened == 2


def test_marks_hold_on_a_tier_that_fills(tmp_path):
    rig = Rig(tmp_path, {"hbm": blocks(100, high=0.9, low=0.6), "dram": blocks(400)})
    key = rig.lease()
    levels = []
    for i in range(60):
        rig.ask(key, [i, 1000 + i])
        rig.settle()
        levels.append(rig.pool.tiers[Tier.HBM].used_bytes / (100 * 1104))
    assert max(levels) <= 0.9
    assert rig.pool.gates[Tier.HBM].opened <= 60 * 8 / 30 + 1  # each relief takes 30 blocks at least
    rig.close()


def test_the_curve():
    curve = Curve(1.0, 0.5)
    assert curve.ms(2) == 4.0
    assert curve.ms(0) == 0.0


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path, {"hbm": blocks(40), "pinned": blocks(20), "ssd": blocks(20)})
    yield rig
    rig.close()


def reasons(rig):
    rig.pool.teller.flush()
    return [d.reason for d in rig.items(Drop)]


def test_what_leaves_the_last_tier_says_watermark(rig):
    key = rig.lease()
    for i in range(40):
        rig.ask(key, [i])
        rig.ask(key, [i])
        rig.settle()
    assert set(reasons(rig)) == {"watermark"}
    assert rig.items(Move)


def test_what_is_not_worth_its_way_says_value(rig):
    key = rig.lease()
    for i in range(200):
        rig.ask(key, [i])
        rig.settle()
    assert reasons(rig)[-50:] == ["value"] * 50
    assert rig.pool.spaces[key.ns, 1, 0].share < 0.05


def test_what_is_fenced_says_epoch_and_goes_first(rig):
    from kvcore.messages import Fence

    old, key = rig.lease(), rig.lease()
    for _ in range(3):
        rig.ask(old, [1, 2])
    rig.ring.fence(1, [Fence(ns=old.ns, min_gen=2)])
    for i in range(8):
        rig.ask(key, [i])
        rig.settle()
    assert reasons(rig)[:1] == ["epoch"]
    assert {d.ns for d in rig.items(Drop) if d.reason == "epoch"} == {old.ns}
    assert not any(m.ns == old.ns for m in rig.items(Move))


def test_what_is_too_old_says_ttl(tmp_path):
    rig = Rig(tmp_path, {"hbm": blocks(40, ttl_seconds=60), "dram": blocks(40)})
    key = rig.lease()
    rig.ask(key, [1])
    rig.now += 50
    rig.ask(key, [2])
    rig.now += 20
    assert rig.relief.expire(rig.now) == 1
    assert reasons(rig) == ["ttl"]
    rig.now += 100
    run = next(iter(rig.pool.runs.values()))
    rig.relief.evict(Tier.HBM, [(run, run.copies[Tier.HBM])], rig.now)
    assert reasons(rig) == ["ttl", "ttl"]
    rig.close()


def test_what_is_over_its_quota_says_quota_and_the_least_valued_goes(rig):
    key, other = rig.lease(tenant="t1"), rig.lease(tenant="t2")
    for ids in ([1], [2], [3]):
        rig.ask(key, ids)
    rig.ask(other, [1])
    for _ in range(3):
        rig.ask(key, [2])
    assert rig.allow(t1={"hbm": (5, 0)})
    assert reasons(rig) == ["quota", "quota"] or reasons(rig) == ["quota"]
    assert rig.ask(key, [2]).hit_tokens == 64
    assert rig.ask(other, [1]).hit_tokens == 64
    assert rig.relief.expire(rig.now) == 0


def test_lru_takes_the_one_that_was_used_longest_ago(tmp_path):
    rig = Rig(tmp_path, {"hbm": blocks(12)}, policy="lru")
    key = rig.lease()
    for ids in ([1], [2], [3]):
        rig.now += 1
        rig.ask(key, ids)
    rig.now += 1
    rig.ask(key, [1])
    rig.now += 1
    rig.ask(key, [4])
    assert rig.ask(key, [1]).hit_tokens == 64
    assert rig.ask(key, [3]).hit_tokens == 64
    assert rig.ask(key, [2]).hit_tokens == 0
    rig.close()


def test_the_tail_of_a_chain_leaves_before_its_head(tmp_path):
    rig = Rig(tmp_path, {"hbm": blocks(100)})
    key = rig.lease()
    rig.ask(key, list(range(24)))  # 96 blocks: three runs of one use
    rig.settle()
    assert [r.depth for r in rig.pool.runs.values()] == [0, 32]
    rig.close()


def test_blocks_that_are_held_are_not_evicted(tmp_path):
    rig = Rig(tmp_path, {"hbm": blocks(10)}, tpot_ms=1000.0)
    key = rig.lease()
    rig.ask(key, [1], output=50)
    for i in range(10):
        rig.ask(key, [100 + i])
        rig.settle()
    assert rig.ask(key, [1]).hit_tokens == 64
    rig.close()


@pytest.mark.parametrize("shared", [0.0, 0.8])
def test_admission_follows_sharing(tmp_path, shared):
    """Nothing that is never shared goes below `hbm`; what is shared does."""
    rig = Rig(tmp_path, {"hbm": blocks(64), "dram": blocks(4096)})
    key, rnd = rig.lease(), random.Random(3)
    for i in range(400):
        family = rnd.randrange(12) if rnd.random() < shared else 1000 + i
        rig.ask(key, [family, family + 5000])
        rig.settle()
    down, away = rig.items(Move), [d for d in rig.items(Drop) if d.reason == "value"]
    moved, refused = sum(len(m.keys) for m in down), sum(len(d.keys) for d in away)
    assert refused / (moved + refused) >= 0.9 if not shared else refused / (moved + refused) <= 0.05
    rig.close()


def test_value_saves_more_than_lru(tmp_path):
    """A short hot prompt among long one-shot prompts, at a tenth of what all of them need."""
    saved = {}
    for kind in ("value", "lru"):
        rig = Rig(tmp_path / kind, {"hbm": blocks(130)}, policy=kind)
        key, total = rig.lease(), 0.0
        for i in range(120):
            rig.now += 1.0
            if i % 3 == 0:
                total += rig.ask(key, [1, 2]).saved_ms
            total += rig.ask(key, [10_000 + 100 * i + j for j in range(30)]).saved_ms
            rig.settle()
        saved[kind] = total
        rig.close()
    assert saved["value"] >= 1.5 * saved["lru"]


def test_a_use_raises_the_rank(tmp_path):
    rig = Rig(tmp_path, {"hbm": blocks(40)})
    key = rig.lease()
    rig.ask(key, [1, 2])
    (run,) = rig.pool.runs.values()
    policy = Policy("value", Curve(0.01, 0))
    before = policy.rank(run)
    rig.now += 1
    rig.ask(key, [1, 2])
    assert policy.rank(run) > before
    rig.close()


def test_a_queue_and_its_memory_stay_bounded(tmp_path, monkeypatch):
    from nodeagent.runs import Copy

    monkeypatch.setattr("nodeagent.watermarks.COMPACT_EVERY", 50)
    monkeypatch.setattr("nodeagent.watermarks.GHOSTS", 10)
    rig = Rig(tmp_path, {"hbm": blocks(40), "dram": blocks(40)})
    key = rig.lease()
    rig.ask(key, [1])
    (run,) = rig.pool.runs.values()
    queue = rig.pool.queues[Tier.DRAM]
    for _ in range(500):
        queue.push(run, Copy(0.0))  # copies that have left by another way
    assert len(queue) < 100
    assert list(queue.pop(10**9)) == []
    for i in range(100):
        rig.ask(key, [1000 + i])
        rig.settle()
    for other in list(rig.pool.runs.values()):
        rig.pool.admission.forget(other)
        rig.pool.admission.forget(other)
    assert len(rig.pool.admission._ghosts) <= 10
    rig.close()
