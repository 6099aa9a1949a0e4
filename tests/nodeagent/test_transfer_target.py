"""What another node offers is checked, written, read back, announced; whoever is cut off goes on where it was."""

import msgspec
import pytest

from kvcore.blocks import BlockState
from kvcore.events import Add
from kvcore.keys import unpack
from kvcore.messages import Fence
from nodeagent import transfer_target
from nodeagent.jobs import Stopped
from tests.nodeagent.moving import TIERS, D, H, Node, S, filled, network, offer, pair, release, take
from tests.nodeagent.ordering import everything, fill
from tests.nodeagent.rig import blocks
from tests.nodeagent.test_pool import check

__all__ = ["network", "pair"]


def test_what_does_not_fit_stays_and_nobody_elses_blocks_leave(tmp_path, network):
    a = Node(tmp_path / "a", TIERS, network, "a", 1)
    b = Node(tmp_path / "b", {"hbm": blocks(4), "dram": blocks(20)}, network, "b", 2)
    key = filled(a, b)
    other = b.lease()
    b.ask(other, [1, 2, 3])
    b.settle()
    held = b.all(H) | b.all(D)
    _, step = offer(a, D, b, D, everything(key))
    done, detail = take(a, D, b, D, step, everything(key))
    assert (done.outcome, done.code) == ("partial", "target-full")
    assert detail.refused["target-full"] > 0
    assert a.desk.offers.sent_bytes <= 20 * 1104  # nothing was fetched that has no room
    assert held <= b.all(H) | b.all(D)
    moved = b.all(D) & a.all(D)
    assert len(moved) == detail.blocks
    done = release(a, D, step, everything(key), left=detail.left)
    assert (done.outcome, done.detail["blocks"]) == ("done", detail.blocks)
    assert not moved & a.all(D)
    assert {c.state for r in a.pool.runs.values() for c in r.copies.values()} == {BlockState.COMMITTED}
    check(a)
    check(b)
    a.close()
    b.close()


def test_a_network_that_is_cut_goes_on_where_it_was(pair, network, monkeypatch):
    monkeypatch.setattr(transfer_target, "WINDOW_BYTES", 4 * 1104)
    a, b = pair
    key = filled(a, b)
    keys = a.all(D)
    _, step = offer(a, D, b, D, everything(key))
    network.cut = lambda number: number % 5 == 0
    before = a.desk.offers.sent_bytes
    done, detail = take(a, D, b, D, step, everything(key))
    assert (done.outcome, detail.blocks) == ("done", len(keys))
    assert detail.resumed >= 2
    assert a.desk.offers.sent_bytes - before == len(keys) * 1104  # nothing came twice
    check(b)


