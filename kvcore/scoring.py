"""Decides where a request goes: filters with reasons, seven terms in ms, a pick. Deterministic; knows no clock."""

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
from kvcore.policies import Policy

__all__ = [
    "NOTHING_LEARNED", "Ask", "Candidate", "Card", "Choice", "Curve", "Edge", "Edges", "Filtered", "Held", "Learned",
    "Policy", "Range", "Replicate", "Terms", "TierLoad", "score",
]  # fmt: skip


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
        held: what they hold of the chain, by their position in `candidates`.
        edges: between nodes.
        policy: decides among those that are left.
        learned: what outcomes have taught; nothing = the terms as they are.
    """
    raise NotImplementedError
