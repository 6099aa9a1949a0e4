"""Blocks move between nodes and between tiers: checked, sealed, resumed, bounded, refused where they must not be."""

import secrets
import threading
import time

import msgspec
import pytest

from kvcore.blocks import BlockState, Tier
from kvcore.events import Add, Drop, Move
from kvcore.keys import unpack
from kvcore.messages import Fence
from nodeagent import transfer_local, transfer_source, transfer_target
from nodeagent.budget import Pin
from nodeagent.jobs import Stopped
from nodeagent.tiers.base import HEADER_BYTES
from tests.nodeagent.moving import Network, Node, offer, release, take
from tests.nodeagent.ordering import canaries, everything, fill
from tests.nodeagent.rig import blocks
from tests.nodeagent.test_pool import check

TIERS = {"hbm": blocks(24), "dram": blocks(400), "ssd": blocks(400)}
D, H, S = Tier.DRAM, Tier.HBM, Tier.SSD


@pytest.fixture
def network():
    return Network()


@pytest.fixture
def pair(tmp_path, network, monkeypatch):
    monkeypatch.setattr(transfer_target, "CUT_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(transfer_target, "LEASE_PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(transfer_target, "CUT_PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(transfer_source, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(transfer_local, "PATIENCE_SECONDS", 0.1)
    nodes = [Node(tmp_path / n, TIERS, network, n, i) for i, n in enumerate(("a", "b"), 1)]
    yield nodes
    for node in nodes:
        node.close()


def filled(a, b, rounds=24):
    """A namespace with blocks on `a`, leased to both."""
    key = a.lease()
    b.lease_of(key)
    fill(a, [key], rounds)
    a.drain()
    return key


@pytest.mark.parametrize("to", [D, S], ids=str)
def test_blocks_go_to_another_node_and_are_announced_by_it(pair, to):
    a, b = pair
    key = filled(a, b)
    keys, planted = a.all(D), canaries(a, key)
    assert len(keys) > 30
    done, step = offer(a, D, b, to, everything(key))
    assert (done.outcome, done.detail["blocks"]) == ("done", len(keys))
    done, detail = take(a, D, b, to, step, everything(key))
    assert (done.outcome, detail.blocks, detail.left, detail.there) == ("done", len(keys), [], 0)
    assert b.all(to) == keys == a.all(D)  # until the order to release comes
    told = b.items(Add)
    assert {(i.from_owner, i.step, i.tier) for i in told} == {(a.owner(D), "b-take-1", to.value)}
    assert {k for i in told for k in unpack(i.keys)} == keys
    assert not a.items(Drop)
    assert not [c for c in planted if any(c in body for body in a.network.seen)]  # nothing was readable on its way
    assert canaries(b, key) <= planted
    stream = a.engine.keystream(key)
    with b.pool.lock:
        for run in b.pool.runs.values():
            raw = b.pool.tiers[to].read(run.meta, run.copies[to].place)
            assert raw[HEADER_BYTES : HEADER_BYTES + 1024] == stream.content(run.keys[:32])
    assert release(a, D, step, everything(key)).outcome == "done"
    assert a.all(D) == set()
    assert {i.reason for i in a.items(Drop)} == {"hot_move"}
    assert not a.desk.offers.open
    assert not len(b.desk.staging)
    check(a)
    check(b)


@pytest.mark.parametrize("to", [D, S], ids=str)
def test_within_a_source_a_move_is_one_item(pair, to):
    a, b = pair
    key = filled(a, b)
    a.told["reference"].clear()
    before = a.all(H) | a.all(D)
    done, _ = a.obey("move", H, everything(key), to_tier=to.value)
    assert done.outcome == "done", done
    assert a.all(H) == set()
    assert a.all(H) | a.all(D) | a.all(S) == before
    assert done.detail["blocks"] == sum(len(i.keys) // 32 for i in a.items(Move) + a.items(Drop))
    check(a)


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


def test_an_erase_takes_what_is_held_for_others_and_what_is_staged(pair):
    a, b = pair
    key = filled(a, b)
    offer(a, D, b, D, everything(key))
    done, detail = a.erase(D, everything(key))
    assert (done.outcome, detail.remaining.blocks) == ("done", 0)
    assert a.all(D) == set()
    run = next(iter(a.pool.runs.values()))
    raw = a.pool.tiers[H].read(run.meta, run.copies[H].place)
    b.desk.staging.put("s", D, run.meta, raw)
    ((_, _, staged),) = b.desk.staging._held.values()
    done, detail = b.erase(D, everything(key))
    assert (done.outcome, detail.blocks) == ("done", run.blocks)
    assert staged == bytes(len(raw))
    assert b.desk.staging.take("s", run.meta.version) is None


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


def test_whoever_is_not_the_destination_gets_nothing(pair, network, tmp_path):
    a, b = pair
    key = filled(a, b)
    _, step = offer(a, D, b, D, everything(key))
    thief = Node(tmp_path / "c", TIERS, network, "c", 3)
    thief.lease_of(key)
    assert take(a, D, thief, D, step, everything(key))[0].code == "transfer-signature"
    assert thief.all(D) == set()
    thief.name = "b"
    thief.desk._node = "b"
    assert take(a, D, thief, D, step, everything(key))[0].code == "transfer-signature"
    party = msgspec.structs.replace(a.party(D), public_key=thief.party(D).public_key)
    done, _ = b.obey("take", D, everything(key), party=party, offer=step)
    assert done.code == "transfer-signature"  # a source that is not the one it was told
    assert take(a, D, b, D, "another", everything(key))[0].code == "offer-unknown"
    thief.close()


def test_what_was_said_once_is_not_taken_again(pair, network):
    a, b = pair
    key = filled(a, b)
    _, step = offer(a, D, b, D, everything(key))
    take(a, D, b, D, step, everything(key))
    asks = network.seen[2::2]  # each is followed by its answer; the first opens the session
    assert len(asks) > 1
    for body in asks:
        with pytest.raises(transfer_source.Denied, match="transfer-session"):
            a.desk.answer(body)
    with pytest.raises(transfer_source.Denied, match="transfer-malformed"):
        a.desk.answer(secrets.token_bytes(80))


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


def test_pinned_blocks_are_neither_moved_nor_offered(pair):
    a, b = pair
    key = filled(a, b)
    kept = next(r for r in a.pool.runs.values() if D in r.copies)
    policy = a.pool.budget.policies[key.ns]._replace(pins=(Pin(a.now + 60, frozenset([kept.keys[:32]])),))
    a.relief.learn({key.ns: policy})
    done, step = offer(a, D, b, D, everything(key))
    assert done.detail["pinned"] == kept.blocks
    assert kept.meta.version not in a.desk.offers.open[step].held
    done, _ = a.obey("move", D, everything(key), to_tier="ssd")
    assert done.detail["pinned"] == kept.blocks
    assert D in kept.copies
    a.relief.expire(a.now + 61)
    a.desk.upkeep(a.now + 601)
    done, _ = a.obey("move", D, everything(key), to_tier="ssd")
    assert (done.outcome, D in kept.copies) == ("done", False)


def test_a_copy_in_use_is_waited_for(pair):
    a, b = pair
    key = filled(a, b)
    _, step = offer(a, D, b, D, everything(key))
    take(a, D, b, D, step, everything(key))
    run = next(r for r in a.pool.runs.values() if D in r.copies)
    run.copies[D].acquire()
    done = release(a, D, step, everything(key))
    assert (done.outcome, done.code, done.detail["leased"]) == ("partial", "blocks-leased", run.blocks)
    run.copies[D].release()
    assert release(a, D, step, everything(key)).outcome == "done"
    assert release(a, D, step, everything(key)).code == "offer-unknown"
    check(a)


def test_an_offer_whose_time_is_over_holds_nothing(pair):
    a, b = pair
    key = filled(a, b)
    _, step = offer(a, D, b, D, everything(key))
    assert {r.copies[D].state for r in a.pool.runs.values() if D in r.copies} == {BlockState.REFERENCED}
    a.desk.upkeep(a.now + 601)
    assert {r.copies[D].state for r in a.pool.runs.values() if D in r.copies} == {BlockState.COMMITTED}
    assert take(a, D, b, D, step, everything(key))[0].code == "offer-unknown"
    check(a)


def test_two_offers_never_hold_the_same_copy(pair):
    a, b = pair
    key = filled(a, b)
    first, _ = offer(a, D, b, D, everything(key), most_bytes=10 * 1104)
    second, _ = offer(a, D, b, S, everything(key))
    assert 0 < first.detail["blocks"] <= 10
    assert first.detail["blocks"] + second.detail["blocks"] == len(a.all(D))


def test_a_rate_is_kept_to(pair, monkeypatch):
    monkeypatch.setattr(transfer_target, "WINDOW_BYTES", 4 * 1104)
    a, b = pair
    key = filled(a, b)
    size = len(a.all(D)) * 1104
    _, step = offer(a, D, b, D, everything(key))
    began = time.monotonic()
    done, _ = take(a, D, b, D, step, everything(key), rate_bytes_per_s=size * 4)
    took = time.monotonic() - began
    assert done.outcome == "done"
    assert took > 0.2  # a quarter of a second, less the last window


def test_no_more_is_in_flight_than_was_granted(tmp_path, network, monkeypatch):
    monkeypatch.setattr(transfer_target, "WINDOW_BYTES", 8 * 1104)
    b = Node(tmp_path / "b", {**TIERS, "dram": blocks(2000)}, network, "b", 9)
    sources = [Node(tmp_path / n, TIERS, network, n, i) for i, n in enumerate("cde")]
    b.desk.credits.most_bytes = 12 * 1104
    done = []

    def one(source):
        key = filled(source, b)
        _, step = offer(source, D, b, D, everything(key))
        done.append(take(source, D, b, D, step, everything(key)))

    threads = [threading.Thread(target=one, args=(source,)) for source in sources]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {d.outcome for d, _ in done} == {"done"}
    assert 0 < b.desk.credits.peak <= 12 * 1104
    assert b.desk.credits.in_flight == 0
    check(b)
    for node in (b, *sources):
        node.close()
