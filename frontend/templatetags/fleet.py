"""Decides how figures of nodes and tiers are worded on tiles, ladders and the number strip.

What is last known is never added to a sum; a sum with something missing starts with ≥. Loaded as `{% load fleet %}`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from catalog.selectors import FillRow, LadderStep, NodeView, TierView
from frontend import formats, wording
from frontend.sentences import reason
from frontend.templatetags.console import column, icon

register = template.Library()

SILENT = frozenset({"silent", "lost"})


def veiled(node: NodeView) -> bool:
    """Whether every number of the node is only the last known one."""
    return node.stale or node.state in SILENT


@register.simple_tag
def columns_of(node: NodeView) -> SafeString:
    """The five columns of a node's tile, with low and high marks; last known values are veiled."""
    parts = [column(node.tier(name), name, 4 + 20 * i, veiled(node)) for i, name in enumerate(wording.TIERS)]
    drawn = format_html_join("", "{}", ((p,) for p in parts))
    return format_html('<svg class="cols" aria-hidden="true">{}</svg>', drawn)


@register.simple_tag
def keys_of(node: NodeView) -> list[dict[str, Any]]:
    """What stands under the columns: letter, percent, whether above the mark, bytes."""
    return [_key(name, node.tier(name), veiled(node)) for name in wording.TIERS]


def _key(name: str, view: TierView | None, lost: bool) -> dict[str, Any]:
    share = None if view is None or lost or view.state == "unknown" else view.share
    hot = share is not None and view is not None and view.state in ("high", "full")
    return {
        "tier": name,
        "letter": wording.LETTERS[name],
        "part": formats.unknown() if share is None else f"{100 * share:.0f}{'▲' if hot else ''}",
        "exact": formats.unknown() if share is None else f"{100 * share:.1f}",
        "hot": hot,
        "used": formats.size(view.used_bytes) if view is not None and view.used_bytes is not None else "",
    }


@register.simple_tag
def tile_label(node: NodeView) -> str:
    """A node's tile as one sentence for screen readers."""
    parts = []
    for view in node.tiers:
        if view.share is None:
            parts.append(_("%(tier)s unknown") % {"tier": view.tier})
            continue
        text = _("%(tier)s %(n)s percent") % {"tier": view.tier, "n": f"{100 * view.share:.0f}"}
        parts.append(_("%(text)s, above the high mark") % {"text": text} if view.state in ("high", "full") else text)
    comma = pgettext("list", ", ")
    tone = wording.state(wording.NODE_STATES, node.state)
    head = comma.join([node.name, str(wording.word(wording.NODE_ROLES, node.role)), str(tone.word)])
    lead = _("last known") if veiled(node) and parts else ""
    return ": ".join(filter(None, [comma.join(filter(None, [head, lead])), comma.join(parts)]))


@register.simple_tag
def dense_of(nodes: Sequence[NodeView]) -> list[dict[str, Any]]:
    """Small squares for big fleets, by place: the state of the worst tier, or that the node is away."""
    out = []
    for node in sorted(nodes, key=lambda n: (n.region, n.zone, n.rack, n.name)):
        tone = wording.state(wording.NODE_STATES, node.state)
        if not veiled(node):
            worst = next((t for s in ("full", "high") for t in node.tiers if t.state == s), None)
            tone = wording.TIER_STATES[worst.state] if worst else tone
        out.append({"node": node, "tone": tone.tone, "icon": tone.icon, "label": tile_label(node)})
    return out


@register.simple_tag
def ladder_words(step: LadderStep) -> dict[str, Any]:
    """The numbers beside one bar of the ladder, in one unit, and the bar as a sentence."""
    used, last, capacity = step.used_bytes, step.last_known_bytes, step.capacity_bytes
    like = capacity or used or last or 0
    bound = "" if step.complete else "≥ "
    number, unit = formats.iec(used, like) if used is not None else (formats.unknown(), formats.iec(0, like)[1])
    top = formats.iec(capacity, like)[0] if capacity is not None else formats.DASH
    values = {"last": formats.iec(last, like)[0], "capacity": top}
    text = _("+ %(last)s last known of %(capacity)s") if last else _("of %(capacity)s")
    full = None if used is None or not capacity else (used + last) / capacity
    sentence = _("%(tier)s: %(used)s reported, %(last)s last known, of %(capacity)s") % {
        "tier": step.tier,
        "used": _("nothing") if used is None else bound + str(formats.size(used)),
        "last": formats.size(last),
        "capacity": _("an unknown size") if capacity is None else formats.size(capacity),
    }
    return {
        "used": number if used is None else f"{bound}{number} {unit}",
        "reported": format_html("{}{}", bound if used is not None else "", formats.size(used)),
        "of": text % values,
        "full": formats.share(full, 0),
        "blocks": bound + formats.number(step.blocks) if step.complete or step.blocks else formats.unknown(),
        "label": sentence,
    }


