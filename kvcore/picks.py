"""Decides whom a policy other than `predicted` picks: rules that others have published, and the plain ones.

The rule only chooses the worker; the terms and the plan beside it are ours, so decisions of all policies compare. What
a rule reads and nobody knows is estimated and named. Chance comes from the ask's `seed` alone.

Sources: Dynamo 1.6.1 router guide (cost, credits, temperature, `lmetric`); Ray Serve LLM 2.60 prefix cache affinity
router (balance, match rate, smallest tree, power of two choices); llm-d KV-cache indexer (tier weights along the
consecutive prefix) and its scheduler's queue and utilization scorers.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from kvcore.cards import HOLE, Ask, Candidate
from kvcore.fleets import Fleet, Row, rendezvous

Runs = Mapping[int, tuple[tuple[int, str], ...]]
_HOST = frozenset({"pinned", "dram"})


class Ranked(NamedTuple):
    """A worker with what the rule compares, lowest first, and what of it is estimated."""

    score: float
    row: Row
    unknowns: tuple[str, ...] = ()


class Order(NamedTuple):
    """All workers, the picked one first, and the branch of the rule that picked it."""

    order: list[Ranked]
    why: str


def rank(ask: Ask, fleet: Fleet, runs: Runs) -> Order:
    """The order in which the fleet's policy would take the workers."""
    return _RULES[fleet.policy.kind](ask, fleet, runs)


def matched(runs: tuple[tuple[int, str], ...], blocks: int) -> list[tuple[int, str]]:
    """(blocks, tier) along the consecutive prefix, up to `blocks`."""
    out: list[tuple[int, str]] = []
    start = 0
    for end, tier in runs:
        end = min(end, blocks)
        if end <= start:
            continue
        if tier == HOLE:
            break
        out.append((end - start, tier))
        start = end
    return out


def _sorted(ask: Ask, ranked: list[Ranked]) -> list[Ranked]:
    return sorted(ranked, key=lambda r: (r.score, rendezvous(r.row.tie, ask.affinity), r.row.at))


def _first(order: list[Ranked], at: int) -> list[Ranked]:
    return [r for r in order if r.row.at == at] + [r for r in order if r.row.at != at]


def _chance(seed: int, what: str) -> float:
    """A number in [0, 1) of the decision's seed."""
    said = blake2b(f"{what}:{seed}".encode(), digest_size=8).digest()
    return (int.from_bytes(said, "little") >> 11) / (1 << 53)


def _linear(ask: Ask, fleet: Fleet, runs: Runs) -> Order:
    """Dynamo: blocks to prefill, less the credit of what is cached by its tier, and blocks that decode.

    Of the request's own blocks those decode anew that are not cached there, as in the document's example.
    """
    p = fleet.policy.params
    weight = {"hbm": 1.0, "ssd": p["disk_cache_hit_weight"], "remote": p["shared_cache_multiplier"]}
    out = []
    for row in fleet.rows:
        c = fleet.candidates[row.at]
        active, decode, unknowns = _load_blocks(ask, c, row)
        found = matched(runs.get(row.at, ()), ask.blocks)
        credit = sum(n * (p["host_cache_hit_weight"] if tier in _HOST else weight.get(tier, 0.0)) for n, tier in found)
        credit *= p["overlap_score_credit"] * (1.0 - p["credit_decay"])
        prefill = p["prefill_load_scale"] * max(active + ask.blocks - credit, 0.0)
        decode += ask.blocks - sum(n for n, _ in found) + p["decode_active_request_weight"] * (c.running or 0)
        cost = prefill * (decode + 1.0) if p["product"] else prefill + decode
        out.append(Ranked(cost, row, unknowns))
    order = _sorted(ask, out)
    heat = p["router_temperature"]
    if heat <= 0:
        return Order(order, "lowest-cost")
    return Order(_first(order, _softmax(order, heat, _chance(ask.seed, "softmax"))), "softmax")


def _load_blocks(ask: Ask, c: Candidate, row: Row) -> tuple[float, float, tuple[str, ...]]:
    """Blocks being prefilled and decoded on the worker, with the names of those that are estimated."""
    unknowns: tuple[str, ...] = ()
    if c.prefill_tokens is not None:
        active = c.prefill_tokens / ask.block_tokens
    else:
        # the queue in ms, turned into blocks by what a block of this prompt would cost there
        a_block = (row.linear + row.square * ask.prompt_tokens) * ask.block_tokens
        active, unknowns = (row.queue / a_block if a_block > 0 else 0.0), ("prefill_tokens",)
    if c.decode_blocks is not None:
        return active, float(c.decode_blocks), unknowns
    return active, float((c.running or 0) * ask.blocks), (*unknowns, "decode_blocks")


def _softmax(order: Sequence[Ranked], heat: float, chance: float) -> int:
    """Costs are scaled to their range, so that the temperature means the same in every fleet."""
    low, high = order[0].score, max(r.score for r in order)
    span = (high - low) or 1.0
    weights = [math.exp(-(r.score - low) / span / heat) for r in order]
    left = chance * sum(weights)
    for r, weight in zip(order, weights, strict=True):
        left -= weight
        if left < 0:
            return r.row.at
    return order[-1].row.at


def _length(c: Candidate) -> int:
    return (c.waiting or 0) + (c.running or 0)


