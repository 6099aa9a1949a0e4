"""Decides which blocks of a prompt are loaded from where, and from which block on they are computed.

Loading stops where computing begins: what is computed attends to all before it, so nothing after it may be loaded. Per
source the cost is its latency, once, and its time per block; switching costs the latency of the next. Nothing overlaps:
loading is thought to be over when computing begins. Prefill costs no less per token the longer the prompt, so within a
range the cost is concave and the best end of loading is the end of some range: only those are tried.

The sources are few (a worker's own runs and some remote holders), so the best split is found exactly, by one pass over
the ranges that remembers the cheapest way to have arrived with each source. Called by `kvcore.scoring`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kvcore.cards import LOCAL, REMOTE


class Source(NamedTuple):
    """Where blocks [start, end) can be loaded from."""

    start: int
    end: int
    ms_per_block: float
    latency_ms: float
    candidate: int
    tier: str
    remote: bool

    @property
    def kind(self) -> str:
        """Its word in a plan."""
        return REMOTE if self.remote else LOCAL


class Split(NamedTuple):
    """Blocks [0, blocks) are loaded in `load_ms`, by `parts` (from, to, number of the source); the rest is computed."""

    blocks: int
    load_ms: float
    parts: tuple[tuple[int, int, int], ...]


NOTHING = Split(0, 0.0, ())
_FAR = float("inf")


def split(sources: Sequence[Source], usable: int, *, block_tokens: int, linear_ms: float, square_ms: float) -> Split:
    """The cheapest split of the prompt, the longest loading among equals.

    Args:
        sources: in the order of preference among equals.
        usable: blocks that may be loaded: at least one token of the prompt is computed.
        block_tokens: tokens of a block.
        linear_ms: of the prefill curve; `square_ms` too. The base is paid anyway.
    """
    if not sources or usable <= 0:
        return NOTHING
    if not any(s.remote for s in sources):
        return _chain(sources, usable, block_tokens, linear_ms, square_ms)
    spans = [(i, s[0], s[1], s[2], s[3]) for i, s in enumerate(sources)]
    marks = sorted({0, *(min(s[0], usable) for s in sources), *(min(s[1], usable) for s in sources)})
    cost = [_FAR] * len(spans)
    came: list[list[int]] = []
    arrived, last, low = 0.0, -1, 0
    # what loading costs less what computing it would; the base and all the rest are the same for every end
    best, best_at, best_source, best_load = 0.0, 0, -1, 0.0
    for at, high in enumerate(marks[1:], 1):
        now, via = [_FAR] * len(spans), [-1] * len(spans)
        nearest, nearest_source, wide = _FAR, -1, high - low
        for i, start, end, rate, latency in spans:
            if start > low or end < high:
                continue
            stay, ms = cost[i], arrived + latency
            via[i] = last
            if stay <= ms:
                ms, via[i] = stay, i
            now[i] = ms = ms + wide * rate
            if ms < nearest:
                nearest, nearest_source = ms, i
        came.append(via)
        if nearest_source < 0:
            break
        cost, arrived, last, low = now, nearest, nearest_source, high
        tokens = high * block_tokens
        total = nearest - tokens * (linear_ms + square_ms * tokens)
        if total <= best:
            best, best_at, best_source, best_load = total, at, nearest_source, nearest
    if not best_at:
        return NOTHING
    return Split(marks[best_at], best_load, _parts(marks, came, best_at, best_source))


def _chain(sources: Sequence[Source], usable: int, block_tokens: int, linear_ms: float, square_ms: float) -> Split:
    """The same where nothing is held twice: a worker's own runs lie one behind the other."""
    best, load, depth, blocks, count, load_at = 0.0, 0.0, 0, 0, 0, 0.0
    for at, s in enumerate(sources, 1):
        if s.start != depth or depth >= usable:
            break
        depth = min(s.end, usable)
        load += s.latency_ms + (depth - s.start) * s.ms_per_block
        tokens = depth * block_tokens
        total = load - tokens * (linear_ms + square_ms * tokens)
        if total <= best:
            best, blocks, count, load_at = total, depth, at, load
    return Split(blocks, load_at, tuple((s.start, min(s.end, usable), i) for i, s in enumerate(sources[:count])))


def _parts(marks: list[int], came: list[list[int]], at: int, source: int) -> tuple[tuple[int, int, int], ...]:
    parts: list[tuple[int, int, int]] = []
    while at > 0:
        low, high = marks[at - 1], marks[at]
        if parts and parts[-1][2] == source:
            parts[-1] = (low, parts[-1][1], source)
        else:
            parts.append((low, high, source))
        source = came[at - 1][source]
        at -= 1
    return tuple(reversed(parts))