@register.simple_tag
def past_of(tier: str, past: Mapping[str, Sequence[FillRow]]) -> dict[str, Any]:
    """The last hour of one tier as a spark takes it."""
    rows = past.get(tier, ())
    return {"shares": [row.share for row in rows], "whole": [row.complete for row in rows]}


@register.simple_tag
def missing_words(names: Sequence[str]) -> str:
    """Why the sums are lower bounds."""
    text = ngettext(
        "%(names)s is silent: its last known bytes are veiled and never added to the sums",
        "%(names)s are silent: their last known bytes are veiled and never added to the sums",
        len(names),
    )
    return text % {"names": formats.joined([*names[:3], *([f"+{len(names) - 3}"] if len(names) > 3 else [])])}


@register.simple_tag
def emulated_words(ladder: Sequence[LadderStep]) -> SafeString:
    """Which tiers are stood in for by something else."""
    names = [s.tier for s in ladder if s.emulated]
    if not names:
        return SafeString("")
    text = _("%(tiers)s: emulated in memory") % {"tiers": formats.joined(names)}
    return format_html('<span class="badge outline">{}{}</span>', icon("lab", small=True), text)


NAMES = {
    "hit": lambda: _("Hit rate, by tokens"),
    "saved": lambda: _("Prefill saved"),
    "requests": lambda: _("Requests"),
    "blocks": lambda: _("Blocks held"),
    "evictions": lambda: _("Evictions, blocks"),
    "lag": lambda: _("Event lag, worst"),
}
NOTES = {
    "hit": lambda: _("of prompt tokens, last 10 s"),
    "saved": lambda: _("seconds of prefill a second"),
    "requests": lambda: _("mean of 10 s"),
    "blocks": lambda: _("copies in all tiers, exact"),
    "evictions": lambda: _("all tiers and reasons"),
    "lag": lambda: _("from the node to the catalog"),
}


@register.simple_tag
def kpi_name(name: str) -> str:
    """What a number of the strip is."""
    return NAMES[name]()


@register.simple_tag
def kpi_note(name: str, bound: bool = False) -> str:
    """How a number of the strip is meant; a lower bound is never called exact."""
    return _("copies in all tiers, at least") if bound and name == "blocks" else NOTES[name]()


# --- one node -------------------------------------------------------------------------------------------------------


@register.simple_tag
def tier_words(view: TierView, node: NodeView) -> dict[str, Any]:
    """The numbers beside one bar of a node's ladder, and the bar as a sentence."""
    lost = veiled(node) or view.stale or view.state == "unknown"
    like = view.capacity_bytes or view.used_bytes or 0
    used = formats.unknown() if view.used_bytes is None else " ".join(formats.iec(view.used_bytes, like))
    of = "" if view.capacity_bytes is None else _("of %(capacity)s") % {"capacity": formats.iec(view.capacity_bytes)[0]}
    tone = wording.state(wording.TIER_STATES, "unknown" if lost else view.state)
    share = _("unknown") if view.share is None else formats.share(view.share)
    label = _("%(tier)s: %(share)s full, %(state)s") % {"tier": view.tier, "share": share, "state": tone.word}
    return {"used": used, "of": of, "full": formats.share(view.share), "tone": tone, "veiled": lost, "label": label}


@register.simple_tag
def fills_words(rows: Sequence[Sequence[Any]]) -> str:
    """The history of a node's fills as one sentence."""
    parts = [
        _("%(tier)s between %(low)s and %(high)s, now %(now)s")
        % {
            "tier": tier,
            "low": formats.share(low, 0),
            "high": formats.share(high, 0),
            "now": _("unknown") if now is None else formats.share(now, 0),
        }
        for tier, low, _mean, high, now, _above in rows
        if low is not None
    ]
    return pgettext("list", "; ").join(parts)


@register.filter
def because(code: str) -> str:
    """Why a source is not exact."""
    return reason(code)
