"""Decides where a request goes: who may take it, the seven terms of its time to first token in ms, and the pick.

The terms *are* the explanation: they add up to what is compared. Permission is decided before anything is scored. Each
range of the prompt is loaded or computed, whichever is sooner (`kvcore.ranges`); loading, local or from another node,
is the term `cache_load`, and `transfer` is what brings the prompt's KV to another worker that decodes. Nothing is
thought to overlap, but for the part of the transfer that the policy says is hidden behind prefill.

Deterministic: no clock, and the only chance is the ask's `seed`. The same question has the same answer in every
router, and when it is scored again from its record. Cost: a lower bound per worker, exact terms only for those that
may still be among the best. Called by `routing.services`, the recorder's re-scoring, and simulations.
"""

import math
from collections.abc import Sequence

from kvcore.cards import (
    NOTHING_LEARNED,
    Ask,
    Candidate,
    Card,
    Choice,
    Curve,
    Edge,
    Edges,
    Filtered,
    Held,
    Learned,
    Range,
    Replicate,
    Terms,
    TierLoad,
)
from kvcore.fleets import Fleet, Row, prepare, wires_of
from kvcore.picks import Ranked, rank
from kvcore.policies import Policy
from kvcore.questions import Bound, Exact, Question

__all__ = [
    "NOTHING_LEARNED", "Ask", "Candidate", "Card", "Choice", "Curve", "Edge", "Edges", "Filtered", "Held", "Learned",
    "Policy", "Range", "Replicate", "Terms", "TierLoad", "decide", "prepare", "score", "wires_of",
]  # fmt: skip

BEST = 8
"""Cards of an answer."""
_BESIDE, _WITHIN = 6e-4, 4e-4
"""ms: a bound that is so far above a total rounded to µs is above it; one that is not further below rounds to it."""


def score(
    ask: Ask,
    candidates: Sequence[Candidate],
    held: Sequence[Held],
    edges: Edges,
    policy: Policy,
    learned: Learned = NOTHING_LEARNED,
) -> Choice:
    """Where the request goes, by the policy, with the terms that say why.

    Args:
        ask: the request.
        candidates: all that were thought of, also those that may not be used.
        held: what they hold of the chain, by their place in `candidates`.
        edges: between nodes.
        policy: decides among those that are left.
        learned: what outcomes have taught; nothing = the terms as they are.
    """
    return decide(ask, prepare(candidates, edges, policy, learned), held)


def decide(ask: Ask, fleet: Fleet, held: Sequence[Held]) -> Choice:
    """`score` for a fleet that was prepared before. The answer is the same."""
    if not fleet.rows:
        return _choice(fleet, None, (), "no-candidates" if not fleet.candidates else "all-filtered", None)
    question = Question(ask, fleet, held)
    if fleet.policy.kind == "predicted":
        best, why = _predicted(question)
        replicate = _replicate(question, best[0])
        return _choice(fleet, best[0], [question.card(e, e.terms.total_ms) for e in best], why, replicate)
    ranked = rank(ask, fleet, question.runs)
    cards = [_ranked(question, r) for r in ranked.order[:BEST]]
    return _choice(fleet, question.made[ranked.order[0].row.at], cards, ranked.why, None)


def _ranked(question: Question, r: Ranked) -> Card:
    exact = question.exact(r.row)
    extra = tuple(u for u in r.unknowns if u not in exact.unknowns)
    return question.card(exact, r.score, extra)


def _choice(fleet: Fleet, picked: Exact | None, cards: Sequence[Card], why: str, replicate: Replicate | None) -> Choice:
    return Choice(
        prefill=cards[0] if cards else None,
        decode=None if picked is None else fleet.candidates[picked.decode],
        cards=tuple(cards),
        filtered=fleet.filtered,
        policy=fleet.policy.name,
        version=fleet.policy.version,
        why=why,
        replicate=replicate,
    )


