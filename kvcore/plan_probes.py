"""Decides who else looks at a place after its node has looked: only then is more said of it than the node's own word.

Memory is read by a node on the same machine, a store of its own by any node that has a share in it. What lies
encrypted on a disk is judged by its keys. A probe is asked for once a look found nothing, of one node after the other;
where nobody sees the medium the class stays capped, and nothing waits for it. Called by `plan_steps` and `plan_state`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvcore.plan_steps import Observed, OwnerSeen, Standing

MEMORY_TIERS = frozenset({"hbm", "pinned", "dram"})
SHARED_TIERS = frozenset({"remote"})
PROBES_MOST = 3
"""Nodes that are asked after each look, at most."""
PATIENCE_SECONDS = 10.0
"""After a look: what nobody has seen by then is not waited for."""


def probers(seen: OwnerSeen, owners: Iterable[OwnerSeen]) -> tuple[str, ...]:
    """Nodes that may see the place's medium, by name: never its own."""
    others = [o for o in owners if o.node != seen.node and o.reachable and not o.retired]
    if seen.tier in MEMORY_TIERS and seen.host:
        return tuple(sorted({o.node for o in others if o.host == seen.host}))
    if seen.tier in SHARED_TIERS:
        return tuple(sorted({o.node for o in others if o.tier == seen.tier}))
    return ()


def prober(one: Standing, observed: Observed) -> str:
    """The node that is to look at the place now, "" where it was looked at, or nobody is left to ask."""
    held = one.seen.total_bytes or any(step.blocks for step in one.ended["erase"])
    if one.last is None or not (observed.probes and one.clean and one.asked and held):
        return ""
    asked = [step for step in one.ended["probe"] if step.at >= one.last.at]
    nodes = probers(one.seen, observed.owners)
    if any(step.good for step in asked) or observed.now > one.last.at + PATIENCE_SECONDS:
        return ""
    return nodes[len(asked)] if len(asked) < min(PROBES_MOST, len(nodes)) else ""
