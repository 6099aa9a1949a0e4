"""Nodes: heard, declared, counted."""

import pytest

from catalog.ingest.nodes import can_list, ranks
from tests.catalog.ingest.rig import add


def test_heartbeats_keep_a_node(rig, sim, ns):
    rig.send(sim.node, sim.frame(add(ns, 1)))
    for _ in range(30):
        assert rig.send(sim.node, sim.beat(), step=0.5).state == "ok"
    assert rig.state(sim.node) == ("exact", "")
    heard = rig.rows("SELECT extract(epoch FROM last_heard_at) FROM catalog_node WHERE id = %s", sim.node)[0][0]
    assert float(heard) == pytest.approx(rig.now, abs=1.5)


@pytest.mark.parametrize(
    ("engine", "lists", "count"),
    [
        ({}, True, 0),
        (None, True, 0),
        ({"capabilities": {"inventory": True}}, True, 0),
        ({"capabilities": {"inventory": False, "dp_size": 4}}, False, 4),
        ({"capabilities": ["digest"]}, False, 0),
        ({"dp_size": 1}, True, 1),
        ({"dp_size": True}, True, 0),
        ({"dp_size": -1}, True, 0),
        ({"capabilities": ["inventory"], "dp_size": 2}, True, 2),
        ({"dp_size": "many"}, True, 0),
    ],
)
def test_what_an_engine_declared(engine, lists, count):
    assert (can_list(engine), ranks(engine)) == (lists, count)
