"""Decides how the statements that selectors computed are worded: answers, alerts, honesty; worst first, as given.

Selectors speak in codes and params; each code has one function here. Names of nodes and families are escaped and
become links to their evidence. An unlisted code shows itself, so that a newer writer never breaks a page.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import get_language, ngettext
from django.utils.translation import gettext as _

from catalog.selectors import Alert, FamilyView, FleetView, NodeView, Sentence
from frontend import formats, wording

Params = dict[str, Any]


def link(name: str) -> SafeString:
    """A node's name as a link to its page."""
    return format_html('<a href="{}">{}</a>', reverse("page-node", args=[name]), name)


def links(names: Iterable[str], most: int = 3) -> SafeString:
    """Names of nodes; from the fourth on they are counted."""
    listed = list(names)
    shown = [link(n) for n in listed[:most]]
    rest = len(listed) - most
    if rest > 0:
        shown.append(format_html("{}", ngettext("%(n)s more", "%(n)s more", rest) % {"n": rest}))
    out = shown[0] if shown else SafeString("")
    for item in shown[1:-1]:
        out = format_html(_("{head}, {item}"), head=out, item=item)
    return format_html(_("{head} and {item}"), head=out, item=shown[-1]) if len(shown) > 1 else out


def fill(text: str, **values: Any) -> SafeString:
    """The translated text with escaped values; the text itself is ours and may carry `<b>`."""
    return format_html(text, **values) if values else SafeString(text)