def _tree_p2c(ask: Ask, fleet: Fleet, runs: Runs) -> Order:
    """Ray: two choices where queues differ too much, else the longest match, else the smallest tree."""
    p = fleet.policy.params
    lengths = {r.at: _length(fleet.candidates[r.at]) for r in fleet.rows}
    unsaid = ("waiting", "running")
    unknowns = {r.at: tuple(n for n in unsaid if getattr(fleet.candidates[r.at], n) is None) for r in fleet.rows}
    if max(lengths.values()) - min(lengths.values()) > p["imbalanced_threshold"]:
        out = [Ranked(float(lengths[r.at]), r, unknowns[r.at]) for r in fleet.rows]
        return Order(_two(ask, out, lengths), "two-choices")
    length = {r.at: sum(b for b, _ in matched(runs.get(r.at, ()), ask.blocks)) for r in fleet.rows}
    longest = max(length.values())
    if ask.blocks and longest and longest / ask.blocks >= p["match_rate_threshold"]:
        out = [Ranked(-length[r.at] / ask.blocks, r, unknowns[r.at]) for r in fleet.rows]
        return Order(_two(ask, out, lengths, -longest / ask.blocks), "prefix-match")
    used = {r.at: fleet.candidates[r.at].used_share for r in fleet.rows}
    known = [u for u in used.values() if u is not None]
    usual = sorted(known)[len(known) // 2] if known else 0.0
    out = [
        Ranked(usual if u is None else u, r, (*unknowns[r.at], "used_share") if u is None else unknowns[r.at])
        for r in fleet.rows
        for u in [used[r.at]]
    ]
    return Order(_two(ask, out, lengths, min(r.score for r in out)), "smallest-tree")


def _two(ask: Ask, out: list[Ranked], lengths: dict[int, int], score: float | None = None) -> list[Ranked]:
    """Two drawn among those with the score (None = among all), the one with the shorter queue first."""
    among = [r for r in out if score is None or r.score == score]
    order = _sorted(ask, out)
    first = int(_chance(ask.seed, "first") * len(among))
    if len(among) == 1:
        return _first(order, among[0].row.at)
    second = int(_chance(ask.seed, "second") * (len(among) - 1))
    second += second >= first
    best = min(among[first], among[second], key=lambda r: lengths[r.row.at])
    return _first(order, best.row.at)


def _tier_weighted(ask: Ask, fleet: Fleet, runs: Runs) -> Order:
    """llm-d: cached blocks by their tier's weight, a short queue and a free cache, each in [0, 1], each weighted."""
    p = fleet.policy.params
    waits = {r.at: fleet.candidates[r.at].waiting for r in fleet.rows}
    known = [w for w in waits.values() if w is not None]
    low, high = (min(known), max(known)) if known else (0, 0)
    out = []
    for row in fleet.rows:
        c = fleet.candidates[row.at]
        unknowns: tuple[str, ...] = ()
        prefix = tier_score(runs.get(row.at, ()), ask.blocks, p) / max(ask.blocks, 1)
        waiting = waits[row.at]
        if waiting is None:
            waiting, unknowns = sorted(known)[len(known) // 2] if known else 0, ("waiting",)
        queue = 1.0 if high == low else (high - waiting) / (high - low)
        used = c.used_share
        if used is None:
            used, unknowns = 0.5, (*unknowns, "used_share")
        total = p["prefix_weight"] * prefix + p["queue_weight"] * queue + p["utilization_weight"] * (1.0 - used)
        out.append(Ranked(-total, row, unknowns))
    return Order(_sorted(ask, out), "highest-score")


def tier_score(runs: tuple[tuple[int, str], ...], blocks: int, weights: Mapping[str, float]) -> float:
    """Sum of the tier's weight over the consecutive prefix; a tier that has none weighs 1."""
    return sum(count * weights.get(tier, 1.0) for count, tier in matched(runs, blocks))


def _least_loaded(ask: Ask, fleet: Fleet, runs: Runs) -> Order:
    out = [Ranked(r.queue, r, tuple(u for u in r.unknown_p if u == "queue_p")) for r in fleet.rows]
    return Order(_sorted(ask, out), "least-loaded")


def _by_name(fleet: Fleet) -> list[Row]:
    key = {r.at: (c.node, c.source, c.dp_rank) for r in fleet.rows for c in [fleet.candidates[r.at]]}
    return sorted(fleet.rows, key=lambda r: key[r.at])


def _round_robin(ask: Ask, fleet: Fleet, runs: Runs) -> Order:
    rows = _by_name(fleet)
    start = ask.turn % len(rows)
    return Order([Ranked(float(i), r) for i, r in enumerate(rows[start:] + rows[:start])], "turn")


def _random(ask: Ask, fleet: Fleet, runs: Runs) -> Order:
    drawn = [Ranked(_chance(ask.seed, f"{c.node}/{c.source}/{c.dp_rank}"), r) for r in fleet.rows
             for c in [fleet.candidates[r.at]]]  # fmt: skip
    return Order(sorted(drawn), "drawn")


_RULES: dict[str, Callable[[Ask, Fleet, Runs], Order]] = {
    "linear": _linear,
    "tree_p2c": _tree_p2c,
    "tier_weighted": _tier_weighted,
    "least_loaded": _least_loaded,
    "round_robin": _round_robin,
    "random": _random,
}
