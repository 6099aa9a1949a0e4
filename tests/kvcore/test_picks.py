"""Other projects' rules do what their documents say: their examples, as tables."""

import math

import msgspec
import pytest

from kvcore.cards import Candidate, Held
from kvcore.picks import matched, tier_score
from kvcore.policies import Kind, Policy, built_in, defaults
from kvcore.scoring import Choice, score
from tests.kvcore.workers import BLOCK, asking, worker


def policy(kind: Kind, **params: float) -> Policy:
    base = built_in(kind)
    return msgspec.structs.replace(base, params={**base.params, **params})


def nodes(choice: Choice, workers: list[Candidate]) -> list[str]:
    return [workers[c.candidate].node for c in choice.cards]


# ------------------------------------------------------------------ Dynamo
# Source: Dynamo router guide. A prompt of 10 blocks; cached 2, 5, 8, so 8, 5, 2 are to be prefilled; with these
# 10, 5, 9 blocks decode there.
DYNAMO = [worker(f"w{i + 1}", prefill_tokens=0, decode_blocks=d) for i, d in enumerate((2, 0, 7))]
DYNAMO_HELD = [Held(i, ((blocks, "hbm"),)) for i, blocks in enumerate((2, 5, 8))]


@pytest.mark.parametrize(
    ("product", "costs", "takes"),
    [(0, {"w1": 18, "w2": 10, "w3": 11}, "w2"), (1, {"w1": 88, "w2": 30, "w3": 20}, "w3")],
)
def test_dynamo_documented_example(product: int, costs: dict[str, int], takes: str) -> None:
    choice = score(asking(10 * BLOCK), DYNAMO, DYNAMO_HELD, {}, policy("linear", product=product))
    assert {DYNAMO[c.candidate].node: c.score for c in choice.cards} == costs
    assert nodes(choice, DYNAMO)[0] == takes
    assert choice.why == "lowest-cost"


def test_dynamo_credits_by_tier() -> None:
    workers = [worker(n, prefill_tokens=0, decode_blocks=0) for n in "abcd"]
    held = [Held(i, ((8, tier),)) for i, tier in enumerate(("hbm", "dram", "ssd", "remote"))]
    choice = score(asking(10 * BLOCK), workers, held, {}, policy("linear"))
    # 10 blocks, less 8 × the credit of the tier, and 2 that decode anew
    assert {workers[c.candidate].node: c.score for c in choice.cards} == {"a": 4, "b": 6, "c": 10, "d": 8}
    scaled = score(
        asking(10 * BLOCK), workers, held, {}, policy("linear", overlap_score_credit=0.5, prefill_load_scale=2.0)
    )
    assert {workers[c.candidate].node: c.score for c in scaled.cards} == {"a": 14, "b": 16, "c": 20, "d": 18}
    decayed = score(asking(10 * BLOCK), workers, held, {}, policy("linear", credit_decay=1.0))
    assert {c.score for c in decayed.cards} == {12}


def test_dynamo_load_counts_and_is_named_where_it_is_estimated() -> None:
    workers = [worker("a", prefill_tokens=100 * BLOCK, decode_blocks=0), worker("b", 0.0, running=2)]
    choice = score(asking(10 * BLOCK), workers, [], {}, policy("linear"))
    cards = {workers[c.candidate].node: c for c in choice.cards}
    assert cards["a"].score == 120
    assert cards["b"].score == 10 + 10 + 2 * 10
    assert cards["a"].unknowns == ()
    assert cards["b"].unknowns == ("prefill_tokens", "decode_blocks")


def test_dynamo_temperature_spreads_by_the_seed() -> None:
    workers = [worker(n, prefill_tokens=i * 16, decode_blocks=0) for i, n in enumerate("abc")]
    hot = policy("linear", router_temperature=0.5)
    takes = [nodes(score(asking(160, seed=s), workers, [], {}, hot), workers)[0] for s in range(600)]
    parts = [math.exp(-cost / 0.5) for cost in (0.0, 0.5, 1.0)]
    for name, part in zip("abc", parts, strict=True):
        assert abs(takes.count(name) / 600 - part / sum(parts)) < 0.06
    assert takes == [nodes(score(asking(160, seed=s), workers, [], {}, hot), workers)[0] for s in range(600)]


# ------------------------------------------------------------------ Ray
INF = math.inf
RAY = [
    # threshold, queues, matched blocks of 100, used, branch, may be picked
    (INF, (0, 50), (0, 0), (0.5, 0.1), "smallest-tree", "b"),
    (INF, (0, 50), (0, 9), (0.1, 0.5), "smallest-tree", "a"),
    (INF, (0, 50), (0, 10), (0.1, 0.5), "prefix-match", "b"),
    (INF, (99, 0), (80, 40), (0.9, 0.1), "prefix-match", "a"),
    (INF, (3, 1), (40, 40), (0.9, 0.1), "prefix-match", "b"),
    (INF, (1, 3), (0, 0), (0.3, 0.3), "smallest-tree", "a"),
    (10, (10, 0), (80, 0), (0.9, 0.1), "prefix-match", "a"),
    (10, (11, 0), (80, 0), (0.9, 0.1), "two-choices", "b"),
    (10, (0, 11), (80, 0), (0.9, 0.1), "two-choices", "a"),
    (0, (5, 5), (10, 90), (0.1, 0.1), "prefix-match", "b"),
    (0, (5, 6), (10, 90), (0.1, 0.1), "two-choices", "a"),
    (10, (10, 0), (5, 0), (0.9, 0.1), "smallest-tree", "b"),
]


