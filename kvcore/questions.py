"""Decides what one request would take on each worker: seven terms in ms, and from where each range of it comes.

Looked at by `kvcore.scoring` while it decides. A lower bound of every worker is cheap; the exact terms, with the plan
of ranges and who decodes, are made only where they are needed, and once.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kvcore.cards import HOLE, Ask, Card, Edge, Held, Range, Terms
from kvcore.fleets import MIX, TIE, Fleet, Row, rendezvous
from kvcore.ranges import NOTHING, Source, Split, split

LOOKED_AT = 6
"""Others, the deepest first, whose edges to a worker are looked at."""
HOLDERS = 2
"""Of those, the ones that a plan may fetch from: who would be best alone. Both bound the work of a plan."""
MICRO = 3
"""Decimals of a ms in which two totals are told apart; below that the rendezvous decides."""
_NO_EDGES: dict[str, Edge] = {}


class Exact(NamedTuple):
    """One worker with its terms."""

    key: tuple[float, int, int]
    row: Row
    terms: Terms
    split: Split
    sources: list[Source]
    decode: int
    unknowns: tuple[str, ...]


Bound = tuple[float, int, int, Row]
"""A worker's total is at least this; then what decides between equals, its place and itself."""

Near = tuple[int, int, float, float]
"""A holder that has an edge to a worker: candidate, depth, latency, ms a block."""


