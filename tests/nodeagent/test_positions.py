"""A receipt's position is behind everything that was told of what it names."""

from nodeagent.positions import position
from tests.nodeagent.moving import D, H, filled, network, pair

__all__ = ["network", "pair"]


def test_what_was_gathered_is_numbered_and_the_position_is_behind_it(pair):
    a, b = pair
    key = filled(a, b)
    before = position(a.pool, H, [key.ns])
    a.ask(key, [999])
    after = position(a.pool, D, [key.ns])
    assert (after.boot, after.stream) == (before.boot, before.stream) == ("boot-1", a.pool.outboxes[H].stream)
    assert after.seq == before.seq + 1
    assert position(a.pool, D, []) == after
