"""Decides what the page of topology shows: domains, edges with their age, scatter, and what losing a node would take.

What a loss takes is worked out over the newest recorded requests, with what each candidate held then: simulated, and
marked as such. An edge is what the fetching node measured; what nobody measured or declared is missing, not fast.
Called by `views`.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from statistics import mean
from typing import Any, NamedTuple

from django.http import QueryDict

from catalog.selectors import NodeView, fleet_view
from catalog.selectors.loads import Reported, worker_loads
from frontend.routing import sentences
from kvcore.cards import COMPUTE, HOLE, Curve
from kvcore.economics import usable_after_loss
from kvcore.topology import (
    MOST_AGE_MS,
    SAMPLES,
    Blast,
    Chain,
    Measured,
    Place,
    blast_radius,
    mean_scatter,
    shared_level,
)
from routing import selectors
from routing.packing import Inputs

REQUESTS = 200
"""Recorded ones over which a loss is worked out."""
NODES_MOST = 64


class EdgeLine(NamedTuple):
    """What bringing bytes from one node to another cost the one that fetched. `level` None = they share no domain."""

    source: str
    target: str
    level: str | None
    gb_per_s: float
    latency_ms: float
    samples: int
    age_s: float
    believed: bool


def page(now: datetime, data: QueryDict) -> dict[str, Any]:
    """The page."""
    nodes = fleet_view(now=now).nodes
    names = {node.id: node.name for node in nodes}
    places = {node.name: place(node) for node in nodes}
    inputs = selectors.recorded(limit=REQUESTS)
    found = chains(inputs)
    curve = typical_curve(inputs)
    gone = [name for name in data.getlist("without") if name in places]
    blasts = [(node, blast_radius(found, [node.name], curve)) for node in nodes[:NODES_MOST]] if found else []
    blocks = mean(chain.blocks for chain in found) if found else None
    return {
        "nodes": nodes,
        "edges": edge_lines(measured(worker_loads(), names, now), places),
        "domains": domains(nodes),
        "blasts": blasts,
        "gone": gone,
        "choices": [(node.name, node.name in gone) for node in nodes],
        "loss": blast_radius(found, gone, curve) if gone and found else None,
        "requests": len(found),
        "scatter": mean_scatter(sources(inputs)),
        "spread": usable_after_loss(len(nodes), round(blocks)) if blocks and len(nodes) > 1 else None,
        "blocks": blocks,
        "curve": curve,
        "samples": SAMPLES,
        "most_age_s": MOST_AGE_MS / 1000,
        "answer": sentences.topology(nodes, worst(blasts), len(found)),
        "as_of": now,
    }


def place(node: NodeView) -> Place:
    """Where a node is: its rack is the leaf, its zone the site."""
    return Place(node=node.name, leaf=node.rack, dc=node.zone, region=node.region)


def domains(nodes: Sequence[NodeView]) -> list[tuple[str, str, str, list[NodeView]]]:
    """(region, zone, rack, nodes) by name."""
    found: dict[tuple[str, str, str], list[NodeView]] = {}
    for node in nodes:
        found.setdefault((node.region, node.zone, node.rack), []).append(node)
    return [(*where, found[where]) for where in sorted(found)]


# --- edges ------------------------------------------------------------------------------------------------------------


def measured(reported: Iterable[Reported], names: Mapping[str, str], now: datetime) -> list[Measured]:
    """What was measured: the one that reports has fetched, from the node that it names."""
    known = set(names.values())
    out = []
    for one in reported:
        target, age = names.get(str(one.node), ""), max(0.0, (now - one.at).total_seconds() * 1000)
        for said, (rate, latency, samples) in one.load.edges.items():
            source = names.get(said, said)
            if samples and source in known and target:
                out.append(Measured(source=source, target=target, bytes_per_ms=rate, latency_ms=latency,
                                    samples=samples, age_ms=age))  # fmt: skip
    return out


def edge_lines(found: Iterable[Measured], places: Mapping[str, Place]) -> list[EdgeLine]:
    """One line an edge, by name."""
    lines = [
        EdgeLine(
            m.source, m.target, shared_level(places[m.source], places[m.target]), m.bytes_per_ms / 1e6, m.latency_ms,
            m.samples, m.age_ms / 1000, m.samples >= SAMPLES and m.age_ms <= MOST_AGE_MS,
        )
        for m in found
    ]  # fmt: skip
    return sorted(lines)


# --- what a loss takes ------------------------------------------------------------------------------------------------


def chains(inputs: Iterable[Inputs]) -> list[Chain]:
    """The prefix of each recorded request, with who held which part of it then."""
    return [chain(one) for one in inputs]


def chain(one: Inputs) -> Chain:
    """Runs of blocks that the same nodes held, from the first block on; where nobody held the next one it ends."""
    masks: list[tuple[str, list[tuple[int, int]]]] = []
    for held in one.held:
        spans, before = list[tuple[int, int]](), 0
        for depth, tier in held.runs:
            if tier != HOLE:
                spans.append((before, depth))
            before = depth
        masks.append((one.candidates[held.candidate].name, spans))
    edges = sorted({0, *(at for _, spans in masks for span in spans for at in span)})
    runs: list[tuple[int, frozenset[str]]] = []
    for begin, end in pairwise(edges):
        nodes = frozenset(name for name, spans in masks if any(a <= begin and end <= b for a, b in spans))
        if not nodes:
            break
        runs.append((end - begin, nodes))
    return Chain(runs=tuple(runs), block_tokens=one.ask.block_tokens, prompt_tokens=one.ask.prompt_tokens)


def typical_curve(inputs: Sequence[Inputs]) -> Curve:
    """The curve of the worker that was picked for the newest request that has one; else none is known."""
    for one in inputs:
        card = one.choice.prefill if one.choice else None
        if card and one.candidates[card.candidate].curve.source != "unknown":
            return one.candidates[card.candidate].curve
    return Curve(0.0, 0.0, 0.0, "unknown")


def sources(inputs: Iterable[Inputs]) -> list[list[str]]:
    """The domains from which each request's blocks came, where any came."""
    out = []
    for one in inputs:
        card = one.choice.prefill if one.choice else None
        parts = [p for p in card.plan if p.source != COMPUTE] if card else []
        if parts:
            out.append([one.candidates[p.candidate].domain for p in parts])
    return out


def worst(blasts: Sequence[tuple[NodeView, Blast]]) -> tuple[NodeView, Blast] | None:
    """The node whose loss makes the most prefill; None where no loss makes any."""
    return max(
        (pair for pair in blasts if pair[1].broken), key=lambda pair: pair[1].prefill_ms_after, default=None
    )  # fmt: skip
