"""Decides how decisions, their mix, prefixes and blast radii are worded in one sentence, made of recorded figures.

Names of workers come from the caller: a node's name as a link for the fleet's people, a number within the decision for
a tenant's own. Called by `decisions`, `decision`, `prefixes` and `topology`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from catalog.prefix_reads import PrefixView
from catalog.selectors import NodeView
from frontend import formats
from frontend.routing.wording import GATES, POLICIES
from frontend.sentences import fill, link
from kvcore.cards import HOLE, Card, Choice, Held
from kvcore.topology import Blast
from routing.packing import Inputs
from routing.selectors import Compared, Mix, PolicyView

Name = Callable[[int], Any]


def every() -> str:
    """The choice of a filter that leaves all."""
    return pgettext("filter", "all")


def together(parts: Sequence[Any]) -> SafeString:
    """Sentences behind each other."""
    return format_html_join(" ", "{}", ((part,) for part in parts if part))


def ms(value: float) -> str:
    """Milliseconds as sentences tell them."""
    return pgettext("duration", "%(n)s ms") % {"n": f"{value:,.1f}" if value < 9.95 else f"{value:,.0f}"}


# --- one decision -----------------------------------------------------------------------------------------------------


def leading(held: Sequence[Held], candidate: int) -> int:
    """Blocks from the first one on that the candidate holds without a hole."""
    runs = next((one.runs for one in held if one.candidate == candidate), ())
    depth = 0
    for until, tier in runs:
        if tier == HOLE:
            break
        depth = until
    return depth


def tiers(card: Card) -> list[str]:
    """Tiers from which the plan loads, each once, in the order of the prompt."""
    return list(dict.fromkeys(part.tier for part in card.plan if part.source == "local" and part.tier))


def decided(inputs: Inputs, name: Name) -> SafeString:
    """Where the request went, why, and what else there was."""
    choice = inputs.choice
    if choice is None or choice.prefill is None:
        return nowhere(choice, name)
    return together([sent(inputs, choice.prefill, name), rival(inputs, choice, choice.prefill, name)])


def nowhere(choice: Choice | None, name: Name) -> SafeString:
    """Nobody was left: which gate kept whom out."""
    filtered = choice.filtered if choice else ()
    if not filtered:
        return fill(_("<b>Sent nowhere:</b> there was no candidate."))
    first, rest = filtered[0], len(filtered) - 1
    said = fill(
        _("<b>Sent nowhere:</b> {worker} was kept out by the gate “{gate}”."),
        worker=name(first.candidate), gate=GATES.get(first.filtered_by, first.filtered_by),
    )  # fmt: skip
    more = ngettext("{n} more candidate was kept out, too.", "{n} more candidates were kept out, too.", rest)
    return together([said, fill(more, n=formats.number(rest)) if rest else ""])


def sent(inputs: Inputs, card: Card, name: Name) -> SafeString:
    """The pick, with what it holds; what is fetched from another is said of whom."""
    total, worker = inputs.ask.blocks, name(card.candidate)
    held = leading(inputs.held, card.candidate)
    fetched = [part for part in card.plan if part.source == "remote"]
    if held and (places := tiers(card)):
        text = _("<b>Sent to {worker}</b> because it holds {n} of {all} blocks in {tiers}.")
        first = fill(text, worker=worker, n=f"{held:,}", all=f"{total:,}", tiers=formats.joined(places))
    elif fetched:
        first = fill(_("<b>Sent to {worker}</b>, which fetches what it does not hold."), worker=worker)
    else:
        text = _(
            "<b>Sent to {worker}</b>: nothing of its {all} blocks is loaded, and it is expected to begin after {ms}."
        )
        first = fill(text, worker=worker, all=f"{total:,}", ms=ms(card.total_ms))
    if not fetched:
        return first
    blocks = sum(part.to_block - part.from_block for part in fetched)
    text = ngettext("{n} block comes from {source}.", "{n} blocks come from {source}.", blocks)
    sources = dict.fromkeys(part.candidate for part in fetched)
    return together([first, fill(text, n=f"{blocks:,}", source=_names([name(i) for i in sources]))])


def _names(of: Sequence[Any]) -> SafeString:
    return format_html_join(", ", "{}", ((one,) for one in of))


def rival(inputs: Inputs, choice: Choice, picked: Card, name: Name) -> SafeString | str:
    """Who held more and was not picked, and the reason; else who would have been next."""
    held = {i: leading(inputs.held, i) for i in range(len(inputs.candidates)) if i != picked.candidate}
    most = max(held, key=lambda i: (held[i], -i), default=None)
    if most is not None and held[most] > leading(inputs.held, picked.candidate):
        return _held_more(inputs, choice, picked, most, held[most], name)
    others = [card for card in choice.cards if card.candidate != picked.candidate]
    if not others:
        return ""
    nearest = min(others, key=lambda card: (card.total_ms, card.candidate))
    return fill(_("{worker} would have taken {ms}."), worker=name(nearest.candidate), ms=ms(nearest.total_ms))


def _held_more(inputs: Inputs, choice: Choice, picked: Card, at: int, blocks: int, name: Name) -> SafeString:
    gate = next((one.filtered_by for one in choice.filtered if one.candidate == at), "")
    if gate:
        text = _("{worker} had {n}, but the gate “{gate}” kept it out.")
        return fill(text, worker=name(at), n=f"{blocks:,}", gate=GATES.get(gate, gate))
    waiting = inputs.candidates[at].waiting
    if waiting and waiting > (inputs.candidates[picked.candidate].waiting or 0):
        text = ngettext(
            "{worker} had {n}, but {waiting} request queued.",
            "{worker} had {n}, but {waiting} requests queued.",
            waiting,
        )
        return fill(text, worker=name(at), n=f"{blocks:,}", waiting=f"{waiting:,}")
    card = next((one for one in choice.cards if one.candidate == at), None)
    if card is None:
        return fill(_("{worker} had {n}, but was not among the best."), worker=name(at), n=f"{blocks:,}")
    if card.total_ms > picked.total_ms:
        text = _("{worker} had {n}, but would have taken {ms}.")
        return fill(text, worker=name(at), n=f"{blocks:,}", ms=ms(card.total_ms))
    text = _("{worker} had {n} and was expected after {ms}, but the policy picks by other than time.")
    return fill(text, worker=name(at), n=f"{blocks:,}", ms=ms(card.total_ms))


# --- lists ------------------------------------------------------------------------------------------------------------


def routing(mix: Mix, counted: Mapping[str, int] | None) -> SafeString:
    """What was decided in the last hour; what was lost on the way comes first."""
    parts: list[Any] = []
    dropped = (counted or {}).get("dropped", 0)
    if dropped:
        text = ngettext(
            "<b>{n} decision was made and could not be recorded.</b>",
            "<b>{n} decisions were made and could not be recorded.</b>", dropped,
        )  # fmt: skip
        parts.append(fill(text, n=f"{dropped:,}"))
    if not mix.made:
        parts.append(
            fill(_("<b>No decision in the last hour.</b> A router writes one here for every request it is asked."))
        )
        return together(parts)
    near = mix.answers.get("hit", 0) + mix.answers.get("fetch", 0)
    text = ngettext(
        "<b>{n} decision in the last hour,</b> {share} of them with something that was there already.",
        "<b>{n} decisions in the last hour,</b> {share} of them with something that was there already.", mix.made,
    )  # fmt: skip
    parts.append(fill(text, n=f"{mix.made:,}", share=formats.share(near / mix.made)))
    refused = mix.answers.get("refused", 0)
    if refused:
        parts.append(fill(ngettext("{n} was refused.", "{n} were refused.", refused), n=f"{refused:,}"))
    if mix.regret_p50_ms is not None:
        parts.append(fill(_("Half of those measured cost at most {ms} more than the best in hindsight."),
                          ms=ms(mix.regret_p50_ms)))  # fmt: skip
    else:
        parts.append(fill(_("None was measured yet, so what they cost is unknown.")))
    return together(parts)


def without_inputs(row: Mapping[str, Any], worker: Any) -> SafeString:
    """What is left to say where nobody scored anything, or what it was scored from was not kept."""
    if row["answer"] == "refused":
        return fill(_("<b>Refused</b> before any candidate was scored. The code says why."))
    if row["answer"] == "recompute":
        text = _("<b>Sent to {worker}</b> to be computed: how far fences go was not known, so nothing might be read.")
        return fill(text, worker=worker)
    if row["origin"] != "router":
        return fill(
            _("<b>Sent to {worker}</b> by another router, which told the outcome and not its inputs."), worker=worker
        )
    return fill(_("<b>Sent to {worker}.</b> What it was decided from was not kept."), worker=worker)


def simulated(inputs: Inputs, told: Choice, name: Name) -> SafeString:
    """What the scorer would have said, against what it said."""
    before = inputs.choice.prefill if inputs.choice else None
    if told.prefill is None:
        return nowhere(told, name)
    worker, after = name(told.prefill.candidate), told.prefill.total_ms
    if before is None:
        return fill(_("It would have gone to {worker}, after {ms}."), worker=worker, ms=ms(after))
    change = after - before.total_ms
    if told.prefill.candidate == before.candidate and abs(change) < 0.05:
        return fill(_("It would have gone to {worker} just the same."), worker=worker)
    text = (
        _("It would have gone to {worker} and taken {ms}: {change} longer.")
        if change >= 0
        else _("It would have gone to {worker} and taken {ms}: {change} less.")
    )
    return fill(text, worker=worker, ms=ms(after), change=ms(abs(change)))


def prefixes(found: Sequence[PrefixView]) -> SafeString:
    """What was read most, and how often it lies there."""
    if not found:
        return fill(_("<b>Nothing that was cached was read in the last hour.</b>"))
    first = found[0]
    text = ngettext(
        "<b>{prefix} was read most:</b> {hits} tokens in the last hour, from {n} copy.",
        "<b>{prefix} was read most:</b> {hits} tokens in the last hour, from {n} copies.", first.copies,
    )  # fmt: skip
    hits = f"{first.hit_tokens:,}"
    said = fill(text, prefix=first.family, hits=hits if first.complete else f"≥ {hits}", n=f"{first.copies:,}")
    alone = sum(1 for one in found if one.copies == 1 and one.run_blocks)
    rest = ngettext("{n} of those below lies on one node alone.", "{n} of those below lie on one node alone.", alone)
    return together([said, fill(rest, n=f"{alone:,}") if alone else ""])


def compared(rows: Sequence[Compared], requests: int) -> SafeString:
    """Which policy would have been expected to answer first."""
    if not any(row.predicted_ms is not None for row in rows):
        return fill(
            _("<b>There is nothing to compare yet.</b> Policies are compared over requests that were recorded.")
        )
    known = [(row.predicted_ms, POLICIES.get(row.kind, row.kind)) for row in rows if row.predicted_ms is not None]
    text = ngettext(
        "<b>“{policy}” picks the shortest way</b> for {n} request: {ms} on the mean, against {longest} of “{other}”.",
        "<b>“{policy}” picks the shortest way</b> for {n} requests: {ms} on the mean, against {longest} of “{other}”.",
        requests,
    )
    (shortest, policy), (longest, other) = known[0], known[-1]
    return fill(text, policy=policy, n=f"{requests:,}", ms=ms(shortest), longest=ms(longest), other=other)


def economics(of: Mapping[str, Any]) -> SafeString:
    """What the calculators say together; a panel that cannot be read says nothing."""
    parts: list[Any] = []
    if (length := of.get("crossover_tokens")) and length.value:
        parts.append(fill(_("<b>Fetching beats computing above {n} tokens.</b>"), n=length.text))
    elif length and length.value == 0:
        parts.append(fill(_("<b>Fetching beats computing at every length.</b>")))
    elif length:
        parts.append(fill(_("<b>Fetching never beats computing</b> over this link.")))
    if (hits := of.get("hit_share")) and hits.value is not None and (interval := of.get("interval")):
        text = _("Keeping the object pays from a hit rate of {share}, or where it is used again within {time}.")
        parts.append(fill(text, share=hits.text, time=interval.text))
    elif hits:
        parts.append(fill(_("Keeping the object never pays: moving it costs what computing it does.")))
    if (model := of.get("surge_model")) and model.value is not None:
        parts.append(fill(_("Losing the hits makes {times} the prefill."), times=model.text))
    return together(parts)


def topology(nodes: Sequence[NodeView], worst: tuple[NodeView, Blast] | None, requests: int) -> SafeString:
    """Which node would be missed most, and how much."""
    if not nodes:
        return fill(_("<b>No node has joined yet.</b>"))
    if not requests:
        return fill(_("<b>What a loss would take is unknown:</b> no request was recorded with its inputs yet."))
    if worst is None:
        return fill(_("<b>No single loss makes a recorded prompt longer to compute:</b> all that was read lies twice."))
    node, blast = worst
    parts: list[Any] = []
    if blast.surge is None:
        parts.append(fill(_("<b>{node} would be missed most.</b>"), node=link(node.name)))
    else:
        text = _("<b>{node} would be missed most:</b> without it there is {times} the prefill.")
        parts.append(fill(text, node=link(node.name), times=f"{blast.surge:,.2f} ×"))
    text = ngettext(
        "{n} of {all} recorded prompts becomes longer to compute.",
        "{n} of {all} recorded prompts become longer to compute.", blast.broken,
    )  # fmt: skip
    parts.append(fill(text, n=f"{blast.broken:,}", all=f"{blast.chains:,}"))
    return together(parts)


def policies(known: Sequence[PolicyView]) -> SafeString:
    """What decides now."""
    default = next((one for one in known if one.name == "default"), None)
    kind = POLICIES[default.kind] if default else POLICIES["predicted"]
    version = default.version if default else 0
    first = fill(_("<b>Requests go by “{kind}”</b>, version {version} of the default."), kind=kind, version=version)
    own = sum(1 for one in known if one.model)
    more = ngettext("{n} model has a policy of its own.", "{n} models have a policy of their own.", own)
    return together([first, fill(more, n=f"{own:,}") if own else ""])


def policy(one: PolicyView) -> SafeString:
    """What a policy is, and since when."""
    if not one.in_force:
        return fill(_("<b>There is no policy of this name yet.</b> What is saved here becomes its first version."))
    if one.at is None:
        return fill(
            _("<b>Built in:</b> “{kind}” with its defaults, until somebody saves a version."), kind=POLICIES[one.kind]
        )
    text = _("<b>Version {version}, “{kind}”,</b> in force since {time}, by {who}.")
    return fill(text, version=one.version, kind=POLICIES[one.kind], time=formats.stamp(one.at), who=one.by)
