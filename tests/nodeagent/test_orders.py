"""What the verbs of an operation answer, and what they refuse."""

import secrets
import tempfile
import threading
import time
from pathlib import Path

import msgspec
import pytest

from kvcore.blocks import Tier
from kvcore.messages import Command
from kvcore.receipts import EraseTarget, ShreddedDetail
from nodeagent import orders
from nodeagent.jobs import Job
from nodeagent.journal import JournalFull
from nodeagent.orders import medium_of
from nodeagent.tiers.base import LeaseOver
from tests.nodeagent.ordering import Ordered, down, everything, fill, fill_up
from tests.nodeagent.rig import blocks
from tests.nodeagent.test_pool import check

SHM = Path("/dev/shm")
TIERS = {"hbm": blocks(20), "dram": blocks(24), "ssd": blocks(400)}


@pytest.fixture
def rig(tmp_path):
    rig = Ordered(tmp_path, TIERS)
    yield rig
    rig.close()


@pytest.mark.parametrize("kind", ["erase", "verify", "shred"])
def test_what_is_not_here_or_cannot_be_read_is_refused(rig, kind):
    key = rig.lease()
    assert rig.do(kind, Tier.HBM, EraseTarget(ns="zz", gen_upto="1")).code == "args-malformed"
    empty = Command(v=1, step="s", kind=kind, node="n", order_hash="", issued_at=0, expires_at=2e10)
    assert rig.orders.long[kind](empty, Job(empty, time.time))[:2] == ("refused", "args-malformed")
    good = rig.command(kind, Tier.HBM, everything(key))
    for change in ({"tier": "remote"}, {"tier": "tape"}, {"source": "engine-7"}):
        command = msgspec.structs.replace(good, args=good.args | change)
        done = rig.orders.long[kind](command, Job(command, time.time))
        assert done[:2] == ("refused", "owner-unknown")


def test_a_verify_sees_what_an_erase_has_not_reached(rig):
    mine, other = fill(rig, [rig.lease(), rig.lease()])
    for tier in (Tier.HBM, Tier.DRAM, Tier.SSD):
        keys = rig.keys(tier, mine.ns)
        seen = rig.verify(tier, everything(mine))
        assert (seen.found_blocks, seen.found_bytes) == (len(keys), 1024 * len(keys))
        assert seen.readback.sampled > seen.readback.clean
        assert seen.stream_pos.seq == rig.pool.outboxes[tier].lanes[0].seq
        assert rig.verify(tier, EraseTarget(ns=mine.ns.hex(), gen_upto="2", keys=[keys[0].hex()])).found_blocks == 1
    assert rig.keys(Tier.HBM, other.ns)
    check(rig)


def test_a_verify_believes_the_medium_and_not_the_index(rig):
    """An index that forgot what lies there is no proof that it is gone."""
    (key,) = fill(rig, [rig.lease()])
    for run in [r for r in rig.pool.runs.values() if Tier.SSD in r.copies]:
        rig.pool.detach(run, Tier.SSD)
    assert rig.keys(Tier.SSD, key.ns) == []
    assert rig.verify(Tier.SSD, everything(key)).found_blocks > 0


# Shred


def test_shred_destroys_the_values_and_the_lease(rig):
    mine, other = fill(rig, [rig.lease(), rig.lease()])
    runs = [r for r in rig.pool.runs.values() if Tier.SSD in r.copies]
    places = {r.copies[Tier.SSD].place: r.space.ns == mine.ns for r in runs}
    values = {place: rig.media.keys.value(place) for place in places}
    blobs = {place: (rig.media.ssd_dir / f"{place.hex()}.kvo").read_bytes() for place in places}
    done = rig.do("shred", Tier.SSD, everything(mine))
    detail = msgspec.convert(done.detail, ShreddedDetail)
    assert (done.outcome, detail.objects, detail.lease_dropped) == ("done", sum(places.values()), True)
    assert detail.key_medium in ("flash", "unknown", "memory")
    assert detail.flags == ([] if detail.key_medium == "memory" else ["KEY_MEDIUM_UNSANITISED"])
    raw = rig.media.key_path.read_bytes()
    assert all((values[place] in raw) is not gone for place, gone in places.items())
    with pytest.raises(LeaseOver):
        rig.ring.lease(mine.ns, mine.gen)
    assert rig.ring.lease(other.ns, other.gen)
    assert set(rig.engine._streams) == {(other.ns, other.gen)}
    assert blobs
    check(rig)


