"""An ordered erase reaches everything of its targets, whatever the index believes, and says what it read back."""

import contextlib
import secrets
import time

import pytest

from kvcore.blocks import VOLATILE, BlockState, Tier
from kvcore.events import Drop
from kvcore.keys import unpack
from kvcore.proofs import EMPTY_ROOT
from kvcore.receipts import EraseTarget
from nodeagent import erasing
from nodeagent.jobs import Job, Stopped
from nodeagent.journal import JournalFull
from nodeagent.runs import Run
from nodeagent.tiers.base import HEADER_BYTES
from tests.nodeagent.ordering import Ordered, canaries, everything, fill, fill_up, root_of
from tests.nodeagent.rig import SLOT, blocks
from tests.nodeagent.test_pool import check

TIERS = {"hbm": blocks(20), "pinned": blocks(24), "dram": blocks(24), "ssd": blocks(400)}
LOCAL = [Tier.HBM, Tier.PINNED, Tier.DRAM, Tier.SSD]


@pytest.fixture
def rig(tmp_path, monkeypatch):
    monkeypatch.setattr(erasing, "PATIENCE_SECONDS", 0.1)
    rig = Ordered(tmp_path, TIERS)
    yield rig
    rig.close()


@pytest.mark.parametrize("tier", LOCAL, ids=str)
def test_everything_of_the_targets_leaves_a_tier_and_nothing_else(rig, tier):
    mine, other = fill(rig, [rig.lease(), rig.lease()])
    keys, others = rig.keys(tier, mine.ns), rig.keys(tier, other.ns)
    elsewhere = {t: rig.keys(t, mine.ns) for t in LOCAL if t is not tier}
    planted = canaries(rig, mine)
    assert keys
    assert tier in (Tier.SSD,) or any(c in rig.raw(tier) for c in planted)
    rig.drain()
    done, detail = rig.erase(tier, everything(mine))
    assert (done.outcome, done.code) == ("done", "")
    assert (detail.blocks, detail.bytes, detail.objects_root) == (len(keys), len(keys) * 1024, root_of(keys))
    assert detail.readback.clean == detail.readback.sampled >= detail.objects > 0
    assert detail.class_claimed == (3 if tier in VOLATILE else 2)
    assert (detail.medium.encrypted, detail.medium.emulated) == (tier is Tier.SSD, tier is Tier.HBM)
    assert rig.keys(tier, mine.ns) == []
    assert rig.keys(tier, other.ns) == others
    assert {t: rig.keys(t, mine.ns) for t in LOCAL if t is not tier} == elsewhere
    raw = rig.raw(tier)
    assert not [c for c in planted if c in raw]
    assert not [k for k in keys if k in raw]
    assert {(i.tier, i.reason) for i in rig.items(Drop)[-1:]} == {(tier.value, "delete")}
    box = rig.pool.outboxes[tier]
    assert (detail.stream_pos.boot, detail.stream_pos.stream) == (box.boot, box.stream)
    assert detail.stream_pos.seq == box.lanes[0].seq
    check(rig)
    found = rig.verify(tier, everything(mine))
    assert (found.found_blocks, found.found_bytes) == (0, 0)
    assert found.counters == {"used_bytes": len(others) * SLOT, "blocks": len(others)}
    assert rig.verify(tier, everything(other)).found_blocks == len(others)


@pytest.mark.parametrize("tier", LOCAL, ids=str)
def test_nothing_found_is_a_receipt_too(rig, tier):
    fill(rig, [rig.lease()])
    done, detail = rig.erase(tier, EraseTarget(ns=secrets.token_hex(32), gen_upto="9"))
    assert done.outcome == "done"
    assert (detail.objects, detail.blocks, detail.bytes) == (0, 0, 0)
    assert detail.objects_root == EMPTY_ROOT.hex()
    assert detail.readback.clean == detail.readback.sampled
    check(rig)


