"""What the console says itself: nodes that are lost."""

import pytest

from kvcore.events import Refused
from tests.catalog.ingest.rig import Sim, add


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


def test_a_dead_listener_is_lost_though_its_node_lives(rig, sim, ns):
    """An agent and a listener share the node: the heartbeats of one say nothing about the other."""
    listener = Sim(sim.node, "vllm")
    rig.send(sim.node, sim.frame(add(ns, 1)))
    rig.send(sim.node, listener.frame(add(ns, 2), add(ns, 3, tier="dram")))
    for _ in range(5):
        rig.send(sim.node, sim.beat(), step=0.9)
    assert rig.state(sim.node, "vllm") == ("exact", "")
    rig.send(sim.node, sim.beat(), step=0.9)
    assert rig.state(sim.node, "vllm") == ("recovering", "silent")
    assert rig.holdings(sim.node, "vllm") == listener.sums()  # doubted, and still there
    for _ in range(6):
        rig.send(sim.node, sim.beat(), step=0.9)
    assert rig.state(sim.node, "vllm") == ("lost", "silent")
    assert rig.holdings(sim.node, "vllm") == {}
    assert rig.state(sim.node) == ("exact", "")
    assert rig.holdings(sim.node) == sim.sums()
    assert not rig.send(sim.node, sim.beat()).inventory  # the others are not asked to list
    answer = rig.send(sim.node, listener.frame(add(ns, 4)))
    assert (answer.state, answer.inventory) == ("gap", True)
    assert rig.holdings(sim.node, "vllm") == {}
    rig.send(sim.node, listener.inventory()[0])
    assert rig.state(sim.node, "vllm") == ("exact", "")
    assert rig.holdings(sim.node, "vllm") == listener.sums()


def test_a_short_silence_costs_no_inventory(rig, sim, ns):
    other = Sim(sim.node, "other")
    rig.send(sim.node, sim.frame(add(ns, 1)))
    for _ in range(7):
        rig.batch((sim.node, other.beat()), step=0.9)
    assert rig.state(sim.node) == ("recovering", "silent")
    assert not rig.send(sim.node, sim.beat()).inventory
    assert rig.state(sim.node) == ("exact", "")
    assert rig.holdings(sim.node) == sim.sums()


def test_a_new_writer_counts_silence_from_its_own_start(rig, sim, ns):
    """While nobody listened nobody was silent: the map stays, and who does not return leaves ten seconds later."""
    gone = Sim(sim.node, "gone")
    rig.send(sim.node, sim.frame(add(ns, 1)))
    rig.send(sim.node, gone.frame(add(ns, 2)))
    rig.writer.close()
    rig.now += 300.0
    rig.open()
    rig.send(sim.node, sim.beat(), step=2.0)
    assert (rig.state(sim.node), rig.state(sim.node, "gone")) == (("exact", ""), ("exact", ""))
    assert rig.holdings(sim.node, "gone") == gone.sums()
    for _ in range(9):
        rig.send(sim.node, sim.beat(), step=1.0)
    assert rig.state(sim.node) == ("exact", "")
    assert rig.state(sim.node, "gone") == ("lost", "silent")


def test_who_speaks_in_the_batch_is_not_silent(rig, sim, ns):
    """However long the batch before took: what waits to be folded was sent in time."""
    rig.send(sim.node, sim.frame(add(ns, 1)))
    for _ in range(4):
        rig.tick(2.4)
    assert rig.send(sim.node, sim.frame(add(ns, 2)), step=0.9).state == "next"
    assert rig.state(sim.node) == ("exact", "")
