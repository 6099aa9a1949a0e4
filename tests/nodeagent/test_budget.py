"""Who may hold what on a node: refusals first, then charges that are always what is held."""

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcore.blocks import TIERS, Tier
from kvcore.events import Drop
from kvcore.messages import Fence
from nodeagent.budget import Budget, Pin, Policy, Share, policies_of
from nodeagent.tiers.base import TierFull
from tests.nodeagent.rig import Rig, blocks

HBM, DRAM, SSD = Tier.HBM, Tier.DRAM, Tier.SSD


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path, {"hbm": blocks(40), "dram": blocks(40), "ssd": blocks(80)})
    yield rig
    check(rig)
    rig.close()


def held(rig, tenant, tier=HBM):
    """Blocks of a tenant on a tier, counted from the runs."""
    return sum(r.blocks for r in rig.pool.runs.values() if tier in r.copies and r.space.tenant == tenant)


def check(rig):
    """What is charged is what is held, by tenant and tier; no share is exceeded."""
    want = Counter()
    for run in rig.pool.runs.values():
        for tier in run.copies:
            want[run.space.tenant, tier] += run.blocks * 1024
    assert +want == +rig.pool.budget.charged
    assert {k: n // 1024 * 1104 for k, n in want.items()} == dict(rig.pool.budget.physical)
    for tenant, tiers in rig.pool.budget.shares.items():
        for tier, share in tiers.items():
            assert share.limit is None or want[tenant, tier] <= share.limit


def fill(rig, key, ids):
    for i in ids:
        rig.ask(key, [i])


# --- refusals ---------------------------------------------------------------


def test_without_an_allowance_a_limited_tenant_is_kept_out(rig):
    key = rig.lease(tenant="a", metered=True)
    fill(rig, key, [1, 2])
    assert held(rig, "a") == 0
    assert rig.pool.budget.refused == {(key.ns, HBM, "quota"): 8}


def test_a_put_above_the_limit_is_refused_and_nothing_leaves_for_it(rig):
    key = rig.lease(tenant="a")
    rig.allow(a={"hbm": (3, 0)})
    fill(rig, key, [1])
    assert held(rig, "a") == 0
    assert rig.pool.budget.refused[key.ns, HBM, "quota"] == 4


def test_over_quota_the_own_lowest_value_leaves_and_nobody_elses(rig):
    mine, other = rig.lease(tenant="a"), rig.lease(tenant="b")
    fill(rig, other, [1, 2, 3, 4])
    rig.allow(a={"hbm": (8, 0), "dram": (0, 0)})
    fill(rig, mine, [1, 2])
    for _ in range(3):
        rig.ask(mine, [2])
    fill(rig, mine, [3])
    assert held(rig, "a") == 8
    assert held(rig, "b") == 16
    assert rig.ask(mine, [2]).hit_tokens == 64
    assert {d.reason for d in rig.items(Drop)} == {"quota"}
    assert {d.ns for d in rig.items(Drop)} == {mine.ns}


def test_a_hundred_aborted_puts_are_charged_nothing(rig):
    key = rig.lease(tenant="a")
    rig.allow(a={"hbm": (30, 0)})
    store, write = rig.pool.tiers[HBM], rig.pool.tiers[HBM].write

    def full(runs):
        assert rig.pool.budget.charged["a", HBM] == 4 * 1024  # it was charged before the write
        raise TierFull("as if somebody had been quicker")

    store.write = full
    for i in range(100):
        rig.ask(key, [i])
    assert rig.pool.budget.charged == {}
    store.write = write
    fill(rig, key, [1])
    assert rig.pool.budget.charged == {("a", HBM): 4 * 1024}


def test_a_restricted_class_never_goes_to_ssd_and_each_attempt_is_counted(rig):
    key = rig.lease(tenant="a", barred={"ssd": "data-class", "remote": "data-class"})
    for i in range(100):
        rig.ask(key, [i])
        rig.ask(key, [i])
        rig.settle()
        assert held(rig, "a", SSD) == 0
    gone = sum(len(d.keys) // 32 for d in rig.items(Drop) if d.tier == "dram")
    assert rig.pool.budget.refused == {(key.ns, SSD, "data-class"): gone}
    assert gone > 100


def test_a_tier_that_is_barred_is_passed_over_for_the_next_one(tmp_path):
    rig = Rig(tmp_path, {"hbm": blocks(16), "dram": blocks(40), "ssd": blocks(40)})
    key = rig.lease(tenant="a", barred={"dram": "protection"})
    for i in range(20):
        rig.ask(key, [i])
        rig.ask(key, [i])
        rig.settle()
    assert held(rig, "a", DRAM) == 0
    assert held(rig, "a", SSD) > 0
    check(rig)
    rig.close()


def test_what_is_barred_at_the_source_is_never_taken(rig):
    key = rig.lease(tenant="a", barred={"hbm": "protection"})
    fill(rig, key, [1, 2])
    assert held(rig, "a") == 0
    assert rig.pool.budget.refused[key.ns, HBM, "protection"] == 8


def test_what_must_not_be_here_any_more_leaves(rig):
    key = rig.lease(tenant="a")
    fill(rig, key, [1, 2])
    rig.ring.deny([(key.ns, "a", "residency")])
    assert rig.pool.runs == {}
    assert {d.reason for d in rig.items(Drop)} == {"delete"}
    assert rig.ask(key, [1, 2]).code == "residency"
    assert rig.pool.budget.refused[key.ns, HBM, "residency"] == 8


def test_a_new_rule_takes_effect_on_what_is_here(rig):
    key = rig.lease(tenant="a")
    rig.ask(key, [1])
    (run,) = rig.pool.runs.values()
    rig.relief.evict(HBM, [(run, run.copies[HBM])], rig.now)
    rig.relief.evict(DRAM, [(run, run.copies[DRAM])], rig.now)
    assert held(rig, "a", SSD) == 4
    rig.lease(ns=key.ns, tenant="a", barred={"ssd": "data-class"})
    assert held(rig, "a", SSD) == 0


def test_what_is_malformed_leaves_a_limited_tenant_nothing():
    budget = Budget(block_bytes=1024, slot_bytes=1104)
    budget.allow({"tenants": {"a": {"hbm": [-1, 0], "dram": [5], "ssd": [True, 0], "tape": [1, 1], "remote": [7, 2]}}})
    assert budget.shares == {"a": {Tier.REMOTE: Share(7, 2)}}
    budget.allow({"tenants": [], "arenas": ["a"]})
    assert budget.shares == {}
    assert budget.arenas == frozenset()
    assert policies_of([(b"n", "a", {"tape": "x", "ssd": "y"}, True, ())]) == {b"n": Policy("a", {"ssd": "y"}, True)}


def test_an_older_answer_does_not_undo_a_newer_one(rig):
    assert rig.allow(a={"hbm": (8, 0)})
    assert not rig.relief.allow({"version": 0, "tenants": {"a": {"hbm": [None, 0]}}})
    assert not rig.relief.allow({"version": "9"})
    assert rig.pool.budget.shares["a"][HBM].limit == 8 * 1024


# --- guarantees and arenas --------------------------------------------------


def test_nobody_evicts_what_another_is_guaranteed(rig):
    quiet, loud = rig.lease(tenant="a"), rig.lease(tenant="b")
    rig.allow(a={"hbm": (None, 8)})
    fill(rig, quiet, [1, 2, 3, 4])
    for i in range(200):
        rig.now += 30
        rig.ask(loud, [i])
        rig.settle()
        assert held(rig, "a") >= 8
    assert held(rig, "a") == 8


def test_an_arena_evicts_nobody_and_nobody_evicts_it(rig):
    own, others = rig.lease(tenant="a"), rig.lease(tenant="b")
    rig.allow(a={"hbm": (12, 12), "dram": (0, 0), "ssd": (0, 0)}, arenas=["a"])
    fill(rig, own, [1, 2, 3])
    for i in range(100):
        rig.now += 30
        rig.ask(others, [i])
        rig.settle()
        assert held(rig, "a") == 12
        assert held(rig, "b") <= 28
    before = held(rig, "b")
    for i in range(100):
        rig.ask(own, [100 + i])
        assert held(rig, "a") == 12
    assert held(rig, "b") == before


def test_an_arena_is_cleared_of_those_who_were_there_before_it(rig):
    own, others = rig.lease(tenant="a"), rig.lease(tenant="b")
    fill(rig, others, range(9))
    rig.allow(a={"hbm": (20, 20)}, arenas=["a"])
    fill(rig, own, range(5))
    assert held(rig, "a") == 20
    assert held(rig, "b") <= 20


def test_a_shrunk_allowance_is_in_force_only_when_what_is_above_it_has_left(rig):
    key = rig.lease(tenant="a")
    fill(rig, key, [1, 2])
    copies = [r.copies[HBM] for r in rig.pool.runs.values()]
    for copy in copies:
        copy.acquire()
    assert not rig.allow(a={"hbm": (4, 0)})
    for copy in copies:
        copy.release()
    assert rig.relief.allow({"version": rig.relief.version, "tenants": {"a": {"hbm": [4096, 0]}}})
    assert held(rig, "a") == 4


def test_blocks_found_before_their_tenant_is_known_are_charged_to_it(rig):
    key = rig.lease()
    fill(rig, key, [1])
    assert rig.pool.budget.charged == {("", HBM): 4096}
    rig.lease(ns=key.ns, tenant="a")
    assert rig.pool.budget.charged == {("a", HBM): 4096}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(0, 2), st.lists(st.integers(0, 12), min_size=1, max_size=3)),
        st.tuples(st.just("allow"), st.integers(0, 1), st.sampled_from(["hbm", "dram", "ssd"]), st.integers(0, 30)),
        st.tuples(st.just("bar"), st.integers(0, 2), st.sampled_from(["", "dram", "ssd"])),
        st.tuples(st.just("relieve")),
        st.tuples(st.just("wait"), st.integers(1, 400)),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.booleans())
