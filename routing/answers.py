"""Decides what an answer of `/route` looks like: the decision, why, and the leave to carry it out.

JSON has bytes as hex, msgpack as they are. Called by `deciding`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from kvcore.cards import COMPUTE, LOCAL, Candidate, Card, Choice, Replicate, Terms
from kvcore.tickets import Ticket

CARDS = 8


class Place(msgspec.Struct, frozen=True):
    """One worker. `node` is its name."""

    node: str
    source: str
    dp_rank: int


class Part(msgspec.Struct, frozen=True):
    """One range of blocks and where it comes from; `tier` is null where it is computed."""

    from_block: int
    to_block: int
    source: str
    node: str
    tier: str | None


class CardOut(msgspec.Struct, frozen=True, omit_defaults=True):
    """One candidate: what it would take, or why it was not scored."""

    node: str
    source: str
    dp_rank: int
    total_ms: float | None
    terms: Terms | None
    overlap_tokens: int | None
    unknowns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    filtered_by: str = ""


class Predicted(msgspec.Struct, frozen=True):
    """The time to first token that is expected, and its seven terms."""

    ttft_ms: float
    terms: Terms


class IndexState(msgspec.Struct, frozen=True):
    """How fresh the index was; see `routing.replica.Found`."""

    seq: int
    age_ms: int
    mode: str


class Answer(msgspec.Struct, frozen=True, omit_defaults=False):
    """The whole. `decode_ticket`: where another node decodes. `ticket` null: the namespace is not known now."""

    decision_id: str
    prefill: Place
    decode: Place
    cache_salt: str | None
    plan: list[Part]
    ticket: dict[str, Any] | None
    decode_ticket: dict[str, Any] | None
    overlap_tokens: int
    predicted: Predicted
    cards: list[CardOut]
    index: IndexState
    policy: str
    policy_version: int
    why: str
    replicate: dict[str, Any] | None = None
    grants: list[dict[str, Any]] = []
    """Tickets for the nodes that the plan fetches from; whoever carries the request passes them on."""


def place(candidate: Candidate) -> Place:
    """The worker as the caller names it."""
    return Place(candidate.name, candidate.source, candidate.dp_rank)


def parts(card: Card, candidates: Sequence[Candidate]) -> list[Part]:
    """The plan by names."""
    own = candidates[card.candidate].name
    return [
        Part(
            r.from_block,
            r.to_block,
            r.source,
            own if r.source in (LOCAL, COMPUTE) else candidates[r.candidate].name,
            None if r.source == COMPUTE else r.tier,
        )
        for r in card.plan
    ]


def cards(choice: Choice, candidates: Sequence[Candidate], block_tokens: int, prompt_tokens: int) -> list[CardOut]:
    """The best of those that were scored, then some of those that were not, eight together."""
    out = []
    for card in choice.cards[:CARDS]:
        c = candidates[card.candidate]
        overlap = min(prompt_tokens, card.overlap_blocks * block_tokens)
        out.append(CardOut(c.name, c.source, c.dp_rank, card.total_ms, card.terms, overlap, card.unknowns, card.notes))
    for left_out in choice.filtered[: CARDS - len(out)]:
        c = candidates[left_out.candidate]
        out.append(CardOut(c.name, c.source, c.dp_rank, None, None, None, filtered_by=left_out.filtered_by))
    return out


def ticket_body(ticket: Ticket, text: Callable[[bytes], Any]) -> dict[str, Any]:
    """The ticket's fields; bytes as `text` makes them (hex for JSON)."""
    scope = ticket.scope
    body: dict[str, Any] = {
        "node": ticket.node,
        "ns": text(ticket.ns),
        "gen": ticket.gen,
        "expires_at": ticket.expires_at,
        "mac": text(ticket.mac),
        "scope": None,
    }
    if scope is not None:
        peers = [{"node": p.node, "role": p.role, "public_key": text(p.public_key), "url": p.url} for p in scope.peers]
        body["scope"] = {"decision": scope.decision, "blocks": scope.blocks, "upto": text(scope.upto), "peers": peers}
    return body


def replicate(told: Replicate | None, candidates: Sequence[Candidate]) -> dict[str, Any] | None:
    """The hint that a hot head should be held by more workers; `node` null: by the one that was picked."""
    if told is None:
        return None
    node = None if told.target is None else candidates[told.target].name
    return {"blocks": told.blocks, "copies": told.copies, "wanted": told.wanted, "node": node}


def unscored(candidate: Candidate, choice: Choice) -> CardOut:
    """The card of a worker that is not among those of the choice, with why."""
    why = next((f.filtered_by for f in choice.filtered if choice.prefill is None), "health")
    return CardOut(candidate.name, candidate.source, candidate.dp_rank, None, None, None, filtered_by=why)
