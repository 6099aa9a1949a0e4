"""One prompt in most of the requests: the cap keeps workers level, and without it one of them has the queue."""

import random
from statistics import mean

import pytest

from kvcore.cards import Ask, Held
from kvcore.heat import Heat, heads
from kvcore.policies import Policy, built_in
from kvcore.scoring import NOTHING_LEARNED, decide, prepare
from tests.kvcore.test_heat import chain
from tests.kvcore.workers import CURVE, asking, worker

REQUESTS, WORKERS, WARM = 2_000, 4, 200
HEAD, TAIL = 5_000, 64
"""Blocks that are shared, and a request's own."""


def served(policy: Policy, seed: int = 1) -> tuple[float, float]:
    """(max/mean queue, part of the hot requests that hit) of 2,000 requests over 4 workers, each one after the other.

    Time is virtual: a worker computes what the plan says it computes, by the curve; the router reads true queues.
    """
    r = random.Random(seed)
    shared, heat = chain(1, HEAD), Heat()
    holds = [True] + [False] * (WORKERS - 1)  # somebody asked once before all the others did
    free_at = [0.0] * WORKERS
    seen: list[list[float]] = []
    now, hits, asked = 0.0, 0, 0
    a_hit = CURVE.suffix_ms(HEAD * 16, (HEAD + TAIL) * 16)
    for i in range(REQUESTS):
        # hot requests alone would keep one worker nearly busy; four are a fifth busy with them
        now += r.expovariate(1 / (a_hit / 1.15))
        hot = r.random() < 0.8
        name = chain(10 + i, HEAD + TAIL, shared if hot else b"") if hot else chain(10 + i, 32)
        blocks = len(name) // 8
        waits = [max(0.0, f - now) for f in free_at]
        seen.append(waits)
        share, depth = heat.note(heads(name, 8), policy.params["stickiness_cap"] / WORKERS)
        held = [Held(w, ((min(HEAD, blocks), "hbm"),)) for w in range(WORKERS) if hot and holds[w]]
        workers = [worker(f"n{w}", waits[w]) for w in range(WORKERS)]
        fleet = prepare(workers, {}, policy, NOTHING_LEARNED)
        ask: Ask = asking(blocks * 16, hot_share=share, hot_blocks=depth, affinity=i * 7919)
        choice = decide(ask, fleet, held)
        assert choice.prefill is not None
        w = choice.prefill.candidate
        free_at[w] = max(free_at[w], now) + choice.prefill.terms.prefill
        if hot and i >= WARM:
            asked += 1
            hits += choice.prefill.overlap_blocks >= HEAD
        if hot:
            holds[w] = True
    means = [mean(s[w] for s in seen[WARM:]) for w in range(WORKERS)]
    return max(means) / mean(means), hits / asked


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_cap_keeps_queues_level_and_without_it_one_worker_has_them(seed: int) -> None:
    level, hits = served(built_in(), seed)
    assert level <= 1.5
    assert hits >= 0.9
    base = built_in()
    without = Policy(
        name="no-cap", version=1, model=None, kind="predicted", params={**base.params, "stickiness_cap": 0.0}
    )
    piled, _ = served(without, seed)
    assert piled > 3
