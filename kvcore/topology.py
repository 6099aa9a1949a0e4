"""Decides how far nodes are from each other, where a session's blocks should lie together, and what a loss would take.

An edge is what was measured, where it was measured often and lately enough; else what was declared for the narrowest
level that both nodes share. Domains are what fails or is slow together: a session scattered over many of them loses
nearly all of its prefix with any one. Called by the router (edges), placement, and the Topology page (what if).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from zlib import crc32

import msgspec

from kvcore.cards import Curve, Edge

LEVELS = ("node", "leaf", "row", "dc", "region")
"""From narrow to wide: a NUMA node or NIC is an edge's own measurement, not a level."""
SAMPLES = 8
"""Measurements from which on they are believed before a declaration."""
MOST_AGE_MS = 600_000.0


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a node is. "" = not said; two that did not say share nothing there."""

    node: str
    leaf: str = ""
    row: str = ""
    dc: str = ""
    region: str = ""

    def at(self, level: str) -> str:
        """The name of its domain of the level: with all that is wider, as rows of two sites may have one name."""
        if level == "node":
            return self.node
        own = getattr(self, level)
        if not own:
            return ""
        wider = [getattr(self, name) for name in LEVELS[LEVELS.index(level) :]]
        return "/".join(reversed(wider))


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent measured from its node to another."""

    source: str
    target: str
    bytes_per_ms: float
    latency_ms: float
    samples: int
    age_ms: float


def shared_level(a: Place, b: Place) -> str | None:
    """The narrowest level that both are in, None if there is none."""
    return next((level for level in LEVELS if a.at(level) and a.at(level) == b.at(level)), None)


def edges(
    places: Sequence[Place],
    declared: Mapping[str, Edge],
    measured: Iterable[Measured] = (),
    *,
    samples: int = SAMPLES,
    most_age_ms: float = MOST_AGE_MS,
) -> dict[str, dict[str, Edge]]:
    """From node → to node → edge, for the scorer. What is neither measured nor declared is missing.

    Args:
        places: all nodes.
        declared: by level, between two nodes that share it and nothing narrower.
        measured: by agents; older or fewer than the bounds counts only where nothing is declared.
        samples: from which on a measurement is believed before a declaration.
        most_age_ms: up to which age.
    """
    out: dict[str, dict[str, Edge]] = {}
    for a in places:
        for b in places:
            level = shared_level(a, b) if a.node != b.node else None
            if level is not None and level in declared:
                said = declared[level]
                out.setdefault(a.node, {})[b.node] = Edge(said.bytes_per_ms, said.latency_ms, "declared")
    known = {p.node for p in places}
    for m in measured:
        if m.source not in known or m.target not in known or m.bytes_per_ms <= 0 or m.latency_ms < 0:
            continue
        believed = m.samples >= samples and m.age_ms <= most_age_ms
        if believed or m.target not in out.get(m.source, {}):
            out.setdefault(m.source, {})[m.target] = Edge(m.bytes_per_ms, m.latency_ms, "measured")
    return out


def scatter_index(domains: Iterable[str]) -> int:
    """Domains over which one session's blocks lie; 1 is together."""
    return len(set(domains))


def mean_scatter(sessions: Iterable[Iterable[str]]) -> float | None:
    """Mean scatter index, None where there are no sessions."""
    found = [scatter_index(s) for s in sessions]
    return sum(found) / len(found) if found else None


def place(
    nodes: Mapping[str, str], free_bytes: Mapping[str, int], size_bytes: int, *, domain: str = "", affinity: int = 0
) -> str | None:
    """The node on which a session's next blocks should lie, None where none has room.

    Args:
        nodes: node → domain.
        free_bytes: by node; missing = none.
        size_bytes: of the blocks.
        domain: where the session's blocks are; "" = nowhere yet, and the domain with the most room is taken.
        affinity: a number of the session, which decides between equals.
    """
    open_ = [n for n in nodes if free_bytes.get(n, 0) >= size_bytes]
    if not open_:
        return None
    room: dict[str, int] = {}
    for n in open_:
        room[nodes[n]] = room.get(nodes[n], 0) + free_bytes[n]
    home = domain if domain in room else max(room, key=lambda d: (room[d], _mixed(d, affinity)))
    return max((n for n in open_ if nodes[n] == home), key=lambda n: (free_bytes[n], _mixed(n, affinity)))


def _mixed(name: str, affinity: int) -> int:
    return crc32(f"{name}\0{affinity}".encode())


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """A prefix that is asked for: runs (blocks, nodes that hold them) from its start, and what it is worth.

    `requests` = how often it is asked for in the time looked at, `prompt_tokens` of one such request.
    """

    runs: tuple[tuple[int, frozenset[str]], ...]
    block_tokens: int
    prompt_tokens: int
    requests: float = 1.0

    @property
    def blocks(self) -> int:
        """All of it, usable or not."""
        return sum(count for count, _ in self.runs)


def usable_blocks(chain: Chain, gone: Collection[str]) -> int:
    """Leading blocks that somebody still holds."""
    out, away = 0, frozenset(gone)
    for count, nodes in chain.runs:
        if nodes <= away:  # also where nobody holds them
            break
        out += count
    return out


class Blast(msgspec.Struct, frozen=True, kw_only=True):
    """What losing nodes takes. Rates are of tokens; ms are of prefill, of the requests in the time looked at."""

    chains: int
    broken: int
    """Chains that get shorter."""
    blocks_lost: int
    """Blocks that nobody holds any more."""
    blocks_unusable: int
    """Blocks that cannot be used any more, with those behind a missing one."""
    hit_before: float
    hit_after: float
    prefill_ms_before: float
    prefill_ms_after: float
    surge: float | None
    """None where nothing was computed before."""


def blast_radius(chains: Iterable[Chain], gone: Collection[str], curve: Curve) -> Blast:
    """What happens to the chains when these nodes are gone."""
    total = broken = lost = unusable = 0
    tokens = hits = hits_after = before = after = 0.0
    away = frozenset(gone)
    for c in chains:
        total += 1
        was, left = usable_blocks(c, ()), usable_blocks(c, away)
        broken += left < was
        lost += sum(count for count, nodes in c.runs if nodes and nodes <= away)
        unusable += was - left
        # one token is always computed
        cached = [min(b * c.block_tokens, c.prompt_tokens - 1) for b in (was, left)]
        tokens += c.requests * c.prompt_tokens
        hits += c.requests * cached[0]
        hits_after += c.requests * cached[1]
        before += c.requests * curve.suffix_ms(cached[0], c.prompt_tokens)
        after += c.requests * curve.suffix_ms(cached[1], c.prompt_tokens)
    return Blast(
        chains=total,
        broken=broken,
        blocks_lost=lost,
        blocks_unusable=unusable,
        hit_before=hits / tokens if tokens else 0.0,
        hit_after=hits_after / tokens if tokens else 0.0,
        prefill_ms_before=before,
        prefill_ms_after=after,
        surge=after / before if before > 0 else None,
    )
