"""The pick: what must hold for every fleet and every request."""

import math
import random
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kvcore.cards import Candidate, Choice, Edge, Edges, Held
from kvcore.policies import KINDS, built_in
from kvcore.questions import Question
from kvcore.scoring import NOTHING_LEARNED, decide, prepare, score
from tests.kvcore.test_scoring import POLICY, picked
from tests.kvcore.workers import BLOCK, CURVE, asking, worker

NAMES = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]
Fleet = tuple[list[Candidate], list[Held], Edges]


def made(seed: int, *, known: bool = False) -> Fleet:
    """A fleet of chance, the same for the same seed: far quicker than drawing each number."""
    r = random.Random(seed)
    count = r.randint(1, 10)

    def queue() -> float | None:
        return r.uniform(0, 2000) if known or r.random() < 0.7 else None

    workers = [
        worker(
            NAMES[i], queue(), role=r.choice(["both", "both", "prefill", "decode"]),
            curve=msgspec.structs.replace(CURVE, linear_ms=CURVE.linear_ms * r.choice([0.5, 1.0, 4.0])),
            decode_queue_ms=queue(), load_age_ms=100.0 if known else r.choice([None, 100.0, 5_000.0]),
            state=r.choice(["ready", "ready", "ready", "draining", "lost"]),
            refused=r.choice(["", "", "", "rights", "quota"]), waiting=r.choice([None, 0, 1, 5]),
            used_share=r.choice([None, 0.0, r.uniform(0, 0.9)]),
        )
        for i in range(count)
    ]  # fmt: skip
    held = []
    for i in range(count):
        depth, runs = 0, []
        for _ in range(r.randint(0, 3)):
            depth += r.randint(1, 300)
            runs.append((depth, r.choice(["hbm", "dram", "dram", ""])))
        if runs:
            held.append(Held(i, tuple(runs)))
    edges = {
        a: {
            b: Edge(r.choice([1e6, 12.5e6, 50e6]), r.uniform(0, 2))
            for b in NAMES[:count]
            if a != b and r.random() < 0.5
        }
        for a in NAMES[:count]
    }
    return workers, held, edges


def fleets(*, known: bool = False) -> st.SearchStrategy[Fleet]:
    return st.integers(0, 2**32).map(lambda seed: made(seed, known=known))


asks = st.builds(
    asking, st.integers(1, 12_000), affinity=st.integers(0, 2**62), seed=st.integers(0, 2**62), turn=st.integers(0, 99),
    hot_share=st.sampled_from([0.0, 0.8]), hot_blocks=st.just(64), session_floor_blocks=st.sampled_from([0, 50]),
    session_node=st.none() | st.sampled_from(NAMES),
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(asks, fleets(), st.sampled_from(KINDS))
def test_every_answer_adds_up(ask: Any, fleet: Fleet, kind: Any) -> None:
    workers, held, edges = fleet
    choice = score(ask, workers, held, edges, built_in(kind))
    assert choice == score(ask, workers, held, edges, built_in(kind))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(choice), type=Choice) == choice
    out = {f.candidate for f in choice.filtered}
    assert len(choice.cards) == min(8, len(workers) - len(out))
    assert (choice.prefill is None) == (len(out) == len(workers))
    for card in choice.cards:
        assert card.candidate not in out
        terms = msgspec.structs.astuple(card.terms)
        assert sum(terms) == card.total_ms
        assert min(terms) >= 0
        assert all(math.isfinite(t) for t in terms)
        assert workers[card.candidate].role != "decode"
        decoder = workers[card.decode] if card.decode is not None else None
        assert decoder is not None
        assert decoder.role != "prefill"
        at = 0
        for part in card.plan:
            assert part.from_block == at < part.to_block
            at = part.to_block
            if part.source != "compute":
                assert workers[part.candidate].state in ("ready", "degraded", "draining", "cordoned")
                assert workers[part.candidate].refused in ("", "quota")
                assert (part.source == "local") == (part.candidate == card.candidate)
        assert card.plan[-1].source == "compute"
        assert at == -(-ask.prompt_tokens // BLOCK)
        hit = card.overlap_blocks * BLOCK
        recomputed = ask.prompt_tokens - hit
        assert recomputed >= 1
        assert card.overlap_blocks == card.plan[-1].from_block
        rest = workers[card.candidate].curve.suffix_ms(hit, ask.prompt_tokens)
        assert card.terms.prefill == pytest.approx(rest)


@settings(max_examples=150, deadline=None)
@given(asks, fleets())
def test_the_pick_is_the_least_of_all(ask: Any, fleet: Fleet) -> None:
    """Bounds leave nobody out: each worker alone with the same estimates is no better."""
    workers, held, edges = fleet
    ask = msgspec.structs.replace(ask, hot_share=0.0, session_node=None, session_floor_blocks=0)
    choice = score(ask, workers, held, edges, POLICY)
    assume(choice.prefill is not None)
    q = Question(ask, prepare(workers, edges, POLICY, NOTHING_LEARNED), held)
    every = sorted(q.exact(row).key for row in q.fleet.rows)
    assert every[0][2] == picked(choice)
    for bound, _, at, row in q.bounds():
        exact = q.exact(row).terms.total_ms
        assert bound <= exact + 1e-6, at
        assert q.refined(row, bound) <= exact + 1e-6, at


@settings(max_examples=150, deadline=None)
@given(asks, fleets(known=True), st.floats(1.0, 1e5), st.sampled_from(["lost", "worse"]))
def test_a_useless_candidate_changes_nothing(ask: Any, fleet: Fleet, more: float, how: str) -> None:
    workers, held, edges = fleet
    ask = msgspec.structs.replace(ask, hot_share=0.0)
    before = score(ask, workers, held, edges, POLICY)
    assume(before.prefill is not None)
    assert before.prefill is not None
    if how == "lost":
        extra = worker("extra", 0.0, state="lost")
    else:
        extra = worker("extra", before.prefill.total_ms * 1.2 + more, decode_queue_ms=1e9)
    after = score(ask, [*workers, extra], held, edges, POLICY)
    assert picked(after) == picked(before)
    assert after.prefill is not None
    if how == "lost":
        assert after.prefill == before.prefill


@settings(max_examples=200, deadline=None)
@given(asks, fleets(), st.integers(0, 9), st.floats(0.01, 3000))
def test_more_queue_never_makes_a_worker_better(ask: Any, fleet: Fleet, which: int, more: float) -> None:
    workers, held, edges = fleet
    which %= len(workers)
    queue = workers[which].queue_ms
    assume(queue is not None)
    assert queue is not None
    before = score(ask, workers, held, edges, POLICY)
    longer = list(workers)
    longer[which] = msgspec.structs.replace(workers[which], queue_ms=queue + more)
    after = score(ask, longer, held, edges, POLICY)
    assume(after.prefill is not None)
    if picked(after) == which:
        assert picked(before) == which


@settings(max_examples=100, deadline=None)
@given(asks, fleets(), st.sampled_from(KINDS))
def test_a_prepared_fleet_answers_alike(ask: Any, fleet: Fleet, kind: Any) -> None:
    workers, held, edges = fleet
    prepared = prepare(workers, edges, built_in(kind), NOTHING_LEARNED)
    first = decide(ask, prepared, held)
    decide(msgspec.structs.replace(ask, prompt_tokens=77, blocks=4), prepared, held[:1])
    assert decide(ask, prepared, held) == first == score(ask, workers, held, edges, built_in(kind))