def test_older_generations_go_and_the_new_one_stays(rig):
    old = rig.lease(1)
    fill(rig, [old], 4)
    new = rig.lease(2, old.ns)
    rig.ask(new, [7])
    held = rig.keys(Tier.HBM, old.ns)
    _, detail = rig.erase(Tier.HBM, everything(old, 2))
    assert detail.blocks == len(held) - 4
    assert {r.space.gen for r in rig.pool.runs.values() if Tier.HBM in r.copies} == {2}
    check(rig)


@pytest.mark.parametrize("tier", [Tier.HBM, Tier.DRAM], ids=str)
def test_what_no_index_knows_is_overwritten_where_it_lies(rig, tier):
    (key,) = fill(rig, [rig.lease()])
    store = rig.pool.tiers[tier]
    rig.pool.drop(next(r for r in rig.pool.runs.values() if tier in r.copies), tier, "watermark")
    used = {s for r in rig.pool.runs.values() if tier in r.copies for s in r.copies[tier].place}
    slot = next(s for s in range(store._slots) if s not in used)
    canary = secrets.token_bytes(32)
    store._view[slot * SLOT + 100 : slot * SLOT + 132] = canary
    assert rig.verify(tier, everything(key)).found_blocks > len(rig.keys(tier, key.ns))
    done, detail = rig.erase(tier, everything(key))
    assert done.outcome == "done"
    assert canary not in rig.raw(tier)
    assert detail.readback.sampled == detail.blocks + 1 + store.unused
    assert rig.verify(tier, everything(key)).found_blocks == 0


def test_memory_that_was_freed_holds_nothing_of_what_was_there(rig):
    (key,) = fill(rig, [rig.lease()])
    planted = canaries(rig, key)
    for tier in (Tier.HBM, Tier.PINNED, Tier.DRAM):
        for run in [r for r in rig.pool.runs.values() if tier in r.copies]:
            rig.pool.drop(run, tier, "watermark")
    rig.pool.teller.flush()
    for tier in (Tier.HBM, Tier.PINNED, Tier.DRAM):
        assert not any(rig.raw(tier))
    assert planted


def test_files_that_no_index_knows_go_and_those_of_others_stay(rig):
    mine, other = fill(rig, [rig.lease(), rig.lease()])
    directory = rig.media.ssd_dir
    copies = {}
    for key in (mine, other):
        run = next(r for r in rig.pool.runs.values() if Tier.SSD in r.copies and r.space.ns == key.ns)
        copies[key.ns] = (directory / f"{run.copies[Tier.SSD].place.hex()}.kvo").read_bytes()
    (directory / f"{'11' * 16}.kvo").write_bytes(copies[mine.ns])
    (directory / f"{'22' * 16}.tmp").write_bytes(copies[mine.ns][:500])
    (directory / f"{'33' * 16}.kvo").write_bytes(copies[other.ns])
    (directory / "notes.txt").write_bytes(b"nobody knows what this is")
    before = len(rig.keys(Tier.SSD, mine.ns))
    assert rig.verify(Tier.SSD, everything(mine)).found_blocks > before
    done, detail = rig.erase(Tier.SSD, everything(mine))
    assert done.outcome == "done"
    assert detail.blocks > before
    names = {p.name for p in directory.iterdir()}
    placed = {f"{r.copies[Tier.SSD].place.hex()}.kvo" for r in rig.pool.runs.values() if Tier.SSD in r.copies}
    assert names == placed | {f"{'33' * 16}.kvo"}
    assert rig.verify(Tier.SSD, everything(mine)).found_blocks == 0
    check(rig)


def test_the_values_of_erased_objects_are_gone_from_the_key_file(rig):
    mine, other = fill(rig, [rig.lease(), rig.lease()])
    places = [r.copies[Tier.SSD].place for r in rig.pool.runs.values() if Tier.SSD in r.copies]
    values = {p: rig.media.keys.value(p) for p in places}
    gone = {r.copies[Tier.SSD].place for r in rig.pool.runs.values() if Tier.SSD in r.copies and r.space.ns == mine.ns}
    rig.erase(Tier.SSD, everything(mine))
    raw = rig.media.key_path.read_bytes()
    assert all((value in raw) is (place not in gone) for place, value in values.items())
    assert rig.keys(Tier.SSD, other.ns)


# Leases