def _predicted(q: Question) -> tuple[list[Exact], str]:
    """The picked one, then the best of those that were looked at, and why it was picked."""
    bounds = q.bounds()
    group = _behind(q)
    lowest = _lowest(q, bounds)
    picked, why = lowest, "lowest"
    if group:
        least = min(group.get(b[2], 0) for b in bounds)
        if group.get(lowest.row.at, 0) != least:
            picked = _lowest(q, [b for b in bounds if group.get(b[2], 0) == least])
            why = q.over[lowest.row.at]
    node, slack = q.ask.session_node, q.fleet.params["session_slack"]
    if node is not None and picked.row.node != node:
        there = [b for b in bounds if b[3].node == node and group.get(b[3].at, 0) == group.get(picked.row.at, 0)]
        if there:
            stay = _lowest(q, there)
            if stay.key[0] <= picked.key[0] * (1 + slack):
                picked, why = stay, "session"
    for *_, row in bounds[: BEST + 1]:
        if len(q.made) >= BEST:
            break
        q.exact(row)
    best = sorted(q.made.values(), key=_key)
    if why == "lowest" and len(best) > 1 and best[1].key[0] == picked.key[0]:
        why = "tie"
    return [picked, *(e for e in best if e.row.at != picked.row.at)][:BEST], why


def _lowest(q: Question, bounds: list[Bound]) -> Exact:
    """The lowest, exactly: terms are made only for those whose bound is not above the lowest so far."""
    best: Exact | None = None
    worst, worst_tie = math.inf, 0
    for total, tie, at, row in bounds:
        if total > worst + _BESIDE:
            break
        if best is not None and at not in q.made:
            near = q.refined(row, total)
            # where the bound is its equal, the rendezvous has decided already
            if near > worst + _BESIDE or (near > worst - _WITHIN and tie > worst_tie):
                continue
        made = q.exact(row)
        if best is None or made.key < best.key:
            best, (worst, worst_tie, _) = made, made.key
    assert best is not None, "somebody is left"
    return best


def _key(e: Exact) -> tuple[float, int, int]:
    return e.key


def _behind(q: Question) -> dict[int, int]:
    """Workers that come after others: 1 = over the cap of a hot prompt, 2 = below the session's floor."""
    ask, fleet = q.ask, q.fleet
    out: dict[int, int] = {}
    cap, rows = fleet.params["stickiness_cap"], fleet.rows
    if cap and ask.hot_share * len(rows) > cap:
        copies = sum(1 for r in rows if q.depth.get(r.at, 0) >= ask.hot_blocks)
        enough = copies >= _wanted(q)
        most = cap * fleet.mean_queue + fleet.params["cap_slack_ms"]
        for r in rows:
            if r.queue > most or (enough and q.depth.get(r.at, 0) < ask.hot_blocks):
                out[r.at] = 1
                q.over[r.at] = "over-cap"
    floor = min(ask.session_floor_blocks, q.usable)
    if floor > 0:
        short = [r for r in rows if q.depth.get(r.at, 0) < floor and not _reaches(q, r, floor)]
        if len(short) < len(rows):
            for r in short:
                out[r.at] = 2
                q.over[r.at] = "below-floor"
    return out


def _wanted(q: Question) -> int:
    """Workers among which a hot prompt stays under the cap."""
    rows = len(q.fleet.rows)
    return min(rows, math.ceil(q.ask.hot_share * rows / q.fleet.params["stickiness_cap"]))


def _reaches(q: Question, row: Row, floor: int) -> bool:
    edges = q.fleet.edges
    return any(
        -minus >= floor and row.node in edges.get(q.fleet.candidates[holder].node, ())
        for minus, holder in q.holders
        if holder != row.at
    )


def _replicate(q: Question, picked: Exact) -> Replicate | None:
    ask, rows = q.ask, q.fleet.rows
    cap = q.fleet.params["stickiness_cap"]
    if not cap or ask.hot_blocks <= 0 or ask.hot_share * len(rows) <= cap:
        return None
    without = [r for r in rows if q.depth.get(r.at, 0) < ask.hot_blocks]
    copies, wanted = len(rows) - len(without), _wanted(q)
    if copies >= wanted:
        return None
    if any(r.at == picked.row.at for r in without):
        return Replicate(ask.hot_blocks, copies, wanted, None)
    return Replicate(ask.hot_blocks, copies, wanted, min(without, key=lambda r: (r.queue, r.tie)).at)