def test_charges_are_what_is_held_whatever_happens(steps, arena):
    names = ["a", "b", "c"]
    with tempfile.TemporaryDirectory() as directory:
        rig = Rig(Path(directory), {"hbm": blocks(16), "dram": blocks(12), "ssd": blocks(24)})
        leases = [rig.lease(tenant=n) for n in names]
        shares = {"a": {}, "b": {}}
        bars = [{}, {}, {}]
        for step in steps:
            match step:
                case ("ask", who, ids):
                    rig.ask(leases[who], ids)
                case ("allow", who, tier, count):
                    shares[names[who]][tier] = (count, count // 2)
                    rig.allow(**shares, **({"arenas": ["a"]} if arena else {}))
                case ("bar", who, tier):
                    bars[who] = {tier: "data-class"} if tier else {}
                    leases[who] = rig.lease(ns=leases[who].ns, tenant=names[who], barred=bars[who])
                case ("relieve",):
                    rig.relief.work(rig.now)
                case ("wait", seconds):
                    rig.now += seconds
                    old = zip(leases, names, bars, strict=True)
                    leases = [rig.lease(ns=x.ns, tenant=n, barred=b) for x, n, b in old]
                    rig.relief.expire(rig.now)
            check(rig)
            for lease, bar in zip(leases, bars, strict=True):
                for run in rig.pool.runs.values():
                    assert run.space.ns != lease.ns or not {t.value for t in run.copies} & bar.keys()
        rig.close()


def test_every_tier_has_a_share_or_is_free():
    budget = Budget(block_bytes=1, slot_bytes=2)
    assert all(budget.kept(t) == 0 for t in TIERS)


def test_what_is_pinned_is_neither_evicted_nor_trimmed_until_its_time_or_a_fence(tmp_path):
    rig = Rig(tmp_path, {"hbm": blocks(16, ttl_seconds=50.0)})
    key = rig.lease(tenant="a")
    rig.ask(key, [1])
    (run,) = rig.pool.runs.values()
    pins = (Pin(rig.now + 100, frozenset([run.keys[-32:]])),)
    policy = rig.pool.budget.policies[key.ns]
    rig.relief.learn({key.ns: policy._replace(pins=pins)})
    for number in range(2, 12):
        rig.ask(key, [number])
    rig.settle()
    assert run.copies  # though it is the oldest, and the tier was full several times
    rig.allow(a={HBM: (2, 0)})
    assert [r for r in rig.pool.runs.values() if r.copies] == [run]
    rig.now += 60
    rig.relief.expire(rig.now)
    assert run.copies
    rig.now += 60
    rig.relief.expire(rig.now)
    assert not run.copies
    rig.relief.learn({key.ns: policy._replace(pins=(Pin(rig.now + 100, None),))})
    rig.allow(a={HBM: (None, 0)})
    rig.lease(1, key.ns, tenant="a", pins=(Pin(rig.now + 100, None),))
    rig.ask(rig.ring.lease(key.ns, 1), [1])
    (run,) = rig.pool.runs.values()
    assert rig.pool.budget.pinned(run)
    rig.ring.fence(1, [Fence(ns=key.ns, min_gen=2)])
    assert not rig.pool.budget.pinned(run)
    rig.close()
