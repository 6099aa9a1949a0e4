"""A prepared fleet: who is in, and estimates that are never nothing. What it decides is in test_scoring."""

import pytest

from kvcore.cards import NOTHING_LEARNED, Edge, Learned
from kvcore.fleets import prepare, rendezvous, wires_of
from kvcore.policies import built_in
from tests.kvcore.workers import worker


def test_roles() -> None:
    fleet = prepare(
        [worker("p", role="prefill"), worker("b"), worker("d", 1.0, role="decode", decode_queue_ms=3.0),
         worker("e", role="decode", decode_queue_ms=1.0)], {}, built_in(), NOTHING_LEARNED,
    )  # fmt: skip
    assert [r.node for r in fleet.rows] == ["p", "b"]
    assert [d.node for d in fleet.decoders] == ["e", "d"]
    assert fleet.dedicated
    assert fleet.rows[0].own_decode is None
    assert fleet.rows[1].own_decode == 10.0
    mixed = prepare([worker("p", role="prefill"), worker("b")], {}, built_in(), NOTHING_LEARNED)
    assert [d.node for d in mixed.decoders] == ["b"]
    assert not mixed.dedicated


def test_the_fleet_knows_its_edges() -> None:
    edges = {"a": {"b": Edge(10.0, 3.0), "c": Edge(30.0, 1.0)}, "b": {"a": Edge(50.0, 2.0)}}
    fleet = prepare([worker("a")], edges, built_in(), NOTHING_LEARNED)
    assert (fleet.edge, fleet.fastest, fleet.quickest) == (Edge(30.0, 2.0, "unknown"), 50.0, 1.0)
    kept = prepare([worker("a")], edges, built_in(), NOTHING_LEARNED, wires_of(edges))
    assert (kept.edge, kept.fastest, kept.quickest) == (fleet.edge, fleet.fastest, fleet.quickest)
    bare = prepare([worker("a")], {}, built_in(), NOTHING_LEARNED)
    assert bare.edge == Edge(1_250_000.0, 2.0, "unknown")


def test_factors_of_the_wrong_length_are_not_used() -> None:
    plain = prepare([worker("a", 5.0)], {}, built_in(), NOTHING_LEARNED).rows[0]
    assert prepare([worker("a", 5.0)], {}, built_in(), Learned({"a": (2.0, 2.0)}, 1)).rows[0] == plain


def test_other_kinds_estimate_alike() -> None:
    fleet = prepare([worker("a", None)], {}, built_in("random"), NOTHING_LEARNED)
    assert (fleet.rows[0].queue, fleet.rows[0].unknown_p) == (200.0, ("queue_p",))


@pytest.mark.parametrize("affinity", [0, 1, 2**61 + 5])
def test_the_rendezvous_is_a_number_below_2_30(affinity: int) -> None:
    found = {rendezvous(tie, affinity) for tie in range(1_000)}
    assert len(found) == 1_000
    assert max(found) < 2**30
