"""Only an open step moves a block, of its node and for what it means; and what it moved stays so until it is let go."""

import pytest

from kvcore.events import State
from tests.catalog.ingest.rig import add, keys
from tests.routing.moving import Mover
from tests.routing.test_replica import depths, hand

__all__ = ["hand"]
pytestmark = pytest.mark.django_db(transaction=True)


def test_only_the_open_step_moves_a_block(planted, rig, hand):
    mover = Mover(planted, rig, blocks=6)
    a, b, c = mover.sims
    follower = hand()
    said = {"from_owner": 100, "step": mover.steps[0, 1]}

    def place(number):
        return {node for node, _ in depths(follower.turn(), mover.ns, [number])}

    answer = rig.send(c.node, c.frame(add(mover.ns, 3, **said)))  # another node's step
    assert [r.code for r in answer.rejected] == ["step-unknown"]
    answer = rig.send(b.node, b.frame(add(mover.ns, 3, **said | {"from_owner": 102})))
    assert [r.code for r in answer.rejected] == ["foreign-owner"]
    answer = rig.send(b.node, b.frame(add(mover.ns, 3, gen=2, **said)))  # of a generation that nobody ordered
    assert [r.code for r in answer.rejected] == ["step-unknown"]
    assert place(3) == {a.node}
    assert rig.send(b.node, b.frame(add(mover.ns, 3, **said))).rejected == []
    assert place(3) == {b.node}
    assert rig.holdings(a.node) == a.sums()  # still held, and in its digest
    assert rig.send(a.node, a.digest()).state == "equal"
    rig.send(a.node, a.frame(add(mover.ns, 3)))
    assert place(3) == {b.node}
    rig.send(a.node, a.frame(State(ns=mover.ns, gen=1, keys=keys(3), tier="hbm", state="committed")))
    assert place(3) == {a.node, b.node}  # it was let go, and is the source's own again
    planted.execute("UPDATE catalog_step SET state = 'cancelled'")
    rig.now += 6
    answer = rig.send(b.node, b.frame(add(mover.ns, 6, **said)))
    assert [r.code for r in answer.rejected] == ["foreign-owner"]
    assert place(6) == {a.node}