def held(rig, key, tier=Tier.HBM):
    run = next(r for r in rig.pool.runs.values() if tier in r.copies and r.space.ns == key.ns)
    copy = run.copies[tier]
    copy.acquire()
    return run, copy


def test_what_is_in_use_waits_and_the_receipt_says_so(rig):
    (key,) = fill(rig, [rig.lease()])
    run, copy = held(rig, key)
    count = len(rig.keys(Tier.HBM, key.ns))
    done, detail = rig.erase(Tier.HBM, everything(key), deadline=rig.now + 60)
    assert (done.outcome, done.code) == ("partial", "blocks-leased")
    assert (detail.remaining.blocks, detail.blocks) == (run.blocks, count - run.blocks)
    assert copy.state is BlockState.REFERENCED
    assert rig.keys(Tier.HBM, key.ns) == unpack(run.keys)
    done, detail = rig.erase(Tier.HBM, everything(key), step="s2", deadline=rig.now + 60, force=True)
    assert done.code == "blocks-leased"  # force breaks nothing before the deadline
    copy.release()
    done, detail = rig.erase(Tier.HBM, everything(key), step="s3", deadline=rig.now + 60)
    assert (done.outcome, detail.blocks, detail.residual) == ("done", run.blocks, [])
    check(rig)


def test_after_the_deadline_force_breaks_in_and_says_so(rig):
    (key,) = fill(rig, [rig.lease()])
    _, copy = held(rig, key)
    planted = canaries(rig, key)
    done, detail = rig.erase(Tier.HBM, everything(key), deadline=rig.now - 1, force=True)
    assert (done.outcome, detail.residual, detail.remaining.blocks) == ("done", ["FORCED"], 0)
    assert not [c for c in planted if c in rig.raw(Tier.HBM)]
    copy.release()  # whoever used it lets go of nothing
    check(rig)


def test_what_is_let_go_while_the_step_waits_is_erased_by_it(rig, monkeypatch):
    monkeypatch.setattr(erasing, "PATIENCE_SECONDS", 20.0)
    (key,) = fill(rig, [rig.lease()])
    _, copy = held(rig, key)
    command = rig.command("erase", Tier.HBM, everything(key), deadline=rig.now + 60)

    class Waiting(Job):
        def sleep(self, seconds):
            if seconds == erasing.WAIT_SECONDS and copy.refs:
                copy.release()
            super().sleep(0)

    done = rig.orders.erase(command, Waiting(command, time.time))
    assert done.outcome == "done"
    assert rig.keys(Tier.HBM, key.ns) == []


def test_force_breaks_in_when_the_deadline_comes_while_the_step_waits(rig, monkeypatch):
    monkeypatch.setattr(erasing, "PATIENCE_SECONDS", 20.0)
    (key,) = fill(rig, [rig.lease()])
    _, copy = held(rig, key)
    command = rig.command("erase", Tier.HBM, everything(key), deadline=rig.now + 60, force=True)

    class Waiting(Job):
        def sleep(self, seconds):
            rig.now += 40
            super().sleep(0)

    done = rig.orders.erase(command, Waiting(command, time.time))
    assert (done.outcome, done.detail["residual"], copy.state) == ("done", ["FORCED"], BlockState.FREE)


def test_until_when_a_request_holds_its_blocks_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(erasing, "PATIENCE_SECONDS", 0.0)
    rig = Ordered(tmp_path, TIERS, tpot_ms=100.0)
    key = rig.lease()
    rig.ask(key, [1, 2], output=50)
    done, detail = rig.erase(Tier.HBM, everything(key))
    assert done.code == "blocks-leased"
    assert detail.remaining.leased_until == pytest.approx(rig.now + 5.0)
    rig.close()


# What comes meanwhile


class Watching(Job):
    """Calls `between` after each slice."""

    def __init__(self, command, between):
        super().__init__(command, time.time)
        self.between = between

    def sleep(self, seconds):
        super().sleep(0)
        self.between()