@pytest.mark.parametrize(("threshold", "queues", "blocks", "used", "branch", "takes"), RAY)
def test_ray_documented_branches(
    threshold: float,
    queues: tuple[int, int],
    blocks: tuple[int, int],
    used: tuple[float, float],
    branch: str,
    takes: str,
) -> None:
    """Source: Ray Serve LLM, prefix cache affinity router; default match rate 10 %, default threshold endless."""
    workers = [worker(n, waiting=q, running=0, used_share=u) for n, q, u in zip("ab", queues, used, strict=True)]
    held = [Held(i, ((b, "hbm"),)) for i, b in enumerate(blocks) if b]
    rule = policy("tree_p2c") if threshold == INF else policy("tree_p2c", imbalanced_threshold=threshold)
    choice = score(asking(100 * BLOCK, seed=7), workers, held, {}, rule)
    assert (choice.why, nodes(choice, workers)[0]) == (branch, takes)


def test_ray_two_choices_are_two() -> None:
    workers = [worker(f"n{i}", waiting=i, running=0) for i in range(8)]
    rule = policy("tree_p2c", imbalanced_threshold=0)
    takes = [nodes(score(asking(100, seed=s), workers, [], {}, rule), workers)[0] for s in range(800)]
    # of two drawn the shorter queue wins: the k-th of n is taken with 2(n-1-k) / n(n-1)
    for k in range(8):
        assert abs(takes.count(f"n{k}") / 800 - 2 * (7 - k) / 56) < 0.05
    assert "n7" not in takes


# ------------------------------------------------------------------ llm-d
def test_llm_d_documented_example() -> None:
    """Source: llm-d KV-cache indexer. Consecutive blocks from the start: A has 4, B has 2, C lacks the first."""
    weights = defaults("tier_weighted")
    assert tier_score(((4, "hbm"),), 4, weights) == 4
    assert tier_score(((2, "hbm"),), 4, weights) == 2
    assert tier_score(((1, ""), (4, "hbm")), 4, weights) == 0
    assert tier_score(((2, "hbm"), (4, "dram")), 4, weights) == pytest.approx(2 + 2 * 0.8)
    assert tier_score(((4, "elsewhere"),), 4, weights) == 4  # an unknown tier weighs 1
    assert tier_score(((9, "hbm"),), 4, weights) == 4
    assert matched(((2, "hbm"), (3, ""), (5, "hbm")), 9) == [(2, "hbm")]


def test_llm_d_profile() -> None:
    """Source: llm-d's default profile: prefix 3, queue 2, utilization 2."""
    workers = [
        worker("a", waiting=10, used_share=0.5), worker("b", waiting=0, used_share=0.2),
        worker("c", waiting=5, used_share=0.0),
    ]  # fmt: skip
    held = [Held(0, ((4, "hbm"),)), Held(1, ((2, "dram"),))]
    choice = score(asking(4 * BLOCK), workers, held, {}, policy("tier_weighted"))
    assert {workers[c.candidate].node: pytest.approx(-c.score) for c in choice.cards} == {
        "a": 3 * 1 + 2 * 0 + 2 * 0.5, "b": 3 * 0.4 + 2 * 1 + 2 * 0.8, "c": 3 * 0 + 2 * 0.5 + 2 * 1
    }  # fmt: skip
    assert nodes(choice, workers)[0] == "b"


# ------------------------------------------------------------------ plain ones
def test_least_loaded() -> None:
    workers = [worker("a", 30.0), worker("b", 10.0), worker("c", 20.0)]
    choice = score(asking(80_000), workers, [Held(0, ((5000, "hbm"),))], {}, policy("least_loaded"))
    assert nodes(choice, workers) == ["b", "c", "a"]


def test_round_robin_takes_all_in_turn() -> None:
    workers = [worker(n) for n in "cab"]
    takes = [nodes(score(asking(100, turn=t), workers, [], {}, policy("round_robin")), workers)[0] for t in range(6)]
    assert takes == ["a", "b", "c", "a", "b", "c"]


def test_random_takes_all_alike() -> None:
    workers = [worker(n) for n in "abcd"]
    takes = [nodes(score(asking(100, seed=s), workers, [], {}, policy("random")), workers)[0] for s in range(800)]
    assert all(140 < takes.count(n) < 260 for n in "abcd")


def test_every_policy_shows_its_terms_and_keeps_permission_first() -> None:
    workers = [worker("a", refused="rights"), worker("b", 20.0)]
    kinds: tuple[Kind, ...] = ("linear", "tree_p2c", "tier_weighted", "least_loaded", "round_robin", "random")
    for kind in kinds:
        choice = score(asking(80_000), workers, [Held(0, ((5000, "hbm"),))], {}, policy(kind))
        assert nodes(choice, workers) == ["b"]
        assert choice.cards[0].terms.queue_p == 20.0
        assert (choice.policy, choice.filtered[0].filtered_by) == (kind, "rights")
