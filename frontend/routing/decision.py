"""Decides what the page of one decision shows: who was asked about, why it went where it went, and what it cost.

Everything comes from the recorded inputs, by the same code that decided: the sentence, the table, the ghost without
cache, what would have been otherwise. What is worked out here and never happened is marked as simulated. Called by
`views`.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from django.http import Http404, QueryDict
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from catalog.selectors import node_names
from frontend.context import version
from frontend.routing import sentences, waterfall
from frontend.routing.decisions import late, staff
from frontend.routing.wording import BARS, TERMS
from frontend.sentences import link
from kvconsole.infra.access import Principal
from kvcore.cards import HOLE, Card, Choice, Held
from kvcore.policies import KINDS, Policy, built_in
from routing import selectors
from routing.packing import Inputs, again, pack
from routing.selectors import DecisionView
from tenants.selectors import tenant_slugs

ABSENT = "unknown-candidate"


class Line(NamedTuple):
    """One candidate of the table. `terms` None = it was not scored; `gate` = the first gate that failed, "" = none."""

    number: int
    name: Any
    picked: bool
    gate: str
    held: int
    tiers: dict[str, int]
    terms: tuple[float, ...] | None
    total_ms: float | None
    score: float | None
    waiting: int | None
    queue_ms: float | None
    load_age_ms: float | None
    unknowns: tuple[str, ...]


class Names:
    """What workers are called: for the fleet's people by their node, for a tenant's by a number within the decision."""

    def __init__(self, inputs: Inputs | None, principal: Principal | None) -> None:
        self.inputs, self.fleet = inputs, staff(principal)
        self.known = frozenset(node_names()) if self.fleet else frozenset[str]()

    def __call__(self, at: int) -> SafeString | str:
        """The candidate at this place."""
        if not self.fleet or self.inputs is None:
            return _("worker %(n)s") % {"n": at + 1}
        one = self.inputs.candidates[at]
        return self.node(one.name or one.node)

    def node(self, name: str) -> SafeString | str:
        """A node by its name, with the way to its page where it has one."""
        return link(name) if name in self.known else name


def decision_or_404(decision: UUID) -> DecisionView:
    """The decision, where the caller may see it; a foreign one is as absent as one that never was."""
    found = selectors.decision_view(decision)
    if found is None:
        raise Http404
    return found


def page(now: datetime, found: DecisionView, data: QueryDict, principal: Principal | None) -> dict[str, Any]:
    """The page."""
    inputs, row = found.inputs, found.row
    names = Names(inputs, principal)
    choice = inputs.choice if inputs else None
    picked = choice.prefill if choice else None
    ghost = without_cache(inputs, picked.candidate) if inputs and picked else None
    fall = waterfall.rows(picked, found.measured, ghost) if picked else []
    return {
        "row": row,
        "id": str(row["id"]),
        "late": late(row["predicted_ms"], row["measured_ms"]),
        "fleet": names.fleet,
        "tenant": tenant_slugs({row["tenant_id"]}).get(row["tenant_id"], "") if names.fleet else "",
        "node": names.node(row["node"]) if names.fleet else "",
        "decode": names.node(row["decode_node"]) if names.fleet and row["decode_node"] else "",
        "answer": sentence(found, names),
        "ask": inputs.ask if inputs else None,
        "picked": picked,
        "lines": lines(inputs, choice, names) if inputs and choice else [],
        "widest": max((card.total_ms for card in choice.cards), default=0.0) if choice else 0.0,
        "fall": fall,
        "series": waterfall.series(fall, TERMS),
        "names": {kind: str(word) for kind, word in BARS.items()},
        "sums": waterfall.sums(picked, row["measured_ms"], ghost) if picked else None,
        "saved": ghost.total_ms - picked.total_ms if ghost and picked else None,
        "plan": plan(picked, names) if picked else [],
        "replay": "not-recorded" if found.reproducible is None else "same" if found.reproducible else "differs",
        "digest": f"sha256:{hashlib.sha256(pack(inputs)).hexdigest()}" if inputs else "",
        "version": version(),
        "what_if": what_if(inputs, data, names) if inputs and choice else None,
        "as_of": now,
    }


def sentence(found: DecisionView, names: Names) -> SafeString:
    """The head of the page; where the inputs are gone, what the row still says."""
    row = found.row
    if found.inputs is not None and found.inputs.choice is not None:
        return sentences.decided(found.inputs, names)
    return sentences.without_inputs(row, names.node(row["node"]) if names.fleet else _("a worker"))


# --- candidates -------------------------------------------------------------------------------------------------------


def lines(inputs: Inputs, choice: Choice, names: Names) -> list[Line]:
    """All candidates: the picked one, the others by their time, then those that a gate kept out, in its order."""
    cards = {card.candidate: card for card in choice.cards}
    gates = {one.candidate: one.filtered_by for one in choice.filtered}
    picked = choice.prefill.candidate if choice.prefill else None

    def order(at: int) -> tuple[int, float, int]:
        rank = 0 if at == picked else 1 if at in cards else 3 if at in gates else 2
        return rank, cards[at].total_ms if at in cards else 0.0, at

    known = sorted(range(len(inputs.candidates)), key=order)
    return [line(inputs, at, cards.get(at), gates.get(at, ""), at == picked, names) for at in known]


def line(inputs: Inputs, at: int, card: Card | None, gate: str, picked: bool, names: Names) -> Line:
    """One candidate. What others wait for is told the fleet's people alone."""
    one = inputs.candidates[at]
    return Line(
        number=at,
        name=names(at),
        picked=picked,
        gate=gate,
        held=sentences.leading(inputs.held, at),
        tiers=by_tier(inputs.held, at),
        terms=msgspec.structs.astuple(card.terms) if card else None,
        total_ms=card.total_ms if card else None,
        score=card.score if card else None,
        waiting=one.waiting if names.fleet else None,
        queue_ms=one.queue_ms if names.fleet else None,
        load_age_ms=one.load_age_ms if names.fleet else None,
        unknowns=card.unknowns if card else (),
    )


