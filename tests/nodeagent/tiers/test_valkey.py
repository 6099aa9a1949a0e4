import pytest
import valkey

from kvcore.blocks import Tier
from nodeagent.tiers.base import BlockRefused, TierDown, TierFull, TierReset
from nodeagent.tiers.objects import KeyFile
from nodeagent.tiers.valkey import ValkeyTier
from tests.nodeagent.tiers.conftest import CAPACITY, enc, run


def test_a_restart_of_the_server_is_a_reset(again, store):
    tier = again(Tier.REMOTE)
    meta, raw = run(2)
    (place,) = tier.write([(meta, raw)])
    boot = tier.boot
    store.stop()
    with pytest.raises(TierDown):
        tier.read(meta, place)
    store.start()
    with pytest.raises(TierReset) as reset:
        tier.write([run(2)])
    assert reset.value.boot != boot
    tier.adopt(reset.value.boot)
    assert tier.used_bytes == 0
    with pytest.raises(BlockRefused):
        tier.read(meta, place)
    assert len(tier._keys.names()) == 1  # the refused write left no value behind, the lost object's is destroyed later


def test_nodes_share_a_server_without_seeing_each_other(again, store, tmp_path):
    one = again(Tier.REMOTE)
    one.write([run(2)])
    two = ValkeyTier(store.url, node="another", capacity_bytes=CAPACITY, keys=KeyFile(tmp_path / "k2"), enc_key=enc)
    two.adopt(one.boot)
    assert list(two.stored()) == []
    two.close()


def test_what_cannot_be_opened_is_deleted_when_it_is_listed(again, store):
    tier = again(Tier.REMOTE)
    runs = [run(2), run(2)]
    places = tier.write(runs)
    tier._keys.destroy([places[0]])
    client = valkey.Valkey.from_url(store.url)
    client.set(tier._prefix + b"0123456789abcdef", b"nonsense")
    found = list(again(Tier.REMOTE).stored())
    assert [x.place for x in found] == [places[1]]
    assert client.exists(tier._prefix + places[0]) == 0
    client.close()


def test_a_server_that_refuses_is_a_full_tier(again, store):
    tier = again(Tier.REMOTE)
    client = valkey.Valkey.from_url(store.url)
    client.config_set("maxmemory", "1")
    try:
        with pytest.raises(TierFull):
            tier.write([run(8)])
    finally:
        client.config_set("maxmemory", "0")
    client.close()
    assert tier._keys.names() == set()


def test_nobody_there(tmp_path):
    tier = ValkeyTier(
        "redis://127.0.0.1:1", node="n", capacity_bytes=CAPACITY, keys=KeyFile(tmp_path / "k"), enc_key=enc
    )
    with pytest.raises(TierDown):
        tier.probe()
    with pytest.raises(TierDown):
        list(tier.stored())
    tier.close()