def test_an_answer_that_is_lost_is_asked_for_again(pair, network, monkeypatch):
    monkeypatch.setattr(transfer_target, "WINDOW_BYTES", 8 * 1104)
    a, b = pair
    key = filled(a, b)
    lost = iter([False, False, True, False, True] + [False] * 1000)
    network.change = lambda body: body[: len(body) // 2] if next(lost) else body
    _, step = offer(a, D, b, D, everything(key))
    done, detail = take(a, D, b, D, step, everything(key))
    assert (done.outcome, detail.resumed, b.all(D)) == ("done", 2, a.all(D))


def test_a_source_that_dies_leaves_what_came(pair, network, monkeypatch):
    monkeypatch.setattr(transfer_target, "WINDOW_BYTES", 4 * 1104)
    a, b = pair
    key = filled(a, b)
    _, step = offer(a, D, b, D, everything(key))
    network.cut = lambda number: number > 6
    done, detail = take(a, D, b, D, step, everything(key))
    assert (done.outcome, done.code) == ("partial", "source-unreachable")
    assert 0 < detail.blocks == len(b.all(D))
    assert detail.left
    network.nodes.pop("a")
    assert take(a, D, b, D, step, everything(key))[0].code == "source-unreachable"
    check(b)


def test_a_target_that_dies_before_or_after_a_commit_goes_on_with_what_it_kept(pair, network, tmp_path, monkeypatch):
    monkeypatch.setattr(transfer_target, "WINDOW_BYTES", 8 * 1104)
    a, b = pair
    key = filled(a, b)
    _, step = offer(a, D, b, S, everything(key))
    network.cut = lambda number: number > 5
    command, job = b.order("take", S, [everything(key)], party=a.party(D), offer=step)
    assert b.desk.long["take"](command, job).code == "source-unreachable"
    kept = b.all(S)
    assert 0 < len(kept) < len(a.all(D))
    b.close()
    network.cut = lambda number: False
    again = Node(tmp_path / "b", TIERS, network, "b", 2, secret=b.secret)
    pair[1] = again
    assert again.all(S) == kept  # whole runs, or nothing of them
    again.lease_of(key)
    again.drain()
    again.told["reference"].clear()
    done, detail = take(a, D, again, S, step, everything(key))
    assert (done.outcome, detail.there, again.all(S)) == ("done", len(kept), a.all(D))
    told = {k for item in again.items(Add) if item.step for k in unpack(item.keys)}
    assert told == a.all(D)  # also what it had before: the catalog may have heard nothing of it
    assert release(a, D, step, everything(key)).outcome == "done"
    check(again)


def test_a_step_that_is_stopped_goes_on_with_the_next_order(pair, monkeypatch):
    monkeypatch.setattr(transfer_target, "WINDOW_BYTES", 4 * 1104)
    a, b = pair
    key = filled(a, b)
    _, step = offer(a, D, b, D, everything(key))
    command, job = b.order("take", D, [everything(key)], party=a.party(D), offer=step)
    network, seen = a.network, []

    def stopping(number):
        seen.append(number)
        if len(seen) == 6:
            job.stop()
        return False

    network.cut = stopping
    with pytest.raises(Stopped):
        b.desk.long["take"](command, job)
    came = b.all(D)
    assert 0 < len(came) < len(a.all(D))
    assert not len(b.desk.staging)
    done, detail = take(a, D, b, D, step, everything(key))
    assert (done.outcome, detail.there, b.all(D)) == ("done", len(came), a.all(D))
    check(b)


def test_a_fence_during_a_transfer_is_heeded_by_both(pair, network, monkeypatch):
    monkeypatch.setattr(transfer_target, "WINDOW_BYTES", 4 * 1104)
    a, b = pair
    key = filled(a, b)
    _, step = offer(a, D, b, D, everything(key))
    fence = [Fence(ns=key.ns, min_gen=key.gen + 1)]
    seen = []

    def at_target(body):
        seen.append(body)
        if len(seen) == 5:  # it is on its way: refused when it would be committed
            b.ring.fence(1, fence)
        return body

    network.change = at_target
    done, detail = take(a, D, b, D, step, everything(key))
    assert (done.outcome, done.code) == ("partial", "stale-generation")
    came = len(b.all(D))
    assert detail.blocks == came < len(a.all(D))
    network.change = lambda body: body
    a.ring.fence(1, fence)
    parcel = a.desk.offers.read(step, [a.desk.offers.open[step].manifest[0].version], 2**20)
    assert parcel.runs == []
    assert parcel.refused[0][1] == "stale-generation"
    assert offer(a, D, b, D, everything(key))[0].detail["blocks"] == 0


def test_the_wrong_digest_is_refused_and_the_rest_comes(pair, monkeypatch):
    a, b = pair
    key = filled(a, b)
    _, step = offer(a, D, b, D, everything(key))
    bad = a.desk.offers.open[step].manifest[1].version
    named = "1-1"
    whole = a.desk.offers.read

    def lying(step, versions, credit):
        parcel = whole(step, versions, credit)
        flip = [(v, raw[:-1] + bytes([raw[-1] ^ 1]) if v == bad else raw) for v, raw in parcel.runs]
        return msgspec.structs.replace(parcel, runs=flip)

    a.desk.offers.read = lying  # a source that lies, or whose memory does
    done, detail = take(a, D, b, D, step, everything(key))
    assert (done.outcome, done.code, detail.left) == ("partial", "block-digest", [named])
    assert b.pool.refused_blocks["digest"] == 1
    check(b)


@pytest.mark.parametrize(
    ("case", "code"),
    [("tenant", "tenant-mismatch"), ("lease", "lease-over"), ("target", "not-ordered"), ("barred", "class")],
)
def test_the_target_takes_only_what_is_its_to_take(pair, case, code):
    a, b = pair
    key = a.lease()
    fill(a, [key], 10)
    targets, more = [everything(key)], {}
    if case == "barred":
        b.lease_of(msgspec.structs.replace(key, barred={"dram": "class"}))
    elif case != "lease":
        b.lease_of(key)
    if case == "tenant":
        more["tenants"] = {key.ns.hex(): "somebody-else"}
    _, step = offer(a, D, b, D, *targets)
    if case == "target":
        targets = [everything(key, 0)]
    done, _ = take(a, D, b, D, step, *targets, **more)
    assert (done.outcome, done.code) == ("partial", code)
    assert b.all(D) == set()


def test_keys_of_what_was_never_here_are_asked_for(pair, monkeypatch):
    a, b = pair
    key = a.lease()
    fill(a, [key], 10)
    _, step = offer(a, D, b, D, everything(key))
    b.desk._hurry = lambda: b.lease_of(key)
    done, _ = take(a, D, b, D, step, everything(key), tenants={key.ns.hex(): key.tenant})
    assert (done.outcome, b.all(D)) == ("done", a.all(D))


def test_what_is_on_its_way_to_another_is_not_counted_as_here(pair):
    a, b = pair
    key = filled(a, b)
    _, step = offer(a, D, b, D, everything(key))
    take(a, D, b, D, step, everything(key))
    _, back = offer(b, D, a, D, everything(key))
    done, detail = take(b, D, a, D, back, everything(key))
    assert (done.outcome, done.code, detail.blocks) == ("partial", "moving", 0)
    assert release(a, D, step, everything(key)).outcome == "done"
    release(b, D, back, everything(key), left=detail.left)
    assert (a.all(D), len(b.all(D)) > 30) == (set(), True)
    check(b)


def test_what_was_moved_is_as_old_as_it_was_by_whoever_s_clock(pair):
    a, b = pair
    key = filled(a, b)
    a.now += 100
    b.now += 40  # another clock
    ages = {k: a.now - run.born for run in a.pool.runs.values() for k in unpack(run.keys)}
    assert min(ages.values()) >= 100
    _, step = offer(a, D, b, D, everything(key))
    done, detail = take(a, D, b, D, step, everything(key))
    assert (done.outcome, detail.blocks > 0) == ("done", True)
    there = {k: b.now - run.born for run in b.pool.runs.values() for k in unpack(run.keys)}
    assert len(there) == detail.blocks
    assert all(abs(ages[k] - age) < 5 for k, age in there.items())
