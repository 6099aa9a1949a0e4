import pytest

from kvcore.events import Use
from kvcore.keys import chain_keys, unpack
from nodeagent.engines.reference import CHAINS_KEPT, Keystream, describe, hash_tokens
from tests.nodeagent.rig import Rig, blocks


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path, {"hbm": blocks(200), "dram": blocks(200)})
    yield rig
    rig.close()


def test_tokens_of_a_hash_id_are_the_same_everywhere():
    tokens = hash_tokens(7, 512, 0)
    assert len(tokens) == 2048
    assert hash_tokens(7, 100, 0) == tokens[:400]
    assert len({tokens, hash_tokens(8, 512, 0), hash_tokens(7, 512, 1), hash_tokens(-7, 512, 0)}) == 4
    assert tokens[:8].hex() == hash_tokens(7, 2, 0).hex()
    assert hash_tokens(1, 0, 0) == b""


def test_content_depends_on_key_and_generation():
    one, other = Keystream(b"a" * 32, 1024), Keystream(b"b" * 32, 1024)
    key = bytes(range(32))
    assert one.content(key) == one.content(key)
    assert len(one.content(key)) == 1024
    assert one.content(key) not in (one.content(key[::-1]), other.content(key), bytes(1024))


def test_keys_are_the_chain_of_the_tokens(rig):
    key = rig.lease()
    rig.ask(key, [1, 2, 3], tokens=150)
    tokens = b"".join(hash_tokens(i, 64, 0) for i in (1, 2, 3))[: 4 * 144]
    want = chain_keys(tokens, block_tokens=16, blk=key.blk)
    have = [k for r in sorted(rig.pool.runs.values(), key=lambda r: r.depth) for k in unpack(r.keys)]
    assert have == want


def test_chains_that_are_remembered_are_bounded(rig, monkeypatch):
    monkeypatch.setattr("nodeagent.engines.reference.CHAINS_KEPT", 4)
    key = rig.lease()
    for i in range(10):
        rig.ask(key, [i])
    assert len(rig.engine._chains) == 4
    assert CHAINS_KEPT > 4


def test_a_use_tells_tokens_by_tier_and_what_was_saved(rig):
    key = rig.lease()
    rig.ask(key, [1, 2])
    result = rig.ask(key, [1, 2, 3], tokens=190)
    first, use = rig.items(Use)
    assert (first.head, first.hit_tokens, first.saved_ms, first.measured) == (None, 0, 0.0, False)
    assert (use.hit_tokens, use.tiers, use.prompt_tokens, use.measured) == (128, {"hbm": 128}, 190, False)
    curve = rig.pool.policy.curve
    assert use.saved_ms == pytest.approx(curve.ms(128))
    assert result.ttft_ms == pytest.approx(curve.ms(190) - curve.ms(128))
    assert use.head in rig.pool.index


def test_loading_from_below_costs_time(rig):
    from kvcore.blocks import Tier

    key = rig.lease()
    rig.ask(key, [1])
    (run,) = rig.pool.runs.values()
    rig.relief.evict(Tier.HBM, [(run, run.copies[Tier.HBM])], rig.now)
    result = rig.ask(key, [1])
    assert result.tiers == {"dram": 64}
    assert 0 < result.saved_ms < rig.pool.policy.curve.ms(64)


def test_a_block_behind_a_hole_is_not_stored_twice(rig):
    key = rig.lease()
    rig.ask(key, list(range(24)))  # 96 blocks, three runs
    middle = next(r for r in rig.pool.runs.values() if r.depth == 32)
    from kvcore.blocks import Tier

    rig.pool.drop(middle, Tier.HBM, "ttl")
    result = rig.ask(key, list(range(24)))
    assert result.hit_tokens == 512
    assert rig.pool.tiers[Tier.HBM].used_bytes == 96 * 1104
    assert rig.ask(key, list(range(24))).hit_tokens == 96 * 16


def test_it_says_that_time_and_hbm_are_emulated(rig):
    assert rig.engine.describe() == describe()
    assert describe()["capabilities"]["emulated"] == ["hbm", "time"]
