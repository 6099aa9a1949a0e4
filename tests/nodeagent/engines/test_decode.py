import pytest

from kvcore.blocks import BlockState
from kvcore.events import Add
from kvcore.keys import chain_keys, unpack
from nodeagent.engines.reference import hash_tokens
from tests.nodeagent.rig import Rig, blocks


def paced(tmp_path, tpot_ms):
    return Rig(tmp_path, {"hbm": blocks(200)}, tpot_ms=tpot_ms)


def added(rig):
    return [len(i.keys) // 32 for i in rig.items(Add)]


def test_without_a_pace_decode_is_done_at_once(tmp_path):
    rig = paced(tmp_path, 0.0)
    rig.ask(rig.lease(), [1], tokens=64, output=100)
    assert rig.engine.running == 0
    assert added(rig) == [10]  # one chain: prompt and output in one item
    rig.close()


def test_the_last_part_of_the_prompt_is_the_first_of_the_output(tmp_path):
    rig = paced(tmp_path, 0.0)
    key = rig.lease()
    rig.ask(key, [1, 2, 3], tokens=42, output=6, size=15)
    prompt = b"".join(hash_tokens(i, 15, 0) for i in (1, 2, 3))[: 4 * 42]
    have = [k for r in sorted(rig.pool.runs.values(), key=lambda r: r.depth) for k in unpack(r.keys)]
    assert have[:2] == chain_keys(prompt, block_tokens=16, blk=key.blk)
    assert len(have) == 3
    rig.close()


def test_slow_blocks_come_after_two_seconds(tmp_path):
    rig = paced(tmp_path, 100.0)  # a block in 1.6 s
    rig.ask(rig.lease(), [1], output=160)
    before = len(added(rig))
    steps = []
    for _ in range(60):
        rig.now += 0.1
        rig.engine.tick(rig.now)
        steps.append(sum(added(rig)[before:]))
    assert steps[15] == 0  # the first block has come and is held back
    assert steps[-1] > 0
    rig.close()


def test_the_prompt_is_held_until_the_end(tmp_path):
    rig = paced(tmp_path, 10.0)
    rig.ask(rig.lease(), [1], output=64)
    (run,) = rig.pool.runs.values()
    (copy,) = run.copies.values()
    assert copy.state is BlockState.REFERENCED
    rig.now += 10
    rig.engine.tick(rig.now)
    assert copy.state is BlockState.COMMITTED
    assert rig.engine._held_bytes == 0
    rig.close()


@pytest.mark.parametrize("output", [0, 64])
def test_a_lease_that_ends_ends_decoding(tmp_path, output):
    rig = paced(tmp_path, 100_000.0)
    rig.ask(rig.lease(), [1], output=output)
    rig.now += 301
    rig.engine.tick(rig.now)
    assert rig.engine.running == 0
    assert rig.engine._held_bytes == 0
    rig.close()
