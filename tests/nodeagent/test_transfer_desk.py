"""Blocks go from one node to another: offered, taken, announced by the destination, released."""

import pytest

from kvcore.events import Add, Drop
from kvcore.keys import unpack
from nodeagent.tiers.base import HEADER_BYTES
from tests.nodeagent.moving import D, S, filled, network, offer, pair, release, take
from tests.nodeagent.ordering import canaries, everything
from tests.nodeagent.test_pool import check

__all__ = ["network", "pair"]


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
