"""Edges, domains and what a lost node takes, against the formulas."""

import random

import pytest

from kvcore.cards import Edge
from kvcore.economics import load_ms, surge, usable_after_loss
from kvcore.topology import (
    Blast,
    Chain,
    Measured,
    Place,
    blast_radius,
    edges,
    mean_scatter,
    place,
    scatter_index,
    shared_level,
    usable_blocks,
)
from tests.kvcore.workers import CURVE, TOKEN

PLACES = [
    Place(node="a", leaf="l1", row="r1", dc="d1", region="eu"),
    Place(node="b", leaf="l1", row="r1", dc="d1", region="eu"),
    Place(node="c", leaf="l2", row="r1", dc="d1", region="eu"),
    Place(node="d", leaf="l1", row="r9", dc="d1", region="eu"),
    Place(node="e"),
]
DECLARED = {"leaf": Edge(50e6, 0.001), "row": Edge(12.5e6, 0.004), "dc": Edge(12.5e6, 0.005)}


def test_the_narrowest_level_that_both_share() -> None:
    a, b, c, d, e = PLACES
    assert [shared_level(a, other) for other in (a, b, c, d, e)] == ["node", "leaf", "row", "dc", None]


def test_declared_edges_have_the_references_times() -> None:
    found = edges(PLACES, DECLARED)
    session = TOKEN * 131_072
    near, far = found["a"]["b"], found["a"]["c"]
    assert round(load_ms(session, near.bytes_per_ms) / 1000, 3) == 0.429
    assert round(load_ms(session, far.bytes_per_ms) / 1000, 3) == 1.718
    assert near.source == "declared"
    assert "e" not in found
    assert all("e" not in to for to in found.values())
    assert "a" not in found["a"]


def test_measured_beats_declared_only_where_it_is_believed() -> None:
    def with_(samples: int, age_ms: float, target: str = "b") -> Edge | None:
        said = [Measured(source="a", target=target, bytes_per_ms=9.0, latency_ms=3.0, samples=samples, age_ms=age_ms)]
        return edges(PLACES, DECLARED, said).get("a", {}).get(target)

    assert with_(8, 0) == Edge(9.0, 3.0, "measured")
    assert with_(7, 0) == Edge(50e6, 0.001, "declared")
    assert with_(8, 600_001) == Edge(50e6, 0.001, "declared")
    # where nothing was declared, a few measurements are better than none
    assert with_(1, 1e9, "e") == Edge(9.0, 3.0, "measured")
    assert with_(9, 0, "stranger") is None
    broken = Measured(source="a", target="b", bytes_per_ms=0.0, latency_ms=0.0, samples=99, age_ms=0)
    assert edges(PLACES, DECLARED, [broken])["a"]["b"].source == "declared"


def test_sessions_stay_together_with_the_policy_and_not_by_chance() -> None:
    nodes = {f"n{i}": f"leaf{i // 4}" for i in range(16)}
    r, kept, blind = random.Random(1), [], []
    free = dict.fromkeys(nodes, 1_000_000)
    for session in range(100):
        home, domains = "", []
        for _ in range(8):
            node = place(nodes, free, 100, domain=home, affinity=session)
            assert node is not None
            home = nodes[node]
            domains.append(home)
            free[node] -= 100
        kept.append(domains)
        blind.append([nodes[r.choice(list(nodes))] for _ in range(8)])
    assert mean_scatter(kept) == 1.0
    assert (mean_scatter(blind) or 0) > 3
    assert scatter_index([]) == 0
    assert mean_scatter([]) is None


def test_where_the_home_is_full_the_next_best_is_taken() -> None:
    nodes = {"a": "x", "b": "x", "c": "y", "d": "y"}
    assert place(nodes, {"a": 5, "b": 50, "c": 100, "d": 100}, 10, domain="x") == "b"
    assert place(nodes, {"a": 5, "b": 5, "c": 100, "d": 90}, 10, domain="x") == "c"
    assert place(nodes, {"a": 5}, 10) is None


def test_a_chain_ends_at_its_first_missing_block() -> None:
    runs = ((10, frozenset("ab")), (5, frozenset("b")), (20, frozenset("a")))
    one = Chain(runs=runs, block_tokens=16, prompt_tokens=600)
    assert [usable_blocks(one, gone) for gone in ((), "a", "b", "ab")] == [35, 15, 10, 0]
    assert one.blocks == 35
    nobody = Chain(runs=((3, frozenset("a")), (4, frozenset())), block_tokens=16, prompt_tokens=600)
    assert usable_blocks(nobody, ()) == 3


def test_scattered_sessions_break_as_the_formula_says() -> None:
    r, count, blocks = random.Random(2), 32, 5_000
    usable, nodes = [], [frozenset({str(n)}) for n in range(count)]
    for _ in range(300):
        runs = tuple((1, nodes[int(r.random() * count)]) for _ in range(blocks))
        chain = Chain(runs=runs, block_tokens=16, prompt_tokens=80_000)
        usable.append(usable_blocks(chain, {"0"}))
    assert sum(usable) / len(usable) == pytest.approx(usable_after_loss(count, blocks), rel=0.15)


def test_a_lost_pool_is_the_surge_of_the_formula() -> None:
    # 80K prompts of which 72K were found, all of them on the pool that is lost
    chain = Chain(runs=((4_500, frozenset({"p"})),), block_tokens=16, prompt_tokens=80_000, requests=3.0)
    found = blast_radius([chain], {"p"}, CURVE)
    said = surge(0.9, curve=CURVE, tokens=80_000)
    assert found.surge == pytest.approx(said.model, rel=1e-9)
    assert (found.hit_before, found.hit_after) == (0.9, 0.0)
    assert (found.chains, found.broken, found.blocks_lost, found.blocks_unusable) == (1, 1, 4_500, 4_500)
    assert found.prefill_ms_after == pytest.approx(3 * 1408.80, abs=0.05)


def test_a_node_with_copies_elsewhere_takes_nothing() -> None:
    chain = Chain(runs=((100, frozenset("ab")),), block_tokens=16, prompt_tokens=1_600)
    found = blast_radius([chain], "a", CURVE)
    assert (found.broken, found.blocks_lost, found.blocks_unusable, found.surge) == (0, 0, 0, 1.0)
    # all of the prompt is held, and one token is computed even so
    assert found.prefill_ms_before == pytest.approx(CURVE.suffix_ms(1_599, 1_600))
    assert blast_radius([], "a", CURVE) == Blast(
        chains=0, broken=0, blocks_lost=0, blocks_unusable=0, hit_before=0.0, hit_after=0.0, prefill_ms_before=0.0,
        prefill_ms_after=0.0, surge=None,
    )  # fmt: skip