def by_tier(held: Sequence[Held], at: int) -> dict[str, int]:
    """Blocks that the candidate holds in each tier."""
    found: dict[str, int] = {}
    before = 0
    for depth, tier in next((one.runs for one in held if one.candidate == at), ()):
        if tier != HOLE:
            found[tier] = found.get(tier, 0) + depth - before
        before = depth
    return found


def plan(card: Card, names: Names) -> list[dict[str, Any]]:
    """The ranges of the plan, in the order of the prompt."""
    return [
        {"part": part, "blocks": part.to_block - part.from_block, "of": names(part.candidate)}
        for part in card.plan
    ]  # fmt: skip


# --- what never happened ----------------------------------------------------------------------------------------------


def without_cache(inputs: Inputs, picked: int) -> Card | None:
    """The picked one as it would have been had nobody held anything; others may still decode."""
    others = tuple(
        one if at == picked else msgspec.structs.replace(one, role="decode") for at, one in enumerate(inputs.candidates)
    )
    return again(msgspec.structs.replace(inputs, candidates=others, held=())).prefill


def absent(inputs: Inputs, gone: Sequence[int]) -> Inputs:
    """The same request had these candidates not been there; what they hold cannot be fetched either."""
    left = tuple(
        msgspec.structs.replace(one, refused=ABSENT) if at in gone else one for at, one in enumerate(inputs.candidates)
    )
    held = tuple(one for one in inputs.held if one.candidate not in gone)
    return msgspec.structs.replace(inputs, candidates=left, held=held)


def what_if(inputs: Inputs, data: QueryDict, names: Names) -> dict[str, Any]:
    """The recorded request without some candidates or by another policy; nothing is asked = nothing is simulated."""
    gone = [int(n) for n in data.getlist("without") if n.isdecimal() and int(n) < len(inputs.candidates)]
    kind = data.get("policy", "")
    rule: Policy | None = next((built_in(k) for k in KINDS if k == kind), None)
    asked = bool(gone or rule)
    told = again(absent(inputs, gone), rule) if asked else None
    return {
        "asked": asked,
        "gone": gone,
        "kind": rule.kind if rule else "",
        "choices": [(at, names(at), at in gone) for at in range(len(inputs.candidates))],
        "kinds": KINDS,
        "said": sentences.simulated(inputs, told, names) if told else None,
        "rows": compared(inputs, told, names) if told else [],
    }


def compared(inputs: Inputs, told: Choice, names: Names) -> list[tuple[Any, float | None, float | None, str]]:
    """(worker, ms as recorded, ms as simulated, gate now) of everybody who was scored in either."""
    before = {card.candidate: card.total_ms for card in (inputs.choice.cards if inputs.choice else ())}
    after = {card.candidate: card.total_ms for card in told.cards}
    gates = {one.candidate: one.filtered_by for one in told.filtered}
    order = [*after, *(at for at in before if at not in after)]
    return [(names(at), before.get(at), after.get(at), gates.get(at, "")) for at in order]