class Question:
    """One request before one fleet: what is looked at while it is answered."""

    __slots__ = (
        "ask", "decoded", "deepest", "depth", "fleet", "givers", "holders", "made", "near", "over", "per_block",
        "profiles", "router", "runs", "sent", "tail_blocks", "usable",
    )  # fmt: skip

    def __init__(self, ask: Ask, fleet: Fleet, held: Sequence[Held]) -> None:
        self.ask, self.fleet = ask, fleet
        # one token at least is computed: without it there is nothing to answer with
        self.usable = max(0, min(ask.blocks, (ask.prompt_tokens - 1) // ask.block_tokens))
        self.tail_blocks = -(-ask.prompt_tokens // ask.block_tokens)
        self.router = fleet.router_ms if ask.router_ms is None else ask.router_ms
        self.runs: dict[int, tuple[tuple[int, str], ...]] = {}
        self.depth: dict[int, int] = {}
        """Blocks from the first on that a candidate holds without a hole."""
        self.holders: list[tuple[int, int]] = []
        """(-depth, candidate), deepest first: from whom others may fetch."""
        self.made: dict[int, Exact] = {}
        self.profiles: dict[int, list[tuple[int, int, str, float, float, bool]]] = {}
        self.over: dict[int, str] = {}
        readable, all_runs, depths, usable = fleet.readable, self.runs, self.depth, self.usable
        for h in held:
            runs, at = h.runs, h.candidate
            if runs and readable[at]:
                all_runs[at] = runs
                depth = runs[0][0] if len(runs) == 1 and runs[0][1] != HOLE else _whole(runs)
                depths[at] = depth if depth < usable else usable
        if fleet.edges:
            self.holders = sorted((-d, i) for i, d in self.depth.items() if d)
        self.near: dict[str, list[Near]] = {}
        self.givers: list[tuple[int, int, Mapping[str, Edge]]] | None = None
        """`holders` with the edges that lead from them; the deepest first."""
        self.per_block = ask.block_bytes / fleet.fastest
        """ms: no block comes over an edge sooner."""
        self.deepest = -self.holders[0][0] if self.holders else 0
        self.sent = math.inf
        """ms: no transfer to who decodes takes less, before the worker's own factor."""
        self.decoded = math.inf
        """ms: no decoder takes less."""
        if fleet.decoders:
            blocks = self.tail_blocks - max((self.depth.get(d.at, 0) for d in fleet.decoders), default=0)
            self.sent = (fleet.quickest + blocks * ask.block_bytes / fleet.fastest) * fleet.params["transfer_exposed"]
            self.decoded = fleet.decoders[0].ms

    def bounds(self) -> list[Bound]:
        """Every worker's bound, lowest first."""
        ask, fleet = self.ask, self.fleet
        n, size, affinity, usable, deepest = (
            ask.prompt_tokens,
            ask.block_tokens,
            ask.affinity,
            self.usable,
            self.deepest,
        )
        runs, router, sent, decoded, dedicated = self.runs, self.router, self.sent, self.decoded, fleet.dedicated
        per_block, quickest, square = self.per_block, fleet.quickest, n * n
        far = deepest * size
        affinity &= TIE
        out: list[Bound] = []
        for row in fleet.rows:
            at, _, queue, base, a, b, own, tie, f_router, f_load, f_transfer, _, _, _, _ = row
            if at in runs:
                low = min(runs[at][-1][0], usable)
                m = low * size
                bound = a * (n - m) + b * (square - m * m)
            else:
                low = 0
                bound = a * n + b * square
            if deepest > low:
                fetched = f_load * (quickest + (deepest - low) * per_block) + a * (n - far) + b * (square - far * far)
                if fetched < bound:
                    bound = fetched
            if own is None:
                own = decoded + sent * f_transfer
            elif dedicated and decoded < own:
                own = min(own, decoded + sent * f_transfer)
            bound += base
            total = f_router * router + (queue if queue > 0 else 0.0) + (bound if bound > 0 else 0.0) + own
            # the order of `rendezvous`, written out: this is the loop that every worker costs
            out.append((total, ((tie ^ affinity) * MIX) & TIE, at, row))
        out.sort()
        return out

    def refined(self, row: Row, total: float) -> float:
        """A higher bound, from the edges that lead to this worker; the bound itself where nothing could be fetched."""
        if not self.deepest or self.depth.get(row.at, 0) >= self.deepest:
            return total
        ask = self.ask
        low = min(self.runs[row.at][-1][0], self.usable) if row.at in self.runs else 0
        n, m, far = ask.prompt_tokens, low * ask.block_tokens, self.deepest * ask.block_tokens
        alone = row.linear * (n - m) + row.square * (n * n - m * m)
        ideal = row.load * (self.fleet.quickest + (self.deepest - low) * self.per_block)
        ideal += row.linear * (n - far) + row.square * (n * n - far * far)
        best = alone
        for _, depth, wait, rate in self._reachable(row):
            if depth > low:
                m = depth * ask.block_tokens
                ms = row.load * (wait + (depth - low) * rate) + row.linear * (n - m) + row.square * (n * n - m * m)
                best = min(best, ms)
        return total + max(best - min(alone, ideal), 0.0)

    def _reachable(self, row: Row) -> list[Near]:
        """(candidate, depth, latency, ms a block) of the deepest holders that have an edge to the worker."""
        found = self.near.get(row.node)
        if found is None:
            found = self.near[row.node] = []
            if self.givers is None:
                edges, candidates = self.fleet.edges, self.fleet.candidates
                self.givers = [
                    (minus, at, tos) for minus, at in self.holders if (tos := edges.get(candidates[at].node))
                ]
            size, to = self.ask.block_bytes, row.node
            for minus, holder, tos in self.givers:
                edge = tos.get(to)
                if edge is not None:
                    found.append((holder, -minus, edge.latency_ms, size / edge.bytes_per_ms))
                    if len(found) == LOOKED_AT:
                        break
        return found

    def exact(self, row: Row) -> Exact:
        """The worker with its plan and terms, made once."""
        made = self.made.get(row.at)
        if made is None:
            made = self.made[row.at] = self._exact(row)
        return made

    def _exact(self, row: Row) -> Exact:
        ask = self.ask
        sources, guessed = self._sources(row)
        n, size = ask.prompt_tokens, ask.block_tokens
        how = NOTHING
        if sources:
            how = split(sources, self.usable, block_tokens=size, linear_ms=row.linear, square_ms=row.square)
        m = how.blocks * size
        decode, transfer, queue_d, first, names = self._decode(row)
        prefill = row.base + row.linear * (n - m) + row.square * (n - m) * (n + m)
        terms = Terms(
            row.router * self.router, max(row.queue, 0.0), how.load_ms, max(prefill, 0.0), transfer, max(queue_d, 0.0),
            max(first, 0.0),
        )  # fmt: skip
        if row.unknown_p:
            names = (*row.unknown_p, *names)
        if ask.router_ms is None:
            names = ("router", *names)
        if guessed and any(sources[i] in guessed for _, _, i in how.parts):
            names = (*names, "cache_load")
        key = (round(terms.total_ms, MICRO), rendezvous(row.tie, ask.affinity), row.at)
        return Exact(key, row, terms, how, sources, decode, names)

    def _sources(self, row: Row) -> tuple[list[Source], list[Source]]:
        """From where the worker can load, and which of these times are estimates."""
        at, usable, factor = row.at, self.usable, row.load
        out: list[Source] = []
        guessed: list[Source] = []
        load = slowest = 0.0
        if at in self.runs:
            for start, end, tier, rate, latency, known in self._profile(at):
                if factor != 1.0:
                    rate, latency = rate * factor, latency * factor
                source = Source(start, end, rate, latency, at, tier, False)
                load += latency + (min(end, usable) - start) * rate
                slowest = max(slowest, rate)
                out.append(source)
                if not known:
                    guessed.append(source)
        depth = self.depth.get(at, 0)
        # elsewhere is looked at where somebody has more, or might bring it sooner than the worker's own tiers
        if self.deepest > depth or (depth and load > factor * (self.fleet.quickest + self.per_block)):
            self._remote(row, depth, slowest, out, guessed)
        return out, guessed

    def _profile(self, at: int) -> list[tuple[int, int, str, float, float, bool]]:
        """(from, to, tier, ms a block, latency, known) of a candidate's runs, holes left out, made once."""
        found = self.profiles.get(at)
        if found is None:
            found = self.profiles[at] = []
            start = 0
            for end, tier in self.runs[at]:
                if end > start:
                    if tier != HOLE and start < self.usable:
                        found.append((start, end, tier, *self._tier(at, tier)))
                    start = end
        return found

    def _tier(self, at: int, tier: str) -> tuple[float, float, bool]:
        """ms a block, latency, and whether that is the worker's own word. `hbm` is where it computes."""
        fleet, size = self.fleet, self.ask.block_bytes
        for t in fleet.candidates[at].tiers:
            if t.tier == tier:
                return size / t.bytes_per_ms, t.latency_ms, True
        if tier == "hbm":
            return 0.0, 0.0, True
        usual = fleet.tiers.get(tier)
        if usual is None:
            usual = fleet.params["unknown_bytes_per_ms"], fleet.params["unknown_latency_ms"]
        return size / usual[0], usual[1], False

    def _remote(self, row: Row, low: int, slowest: float, out: list[Source], guessed: list[Source]) -> None:
        """Adds what may be fetched: streamed from the holder's tier, so the slower of tier and edge, and both waits.

        What the worker has itself, no slower, is left out: `low` blocks, none slower than `slowest` ms.
        """
        factor = row.load
        near = self._reachable(row)
        if len(near) > HOLDERS:
            near = self._nearest(row, low, near)
        for holder, depth, wait, wire in near:
            if holder == row.at:
                continue
            for start, end, tier, rate, latency, known in self._profile(holder):
                if start >= depth:
                    break
                rate = factor * (rate if rate > wire else wire)
                if end <= low and rate >= slowest:
                    continue
                source = Source(start, end, rate, factor * (latency + wait), holder, tier, True)
                out.append(source)
                if not known:
                    guessed.append(source)

    def _nearest(self, row: Row, low: int, near: list[Near]) -> list[Near]:
        """Those that would be best alone: the deepest of each speed, then by what the rest takes."""
        n, size, best = self.ask.prompt_tokens, self.ask.block_tokens, []
        a, b, factor = row.linear, row.square, row.load
        for i, (_, depth, wait, wire) in enumerate(near):
            m = (depth if depth > low else low) * size
            more = depth - low if depth > low else 0
            best.append((factor * (wait + more * wire) + a * (n - m) + b * (n * n - m * m), i))
        best.sort()
        return [near[i] for _, i in best[:HOLDERS] if near[i][0] != row.at]

    def _decode(self, row: Row) -> tuple[int, float, float, float, tuple[str, ...]]:
        """Who decodes, and what transfer, queue and first step take: itself, or who takes least with the transfer."""
        own, fleet = row.own_decode, self.fleet
        best: tuple[int, float, float, float, tuple[str, ...]] | None = None
        least = math.inf
        if own is not None:
            best, least = (row.at, 0.0, row.queue_d, row.first, row.unknown_d), own
            if not fleet.dedicated:
                return best
        to, exposed = fleet.edges.get(row.node, _NO_EDGES), row.transfer * fleet.params["transfer_exposed"]
        floor = self.sent * row.transfer
        for d in fleet.decoders:
            if d.ms + floor >= least:
                break
            edge = to.get(d.node)
            known = edge or fleet.edge
            blocks = self.tail_blocks - self.depth.get(d.at, 0)
            ms = (known.latency_ms + blocks * self.ask.block_bytes / known.bytes_per_ms) * exposed
            if d.ms + ms < least:
                least = d.ms + ms
                best = (d.at, ms, d.queue_d, d.first, d.unknowns if edge else ("transfer", *d.unknowns))
        assert best is not None, "who only prefills is no row where nobody decodes"
        return best

    def notes(self, row: Row) -> tuple[str, ...]:
        """What put the worker behind others, and whether the session was there."""
        if not self.over and self.ask.session_node is None:
            return ()
        note = self.over.get(row.at)
        there = self.ask.session_node is not None and row.node == self.ask.session_node
        return tuple(n for n in (note, "session" if there else None) if n)

    def card(self, e: Exact, score: float, unknowns: tuple[str, ...] = ()) -> Card:
        """The worker as the answer shows it."""
        plan = []
        for low, high, i in e.split.parts:
            s = e.sources[i]
            plan.append(Range(low, high, "remote" if s.remote else "local", s.candidate, s.tier))
        plan.append(Range(e.split.blocks, self.tail_blocks, "compute", e.row.at, ""))
        total = e.terms.total_ms
        names = e.unknowns + unknowns if unknowns else e.unknowns
        return Card(e.row.at, total, e.terms, e.split.blocks, tuple(plan), e.decode, score, names, self.notes(e.row))


def _whole(runs: tuple[tuple[int, str], ...]) -> int:
    """Blocks from the first on without a hole."""
    depth = 0
    for end, tier in runs:
        if tier == HOLE and end > depth:
            break
        depth = end
    return depth
