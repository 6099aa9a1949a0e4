"""The remote store is a source of its own: its loss is its reset and nobody else's."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvconsole.embedded import Valkey
from kvcore.blocks import Tier
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
