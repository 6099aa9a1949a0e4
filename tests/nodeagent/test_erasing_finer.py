"""An order for single blocks takes them out of the runs they share; the rest is written anew."""

import pytest

from kvcore.blocks import Tier
from kvcore.events import Drop
from kvcore.keys import unpack
from kvcore.receipts import EraseTarget
from kvcore.targets import keys_hash, packed
from nodeagent.targets import Targets
from nodeagent.tiers.base import content
from tests.nodeagent.ordering import Ordered, down, root_of
from tests.nodeagent.rig import blocks
from tests.nodeagent.test_pool import check

TIERS = {"hbm": blocks(20), "pinned": blocks(24), "dram": blocks(24), "ssd": blocks(400)}


@pytest.fixture
def rig(tmp_path):
    rig = Ordered(tmp_path, TIERS)
    yield rig
    rig.close()


@pytest.mark.parametrize("tier", [Tier.HBM, Tier.SSD], ids=str)
def test_a_shared_run_is_written_anew_without_the_erased_blocks(rig, tier):
    key = rig.lease()
    rig.ask(key, [1, 2, 3])
    down(rig, tier)
    (run,) = rig.pool.runs.values()
    keys = unpack(run.keys)
    gone = [keys[0], keys[5], keys[6]]
    old = run.copies[tier].place
    rig.drain()
    done, detail = rig.erase(
        tier, EraseTarget(ns=key.ns.hex(), gen_upto="2", keys=[k.hex() for k in [*gone, bytes(32)]])
    )
    assert (done.outcome, detail.blocks, detail.objects) == ("done", 3, 1)
    assert detail.objects_root == root_of(gone)
    assert [unpack(i.keys) for i in rig.items(Drop)[-1:]] == [gone]
    assert set(rig.keys(tier, key.ns)) == set(keys) - set(gone)
    stream = rig.engine.keystream(key)
    for piece in rig.pool.runs.values():
        raw = rig.pool.tiers[tier].read(piece.meta, piece.copies[tier].place)
        for i, k in enumerate(unpack(piece.keys)):
            assert content(piece.meta, raw, i) == stream.content(k)
        before = keys.index(unpack(piece.keys)[0])
        assert (piece.depth, piece.meta.parent) == (before, keys[before - 1])
    assert keys[5] not in rig.raw(tier)  # the others are named as parents of what stays
    assert tier is Tier.HBM or not (rig.media.ssd_dir / f"{old.hex()}.kvo").exists()
    check(rig)
    assert rig.ask(key, [1, 2, 3]).hit_tokens == 0  # its head is gone
    check(rig)


def test_a_run_that_is_on_another_tier_too_goes_as_a_whole_here(rig):
    key = rig.lease()
    rig.ask(key, [1])
    down(rig, Tier.SSD)
    rig.ask(key, [1])
    (run,) = rig.pool.runs.values()
    assert set(run.copies) == {Tier.HBM, Tier.SSD}
    target = EraseTarget(ns=key.ns.hex(), gen_upto="2", keys=[unpack(run.keys)[1].hex()])
    _, detail = rig.erase(Tier.HBM, target)
    assert detail.blocks == 1
    assert rig.keys(Tier.HBM, key.ns) == []
    _, detail = rig.erase(Tier.SSD, target, step="s2")
    assert detail.blocks == 1
    assert len(rig.keys(Tier.SSD, key.ns)) == 3
    check(rig)


def test_without_a_lease_nothing_can_be_written_anew_and_all_of_the_object_goes(rig):
    key = rig.lease()
    rig.ask(key, [1])
    down(rig, Tier.SSD)
    (run,) = rig.pool.runs.values()
    rig.now += 1000
    _, detail = rig.erase(Tier.SSD, EraseTarget(ns=key.ns.hex(), gen_upto="2", keys=[unpack(run.keys)[0].hex()]))
    assert detail.blocks == 1
    assert rig.keys(Tier.SSD, key.ns) == []
    check(rig)


@pytest.mark.parametrize("tier", [Tier.HBM, Tier.SSD], ids=str)
def test_what_continues_a_prefix_goes_with_it_and_what_is_made_anew_is_not_meant(rig, tier):
    """The console names what it knows by 16 bytes; the agent knows what continues it, and what came after the erase."""
    key = rig.lease()
    rig.ask(key, [1, 2])
    rig.ask(key, [1, 3])
    rig.ask(key, [9])
    down(rig, tier)
    first = next(run for run in rig.pool.runs.values() if run.meta.parent is None and run.blocks > 2)
    chain = unpack(first.keys)
    named = packed([chain[2]])
    target = EraseTarget(ns=key.ns.hex(), gen_upto="2", attached=keys_hash(named), count=1, below=True)
    mine = {"keys": {keys_hash(named): named}}
    meant = set()
    grown = Targets([target], mine["keys"])
    grown.grow(run.meta for run in rig.pool.runs.values())
    for run in rig.pool.runs.values():
        marks = grown.meant(run.meta) or []
        meant |= {k for k, wanted in zip(unpack(run.keys), marks, strict=False) if wanted}
    others = set(rig.keys(tier, key.ns)) - meant
    assert len(meant) > len(chain) - 2
    assert set(chain[:2]) <= others
    done, detail = rig.erase(tier, target, **mine)
    assert (done.outcome, detail.blocks) == ("done", len(meant))
    assert set(rig.keys(tier, key.ns)) == others
    assert not rig.ring.fenced(key.ns, key.gen), "the namespace lives on"
    look = rig.do("verify", tier, target, **mine)
    assert look.detail["found_blocks"] == 0
    rig.now += 1
    rig.ask(key, [1, 2])
    down(rig, tier)
    assert set(rig.keys(tier, key.ns)) & meant, "it was asked for again"
    again = rig.do("verify", tier, target, step="v2", **mine)
    assert again.detail["found_blocks"] == 0, "what was made after the erase is not what was ordered"
    other = rig.do("verify", tier, target, step="v3", operation="another", **mine)
    assert other.detail["found_blocks"] > 0
    check(rig)
