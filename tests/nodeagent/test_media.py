"""The remote store is a source of its own: its loss is its reset and nobody else's."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvconsole.embedded import Valkey
from kvcore.blocks import Tier
from kvcore.events import decode_item
from kvcore.messages import Fence
from nodeagent.config import Home
from nodeagent.keys import KeyRing
from nodeagent.media import Media
from tests.nodeagent.conftest import config
from tests.nodeagent.farside import pool_holds
from tests.nodeagent.rig import Rig, blocks

TIERS = {"hbm": blocks(40), "ssd": blocks(40), "remote": blocks(200)}


@pytest.fixture(scope="module")
def store(service_base: Path) -> Iterator[Valkey]:
    server = Valkey(service_base / "remote-media", persist=False, test=True)
    server.start()
    yield server
    server.remove()


@pytest.fixture
def rig(tmp_path, store):
    rig = Rig(tmp_path, TIERS, remote_url=store.url, node=secrets.token_hex(6))
    yield rig
    rig.close()


def fill(rig, rounds=30):
    key = rig.lease()
    for i in range(rounds):
        rig.ask(key, [i, 1000 + i])
        rig.ask(key, [i, 1000 + i])
        rig.settle()
    return key


def agree(rig):
    for source in ("reference", "remote"):
        assert rig.folded(source) == pool_holds(rig.pool, source)
    assert rig.bad == []


def test_what_goes_to_the_remote_store_is_told_by_its_own_source(rig):
    fill(rig)
    assert pool_holds(rig.pool, "remote")
    agree(rig)
    assert rig.media.outboxes[1].boot == rig.media.remote.boot != "boot-1"


def test_a_hit_in_the_remote_store_is_promoted(rig):
    key = fill(rig)
    run = next(r for r in rig.pool.runs.values() if list(r.copies) == [Tier.REMOTE] and not r.depth)
    assert rig.pool.use(run, rig.now) is Tier.REMOTE
    rig.pool.teller.flush()
    assert Tier.HBM in run.copies
    agree(rig)
    assert key


def test_losing_the_store_resets_its_source_only(rig, store):
    fill(rig)
    rig.drain()
    before = pool_holds(rig.pool, "reference")
    box = rig.media.outboxes[1]
    boot, stream = box.boot, box.stream
    store.stop()
    store.start()
    assert rig.media.probe(rig.now)
    assert box.boot != boot
    assert box.stream != stream
    assert box.lanes[0].seq == -1
    assert pool_holds(rig.pool, "remote") == set()
    assert pool_holds(rig.pool, "reference") == before
    rig.places["remote"].clear()  # what a reset does at the console
    agree(rig)
    fill(rig, 10)
    agree(rig)
    held = {c.place for r in rig.pool.runs.values() for t, c in r.copies.items() if t is not Tier.HBM}
    assert rig.media.keys.names() == held  # values of lost objects are destroyed


def test_a_store_that_does_not_answer_holds_up_nothing(rig, store):
    key = fill(rig)
    run = next(r for r in rig.pool.runs.values() if list(r.copies) == [Tier.REMOTE])
    store.stop()
    try:
        assert rig.pool.use(run, rig.now) is None
        assert not rig.pool.up(Tier.REMOTE, rig.now)
        assert Tier.REMOTE in run.copies
        for i in range(20):
            assert rig.ask(key, [5000 + i]).code == ""
            rig.settle()
        assert not rig.media.probe(rig.now)
        assert [m.tier for m in rig.pool.marks("remote")] == []
    finally:
        store.start()
    rig.now += 10
    assert rig.media.probe(rig.now)
    rig.places["remote"].clear()
    agree(rig)


def test_a_new_agent_finds_ssd_and_remote_again(rig, store, tmp_path):
    fill(rig)
    held = {s: pool_holds(rig.pool, s) for s in ("reference", "remote")}
    (tmp_path / "ssd" / ("00" * 16 + ".kvo")).write_bytes(b"orphan")
    again = Media(Home(tmp_path), rig.config, KeyRing(), boot="boot-2")
    again.open(rig.now)
    assert pool_holds(again.pool, "remote") == held["remote"]
    assert pool_holds(again.pool, "reference") == {x for x in held["reference"] if x[0] == "ssd"}
    assert again.outboxes[1].boot == rig.media.outboxes[1].boot
    assert again.outboxes[1].stream != rig.media.outboxes[1].stream
    again.close()


def test_without_a_remote_store_there_is_one_source(tmp_path):
    media = Media(Home(tmp_path), config({"hbm": blocks(4)}), KeyRing(), boot="b")
    media.open(1.0)
    assert [b.source for b in media.outboxes] == ["reference"]
    assert media.probe(1.0) is False
    media.close()


def test_a_store_that_is_away_at_the_start_is_met_later(tmp_path, store):
    store.stop()
    try:
        rig = Rig(tmp_path, TIERS, remote_url=store.url, node=secrets.token_hex(6))
        assert rig.media.outboxes[1].boot == ""
        fill(rig, 5)
    finally:
        store.start()
    rig.now += 10
    assert rig.media.probe(rig.now)
    assert rig.media.outboxes[1].boot
    fill(rig)
    assert pool_holds(rig.pool, "remote")
    agree(rig)
    rig.close()


def test_what_is_fenced_by_the_time_it_is_found_again_is_erased_and_never_told(tmp_path):
    tiers = {"hbm": blocks(20), "ssd": blocks(200)}
    rig = Rig(tmp_path, tiers)
    old, other = rig.lease(), rig.lease()
    for key in (old, other):
        for i in range(12):
            rig.ask(key, [i])
            rig.ask(key, [i])
            rig.settle()
    lost = [r.copies[Tier.SSD].place for r in rig.pool.runs.values() if Tier.SSD in r.copies and r.space.ns == old.ns]
    kept = {x for x in pool_holds(rig.pool, "reference") if x[0] == "ssd" and x[1] == other.ns}
    assert lost
    assert kept
    values = [rig.media.keys.value(place) for place in lost]
    rig.close()
    again = Media(Home(tmp_path), rig.config, KeyRing(known=[Fence(ns=old.ns, min_gen=2)]), boot="boot-2")
    assert not again.opened
    again.open(rig.now)
    assert pool_holds(again.pool, "reference") == kept
    assert again.pool.cleared[Tier.SSD] == sum(1 for _ in lost) * 4
    items = [decode_item(raw) for lane in again.outboxes[0].lanes for raw in lane.pending]
    assert {i.ns for i in items} == {other.ns}
    assert not [p for p in lost if (tmp_path / "ssd" / f"{p.hex()}.kvo").exists()]
    raw = (tmp_path / "objects.keys").read_bytes()
    assert not [v for v in values if v in raw]
    again.close()


def test_the_remote_store_is_met_only_after_the_console_was_heard(tmp_path, store):
    config_ = config(TIERS, remote_url=store.url, node=secrets.token_hex(6))
    made = Media(Home(tmp_path), config_, KeyRing(), boot="boot-1")
    assert not made.probe(0.0)
    assert (made.remote.boot, made.opened) == ("", False)
    made.open(0.0)
    assert (made.remote.boot != "", made.opened) == (True, True)
    assert made.probe(0.0)
    made.close()
