"""What the console says itself: nodes that are lost."""

import pytest

from kvcore.events import Refused
from tests.catalog.ingest.rig import add


def test_a_silent_node_is_lost_and_lists_when_it_returns(rig, sim, ns):
    rig.send(sim.node, sim.frame(add(ns, 1), add(ns, 2, tier="dram")))
    for _ in range(4):
        rig.tick(2.9)
    assert rig.state(sim.node) == ("lost", "silent")
    assert rig.holdings(sim.node) == {}
    answer = rig.send(sim.node, sim.frame(add(ns, 3)))
    assert (answer.state, answer.inventory) == ("gap", True)
    assert rig.state(sim.node) == ("lost", "silent")
    rig.send(sim.node, sim.inventory()[0])
    assert rig.state(sim.node) == ("exact", "")
    assert rig.holdings(sim.node) == sim.sums()
    assert rig.send(sim.node, sim.frame(add(ns, 4))).state == "next"


def test_a_node_the_table_calls_lost_or_fenced_leaves(rig, sim, ns, planted):
    rig.send(sim.node, sim.frame(add(ns, 1)))
    planted.execute("UPDATE catalog_node SET state = 'lost' WHERE id = %s", (sim.node,))
    rig.tick(0.6)
    assert rig.state(sim.node) == ("lost", "lost")
    rig.send(sim.node, sim.inventory()[0])
    rig.tick(0.6)
    assert rig.state(sim.node) == ("exact", "")
    planted.execute("UPDATE catalog_node SET state = 'fenced' WHERE id = %s", (sim.node,))
    rig.tick(0.6)
    assert rig.state(sim.node) == ("lost", "fenced")
    with pytest.raises(Refused, match="node-fenced"):
        rig.send(sim.node, sim.inventory()[0])


def test_a_writer_that_stood_still_accuses_nobody(rig, sim, ns):
    rig.send(sim.node, sim.frame(add(ns, 1)))
    rig.tick(60.0)
    assert rig.state(sim.node) == ("exact", "")
    for _ in range(4):
        rig.tick(2.9)
    assert rig.state(sim.node) == ("lost", "silent")
