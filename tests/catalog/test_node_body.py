"""What is said of a node is said alike wherever it is said."""

from catalog.api_v1 import NodeOut
from catalog.map_api import NodeTileOut
from catalog.node_body import NodeFacts


def test_the_list_and_the_tiles_say_the_same_of_a_node_and_each_its_own_of_tiers():
    shared = set(NodeFacts().fields)
    assert len(shared) == 13
    for body in (NodeOut, NodeTileOut):
        assert issubclass(body, NodeFacts)
    assert set(NodeOut().fields) & set(NodeTileOut().fields) == shared | {"tiers"}