def test_shred_of_a_memory_tier_has_no_keys_to_destroy_but_the_lease(rig):
    (key,) = fill(rig, [rig.lease()])
    held = rig.keys(Tier.SSD, key.ns)
    done = rig.do("shred", Tier.HBM, everything(key))
    assert (done.outcome, done.detail["objects"], done.detail["lease_dropped"]) == ("done", 0, True)
    assert rig.keys(Tier.SSD, key.ns) == held


# Fence


def fence(rig, *fences):
    command = rig.command("fence", Tier.HBM)
    targets = [{"ns": ns, "gen_upto": min_gen} for ns, min_gen in fences]
    return rig.orders.fence(msgspec.structs.replace(command, args={**command.args, "targets": targets}))


def test_a_fence_ends_leases_and_requests_and_is_durable(tmp_path):
    rig = Ordered(tmp_path, TIERS, tpot_ms=100.0)
    key, other = rig.lease(), rig.lease()
    rig.ask(key, [1, 2], output=500)
    rig.ask(other, [1, 2], output=500)
    rig.now += 1.7  # a block is held back now
    rig.engine.tick(rig.now)
    assert rig.engine.running == 2
    answer = fence(rig, (key.ns.hex(), "2"))
    assert (answer["fences"], answer["known"]) == (1, 1)
    assert rig.engine.running == 1
    with pytest.raises(LeaseOver):
        rig.ring.lease(key.ns, key.gen)
    assert [(f.ns, f.min_gen) for f in rig.journal.fences()] == [(key.ns, 2)]
    assert {s.ns for s in rig.pool.spaces.values() if s.fenced} == {key.ns}
    assert all(c[0] != key.ns for c in rig.engine._chains)
    assert rig.pool.budget.refused[key.ns, Tier.HBM, "stale-generation"] == 1
    assert not any(c.refs for r in rig.pool.runs.values() if r.space.ns == key.ns for c in r.copies.values())
    rig.close()


def test_a_fence_that_is_not_durable_holds_and_is_not_answered_for(rig):
    key = rig.lease()
    fill_up(rig.journal)
    rig.journal._db.execute("DELETE FROM found")
    many = [(secrets.token_hex(32), "5") for _ in range(500)]
    with pytest.raises(JournalFull):
        fence(rig, (key.ns.hex(), "2"), *many)
    assert rig.ring.fenced(key.ns, key.gen)
    assert rig.journal.fences() == []
    rig.journal._db.execute("PRAGMA max_page_count=1000000")
    assert fence(rig)["known"] == 501  # what was not kept is kept with the next one
    assert len(rig.journal.fences()) == 501


def test_a_fence_that_cannot_be_read_is_refused(rig):
    command = Command(v=1, step="s", kind="fence", node="n", order_hash="", issued_at=0, expires_at=2e10)
    assert rig.orders.fence(command)[:2] == ("refused", "args-malformed")
    for line in (("00", "1"), ("00" * 32, "-1"), ("00" * 32, "x"), (7, "1"), ("00" * 32, str(2**63 + 1))):
        assert fence(rig, line).code == "args-malformed"


# Before the console was heard, and media


def test_an_order_waits_until_what_an_earlier_life_left_is_found_again(rig, monkeypatch):
    monkeypatch.setattr(orders, "OPEN_SECONDS", 0.005)
    (key,) = fill(rig, [rig.lease()])
    rig.media.opened = False
    came = []
    thread = threading.Thread(target=lambda: came.append(rig.do("erase", Tier.HBM, everything(key))))
    thread.start()
    time.sleep(0.05)
    assert came == []
    rig.media.opened = True
    thread.join(10)
    assert came[0].outcome == "done"


def test_a_medium_is_named_as_far_as_the_system_says_it(tmp_path):
    assert medium_of(tmp_path) in ("flash", "disk", "memory", "unknown")
    assert medium_of(tmp_path / "nothing") == "unknown"
    if Path("/dev/shm").is_dir():
        assert medium_of(Path("/dev/shm")) == "memory"


@pytest.mark.skipif(not SHM.is_dir(), reason="no file system in memory here")
def test_keys_that_lay_in_memory_leave_no_remark():
    with tempfile.TemporaryDirectory(dir=SHM) as directory:
        rig = Ordered(Path(directory), TIERS)
        key = rig.lease()
        rig.ask(key, [1])
        down(rig, Tier.SSD)
        assert rig.erase(Tier.SSD, everything(key))[1].residual == []
        assert rig.do("shred", Tier.SSD, everything(key)).detail["flags"] == []
        rig.close()