def _list(p: Params, key: str = "nodes") -> list[str]:
    value = p.get(key, [])
    return [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else []


def _age(p: Params) -> str:
    for key, scale in (("age_ms", 1000), ("seconds", 1)):
        if isinstance(p.get(key), int | float):
            return str(formats.duration(p[key] / scale))
    return _("some time")


def _nodes_reporting(p: Params) -> SafeString:
    reporting, nodes = int(p.get("reporting", 0)), int(p.get("nodes", 0))
    if nodes == 0:
        return fill(_("<b>No node has joined yet.</b>"))
    if reporting == nodes:
        text = ngettext("<b>The only node reports.</b>", "<b>All {n} nodes report.</b>", nodes)
        return fill(text, n=nodes)
    return fill(_("<b>{k} of {n} nodes report.</b>"), k=reporting, n=nodes)


def _silent(p: Params) -> SafeString:
    names = _list(p) or _list(p, "node")
    text = ngettext("{names} has been silent for {age}.", "{names} are silent, the first since {age}.", len(names))
    return fill(text, names=links(names), age=_age(p))


def _lost(p: Params) -> SafeString:
    names = _list(p) or _list(p, "node")
    text = ngettext(
        "{names} is lost; nothing is routed to it.", "{names} are lost; nothing is routed to them.", len(names)
    )
    return fill(text, names=links(names))


def _sources(state: str) -> Callable[[Params], SafeString]:
    def say(p: Params) -> SafeString:
        names = _list(p) or _list(p, "node")
        if state == "recovering":
            text = ngettext("{names} is recovering events.", "{names} are recovering events.", len(names))
        else:
            text = ngettext("What {names} says is not exact.", "What {names} say is not exact.", len(names))
        return fill(text, names=links(names))

    return say


def _high(p: Params) -> SafeString:
    names, tier = _list(p) or _list(p, "node"), p.get("tier", "")
    text = ngettext(
        "{names} went above the high mark on {tier} in the last minute.",
        "{names} went above the high mark on {tier} in the last minute.",
        len(names),
    )
    return fill(text, names=links(names), tier=formats.joined(_list(p, "tiers")) or tier)


def _full(p: Params) -> SafeString:
    names = _list(p) or _list(p, "node")
    text = ngettext(
        "{tier} of {names} was full in the last minute.", "{tier} was full on {names} in the last minute.", len(names)
    )
    return fill(text, names=links(names), tier=formats.joined(_list(p, "tiers")) or p.get("tier", ""))


ANSWERS: dict[str, Callable[[Params], SafeString]] = {
    "nodes-reporting": _nodes_reporting,
    "node-silent": _silent,
    "node-lost": _lost,
    "source-recovering": _sources("recovering"),
    "source-degraded": _sources("degraded"),
    "source-lost": _sources("degraded"),
    "source-unlisted": _sources("degraded"),
    "tier-high": _high,
    "tier-full": _full,
    "writer-away": lambda p: fill(
        _("<b>The writer has said nothing for {age}:</b> what you see is last known."), age=_age(p)
    ),
    "no-nodes": lambda p: fill(_("<b>No node has joined yet.</b>")),
    "no-traffic": lambda p: fill(_("No request is coming in.")),
}


def answer(sentences: Iterable[Sentence]) -> SafeString:
    """The sentence at the head of a page, in the order in which the selector gave the statements."""
    parts = [_say(ANSWERS, s.code, s.params) for s in sentences]
    return format_html_join(_between(), "{}", ((p,) for p in parts))


def _between() -> str:
    """What stands between two sentences: nothing in Chinese."""
    return "" if (get_language() or "en").startswith("zh") else " "


def _say(words: dict[str, Callable[[Params], SafeString]], code: str, params: Params) -> SafeString:
    known = words.get(code)
    return known(params) if known else format_html("<code>{}</code>", code)


# --- alerts ---------------------------------------------------------------------------------------------------------


class Line(NamedTuple):
    """One alert as the log shows it."""

    severity: str
    since: datetime | None
    title: SafeString
    detail: SafeString | str


def _alert_title(alert: Alert) -> SafeString:
    node = link(alert.node) if alert.node else SafeString("")
    p = alert.params
    texts: dict[str, str] = {
        "node-silent": _("<b>{node} is silent.</b>"),
        "node-lost": _("<b>{node} is lost.</b>"),
        "source-recovering": _("<b>{node} is recovering.</b>"),
        "source-degraded": _("<b>{node} is degraded.</b>"),
        "source-lost": _("<b>A source of {node} is lost.</b>"),
        "source-unlisted": _("<b>{node} cannot be exact.</b>"),
        "tier-high": _("<b>{tier} of {node} went above its high mark</b> in the last minute."),
        "tier-full": _("<b>{tier} of {node} was full</b> in the last minute."),
        "refused": _("<b>Items of {node} were refused.</b>"),
        "writer-away": _("<b>The writer is away.</b>"),
    }
    text = texts.get(alert.code)
    return fill(text, node=node, tier=p.get("tier", "")) if text else format_html("<b>{}</b> {}", alert.code, node)


def _alert_detail(alert: Alert) -> SafeString | str:
    p, code = alert.params, alert.code
    if code in ("node-silent", "node-lost"):
        return _("Its last known bytes are veiled and not routable.")
    if code in ("source-recovering", "source-degraded", "source-lost"):
        return reason(str(p.get("reason", "")))
    if code == "source-unlisted":
        return _("Events were lost and this engine cannot list what it holds.")
    if code in ("tier-high", "tier-full"):
        part, peak = p.get("share"), p.get("peak")
        if not isinstance(part, int | float):
            return ""
        if not isinstance(peak, int | float) or peak <= part:
            return _("%(n)s used.") % {"n": formats.share(part)}
        return _("%(n)s used now, up to %(peak)s.") % {"n": formats.share(part), "peak": formats.share(peak)}
    if code == "refused":
        count = int(p.get("count", 0))
        return ngettext("%(n)s item so far", "%(n)s items so far", count) % {"n": f"{count:,}"}
    return _("Nothing is lost: agents keep their frames until they are committed.") if code == "writer-away" else ""


def alert_line(alert: Alert) -> Line:
    """An alert worded."""
    return Line(alert.severity, alert.since, _alert_title(alert), _alert_detail(alert))


def reason(code: str) -> str:
    """Why a source is not exact, as a sentence."""
    from frontend.problems import problem

    known = problem(code)
    text = str(known.title) if known else str(wording.word(wording.SOURCE_REASONS, code))
    return _("%(text)s.") % {"text": text[:1].upper() + text[1:]} if text else ""


# --- one node -------------------------------------------------------------------------------------------------------


def node_answer(node: NodeView) -> SafeString:
    """What a node's page begins with: its state, what is above its marks, how good its facts are."""
    tone = wording.state(wording.NODE_STATES, node.state)
    parts = [fill(_("<b>{name} is {state}.</b>"), name=node.name, state=tone.word)]
    full = [t.tier for t in node.tiers if t.state == "full"]
    high = [t.tier for t in node.tiers if t.state == "high"]
    if node.stale:
        text = _("It was last heard {age} ago; every number is the last known one.")
        parts.append(fill(text, age=formats.milliseconds(node.age_ms)))
    if full:
        parts.append(fill(ngettext("{tiers} is full.", "{tiers} are full.", len(full)), tiers=formats.joined(full)))
    if high:
        text = ngettext("{tiers} is above its high mark.", "{tiers} are above their high marks.", len(high))
        parts.append(fill(text, tiers=formats.joined(high)))
    if node.source_state and not node.stale:
        source = wording.state(wording.SOURCE_STATES, node.source_state)
        text = _('<span class="aside">Its facts are {state}, {age} old.</span>')
        parts.append(fill(text, state=source.word, age=formats.milliseconds(node.age_ms)))
    if node.source_state is None:
        parts.append(fill(_('<span class="aside">No source has spoken yet.</span>')))
    return format_html_join(_between(), "{}", ((p,) for p in parts))


# --- honesty --------------------------------------------------------------------------------------------------------


HONESTY: dict[str, Callable[[Params], SafeString]] = {
    "nodes-silent": lambda p: fill(
        _("<b>nothing is reported by {names}</b>: that share is veiled, not zero"), names=links(_list(p))
    ),
    "means": lambda p: fill(_("older values are means of {step}"), step=formats.duration(float(p.get("seconds", 0)))),
    "writer-away": lambda p: fill(_("<b>the writer is away</b>: the newest columns are veiled")),
    "sources-recovering": lambda p: fill(
        _("what {names} says is not exact; values may still change"), names=links(_list(p))
    ),
}


def honesty(sentences: Iterable[Sentence]) -> list[SafeString]:
    """What the picture does not show exactly; empty where it does."""
    return [_say(HONESTY, s.code, s.params) for s in sentences]


def map_answer(families: Sequence[FamilyView], fleet: FleetView) -> SafeString:
    """What the map begins with: which family carries most hits, and who is missing."""
    parts = []
    rates = [f.hit_tokens_per_s or 0.0 for f in families]
    if rates and rates[0] > 0:
        first = families[0]
        text = _("<b>{family}</b> of {tenant} carries most hits: {n} tokens/s in the last hour.")
        family = first.label or first.family
        parts.append(fill(text, family=family, tenant=first.tenant, n=formats.significant(rates[0])))
    elif fleet.nodes:
        parts.append(fill(_("<b>No prefix was hit in the last hour.</b>")))
    else:
        parts.append(_nodes_reporting({"nodes": 0}))
    missing = [n.name for n in fleet.nodes if n.stale and n.state != "joining"]
    if missing:
        text = ngettext("What {names} holds is not known.", "What {names} hold is not known.", len(missing))
        parts.append(fill(text, names=links(missing)))
    return format_html_join(_between(), "{}", ((p,) for p in parts))