def test_puts_and_moves_into_what_is_being_erased_are_refused(rig, monkeypatch):
    monkeypatch.setattr(erasing, "SLICE_BYTES", 1)
    (key,) = fill(rig, [rig.lease()])
    seen = []

    def put():
        rig.ask(key, [5000 + len(seen)])
        seen.append(rig.keys(Tier.HBM, key.ns))

    command = rig.command("erase", Tier.HBM, everything(key))
    done = rig.orders.erase(command, Watching(command, put))
    assert (done.outcome, rig.keys(Tier.HBM, key.ns)) == ("done", [])
    assert len(seen) >= 2
    assert rig.pool.budget.refused_ever[Tier.HBM, "erasing"] >= 4 * len(seen)
    assert rig.pool.erasing == []
    rig.ask(key, [1])  # it is not fenced: new blocks are new data
    assert rig.keys(Tier.HBM, key.ns)
    check(rig)


def test_an_order_that_fences_does_it_before_it_erases_and_late_puts_are_refused_for_good(rig):
    (key,) = fill(rig, [rig.lease()])
    space = next(iter(rig.pool.spaces.values()))
    done, _ = rig.erase(Tier.HBM, everything(key), fencing=True)
    assert done.outcome == "done"
    assert rig.ring.fenced(key.ns, key.gen)
    assert [(f.ns, f.min_gen) for f in rig.journal.fences()] == [(key.ns, key.gen + 1)]
    assert rig.ring.live() == []
    late = rig.pool.meta(space, depth=0, parent=None, keys=secrets.token_bytes(64))
    for _ in range(1000):
        assert not rig.pool.commit([(Run(space, late, now=rig.now), bytes(2 * SLOT))], rig.now)
    assert rig.pool.budget.refused[key.ns, Tier.HBM, "stale-generation"] == 2000
    assert rig.keys(Tier.HBM, key.ns) == []
    check(rig)


def test_the_rate_is_kept(rig):
    (key,) = fill(rig, [rig.lease()])
    count = len(rig.keys(Tier.SSD, key.ns))
    began = time.monotonic()
    rig.erase(Tier.SSD, everything(key), rate_bytes_per_s=count * SLOT * 5)
    assert 0.2 <= time.monotonic() - began < 5


# What goes wrong


def test_an_erase_that_is_cut_short_ends_with_the_receipt_of_a_whole_one(rig, monkeypatch):
    monkeypatch.setattr(erasing, "SLICE_RUNS", 1)
    (key,) = fill(rig, [rig.lease()])
    keys = rig.keys(Tier.SSD, key.ns)
    left = [3]

    def between():
        left[0] -= 1
        if not left[0]:
            raise Stopped

    command = rig.command("erase", Tier.SSD, everything(key))
    with contextlib.suppress(Stopped):
        rig.orders.erase(command, Watching(command, between))
    assert 0 < len(rig.keys(Tier.SSD, key.ns)) < len(keys)
    assert rig.pool.erasing == []
    _, detail = rig.erase(Tier.SSD, everything(key), step="the step of a new boot")
    assert (detail.blocks, detail.objects_root) == (len(keys), root_of(keys))
    check(rig)


def test_what_cannot_be_written_down_is_not_destroyed(rig):
    (key,) = fill(rig, [rig.lease()])
    keys = rig.keys(Tier.SSD, key.ns)
    files = sorted(rig.media.ssd_dir.iterdir())
    fill_up(rig.journal)
    with pytest.raises(JournalFull):
        rig.erase(Tier.SSD, everything(key))
    assert rig.keys(Tier.SSD, key.ns) == keys
    assert sorted(rig.media.ssd_dir.iterdir()) == files
    rig.journal._db.execute("PRAGMA max_page_count=100000")
    assert rig.erase(Tier.SSD, everything(key))[1].blocks == len(keys)
    check(rig)


def test_a_block_that_was_spoiled_is_erased_like_any_other(rig):
    (key,) = fill(rig, [rig.lease()])
    run = next(r for r in rig.pool.runs.values() if Tier.HBM in r.copies)
    rig.pool.tiers[Tier.HBM]._view[run.copies[Tier.HBM].place[0] * SLOT + HEADER_BYTES] ^= 1
    assert rig.erase(Tier.HBM, everything(key))[0].outcome == "done"
    assert not any(rig.raw(Tier.HBM))
