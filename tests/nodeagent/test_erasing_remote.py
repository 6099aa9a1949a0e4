"""An ordered erase in a remote store: every copy under the node's prefix, of whichever life, asked for again."""

import secrets

import pytest
import valkey

from kvconsole.embedded import Valkey
from kvcore.blocks import Tier
from nodeagent import erasing
from tests.nodeagent.farside import pool_holds
from tests.nodeagent.ordering import Ordered, everything, fill
from tests.nodeagent.rig import blocks


@pytest.fixture(scope="module")
def store(service_base):
    server = Valkey(service_base / "remote-erasing", persist=False, test=True)
    server.start()
    yield server
    server.remove()


@pytest.fixture
def far(tmp_path, store, monkeypatch):
    """A rig with a remote store; everything of it is reached by the tests' own client, too."""
    monkeypatch.setattr(erasing, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(erasing, "DOWN_SECONDS", 0.02)
    rig = Ordered(tmp_path, {"hbm": blocks(20), "remote": blocks(400)}, remote_url=store.url, node=secrets.token_hex(6))
    rig.client = valkey.Valkey.from_url(store.url)
    yield rig
    rig.close()
    rig.client.close()


def objects(rig):
    prefix = f"kvc:{rig.config.node}:".encode()
    return {k[len(prefix) :]: rig.client.get(k) for k in rig.client.scan_iter(match=prefix + b"*")}


def test_every_copy_in_a_remote_store_goes_also_those_of_earlier_lives(far):
    mine, other = fill(far, [far.lease(), far.lease()])
    places = {r.copies[Tier.REMOTE].place: r.space.ns for r in far.pool.runs.values() if Tier.REMOTE in r.copies}
    blobs = objects(far)
    assert set(places) == set(blobs)
    old = next(blobs[p] for p, ns in places.items() if ns == mine.ns)
    kept = next(blobs[p] for p, ns in places.items() if ns == other.ns)
    prefix = f"kvc:{far.config.node}:".encode()
    far.client.set(prefix + bytes(16), old)
    far.client.set(prefix + b"a name that is none of ours", old)
    far.client.set(prefix + b"1" * 16, kept)
    far.client.set(b"kvc:another-node:" + bytes(16), old)
    assert far.verify(Tier.REMOTE, everything(mine)).found_blocks > len(far.keys(Tier.REMOTE, mine.ns))
    had = len(far.keys(Tier.REMOTE, mine.ns))
    done, detail = far.erase(Tier.REMOTE, everything(mine))
    assert (done.outcome, detail.medium.type, detail.class_claimed) == ("done", "remote", 2)
    assert detail.objects == sum(ns == mine.ns for ns in places.values()) + 2
    assert detail.blocks > had
    left = objects(far)
    assert set(left) == {p for p, ns in places.items() if ns == other.ns} | {b"1" * 16}
    assert far.client.get(b"kvc:another-node:" + bytes(16)) == old
    assert far.verify(Tier.REMOTE, everything(mine)).found_blocks == 0
    assert detail.stream_pos.boot == far.media.remote.boot
    for source in ("reference", "remote"):
        assert far.folded(source) == pool_holds(far.pool, source)
    assert far.bad == []
    far.client.delete(b"kvc:another-node:" + bytes(16))


def test_a_store_that_refuses_to_delete_is_not_clean(far):
    (key,) = fill(far, [far.lease()])
    far.client.execute_command("ACL", "SETUSER", "default", "-del")
    try:
        done, detail = far.erase(Tier.REMOTE, everything(key))
    finally:
        far.client.execute_command("ACL", "SETUSER", "default", "+del")
    assert (done.outcome, done.code, detail.class_claimed) == ("failed", "readback-unclean", 0)
    assert detail.readback.clean < detail.readback.sampled
    assert objects(far)
    done, detail = far.erase(Tier.REMOTE, everything(key), step="s2")
    assert done.outcome == "done"
    assert objects(far) == {}


def test_a_store_that_does_not_answer_fails_the_step_and_its_objects_cannot_be_read(far, store):
    (key,) = fill(far, [far.lease()])
    places = [r.copies[Tier.REMOTE].place for r in far.pool.runs.values() if Tier.REMOTE in r.copies]
    values = [far.media.keys.value(p) for p in places]
    store.stop()
    try:
        assert far.do("verify", Tier.REMOTE, everything(key))[:2] == ("failed", "tier-down")
        done, detail = far.erase(Tier.REMOTE, everything(key))
        assert (done.outcome, done.code, detail.class_claimed) == ("failed", "tier-down", 0)
        assert not [v for v in values if v in far.media.key_path.read_bytes()]
        assert far.do("shred", Tier.REMOTE, everything(key), step="s2")[:2] == ("failed", "tier-down")
    finally:
        store.start()
    done, detail = far.erase(Tier.REMOTE, everything(key), step="s3")  # a new life, which holds nothing
    assert (done.outcome, objects(far)) == ("done", {})
    assert detail.stream_pos.boot == far.media.remote.boot


def test_a_new_life_of_the_store_in_the_middle_is_a_reset_and_nothing_of_the_old_one_is_left(far, store):
    (key,) = fill(far, [far.lease()])
    far.drain()
    boot = far.pool.outboxes[Tier.REMOTE].boot
    store.stop()
    store.start()
    done, detail = far.erase(Tier.REMOTE, everything(key))
    assert done.outcome == "done"
    assert detail.stream_pos.boot == far.media.remote.boot != boot
    assert far.keys(Tier.REMOTE, key.ns) == []
    far.places["remote"].clear()  # what a reset does at the console
    assert far.folded("remote") == pool_holds(far.pool, "remote") == set()
