import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.blocks import BlockState, IllegalTransition, Tier
from kvcore.keys import digest_add, unpack
from nodeagent.runs import Copy, Run, Space
from nodeagent.tiers.base import RunMeta


def space():
    return Space(bytes(32), 1, 0, block_tokens=16, block_bytes=1024)


def run(keys, depth=0, of=None):
    of = of or space()
    return Run(of, RunMeta(of.ns, of.gen, 0, depth, None, keys, 1, 16, 1024), now=0.0)


@given(st.integers(0, 5), st.integers(1, 40), st.integers(0, 45), st.integers(0, 3), st.integers(0, 4))
def test_how_far_a_chain_agrees(depth, length, same, base, start):
    """Against comparing key by key."""
    made = run(secrets.token_bytes(32 * length), depth + base)
    start = min(start, length - 1)
    own = unpack(made.keys)
    agree = min(max(same, start + 1), length)
    chain = [secrets.token_bytes(32) for _ in range(depth)] + list(own[:agree]) + [secrets.token_bytes(32)] * 3
    assert made.agrees(b"".join(chain), depth + start, base) == agree - start


def test_totals_are_digests():
    of = space()
    runs = [run(secrets.token_bytes(32 * n), of=of) for n in (1, 5, 32)]
    for r in runs:
        of.count(Tier.HBM, r, +1)
    total = (0, 0, 0)
    for r in runs:
        for key in unpack(r.keys):
            total = digest_add(total, key)
    assert of.totals == {Tier.HBM: total}
    for r in runs:
        of.count(Tier.HBM, r, -1)
    assert of.totals == {}


def test_a_copy_follows_the_one_table_of_transitions():
    copy = Copy(0.0)
    assert copy.state is BlockState.ALLOCATED
    with pytest.raises(IllegalTransition):
        copy.to(BlockState.EVICTING)
    copy.to(BlockState.COMMITTED)
    copy.acquire()
    copy.acquire()
    copy.release()
    assert copy.state is BlockState.REFERENCED
    with pytest.raises(IllegalTransition):
        copy.to(BlockState.EVICTING)
    copy.release()
    assert copy.state is BlockState.COMMITTED
    copy.acquire()
    copy.to(BlockState.FREE, told=True)  # lost while it was held
    copy.release()
    assert copy.state is BlockState.FREE
