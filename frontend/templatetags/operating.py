"""Decides how cells of operations, classes, plans and fields of deletions are drawn, as `{% load operating %}`."""

from collections.abc import Mapping, Sequence
from typing import Any

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from frontend import formats
from frontend.operations import sentences
from frontend.operations.running import Cell
from frontend.operations.wording import PARTS, WHY
from frontend.problems import problem as meaning
from frontend.templatetags.console import icon, status
from frontend.tenancy.forms import Form
from kvcore import erasure_words

register = template.Library()
STEPS = ((0.5, 8.0, 1.5), (4.5, 6.4, 3.1), (8.5, 4.8, 4.7), (12.5, 3.2, 6.3), (16.5, 1.6, 7.9))
"""Of the ladder of a class: x, y and height of each bar."""
PHASES = {
    "request": lambda: pgettext("phase", "Asked for"),
    "fence": lambda: pgettext("phase", "Fenced"),
    "erase": lambda: pgettext("phase", "All places answered"),
    "verify": lambda: pgettext("phase", "Looked at again"),
    "certificate": lambda: pgettext("phase", "Certificate"),
}


@register.filter
def phase(name: str) -> str:
    """The word of a phase."""
    return PHASES[name]()


@register.simple_tag
def eclass(cls: int | None, name: bool = True, language: str = "") -> SafeString:
    """A class as a filled ladder, so that it reads without colour; None = it is not graded."""
    if cls is None:
        return formats.unknown()
    bars = format_html_join(
        "", '<rect{} x="{}" y="{}" width="3" height="{}"/>',
        ((SafeString(' class="on"') if at < cls else "", x, y, height) for at, (x, y, height) in enumerate(STEPS)),
    )  # fmt: skip
    word = erasure_words.name(cls, "zh" if language == "zh" else "en" if language == "en" else sentences.lang())
    more = format_html(" <span>{}</span>", word) if name else ""
    return format_html(
        '<span class="eclass"><svg viewBox="0 0 20 10" aria-hidden="true">{}</svg>E{}{}</span>', bars, cls, more
    )


@register.filter
def class_zh(cls: int) -> str:
    """The Chinese name of a class, for the sheet in both languages."""
    return erasure_words.name(cls, "zh")


@register.simple_tag
def cell(of: Cell | None) -> SafeString:
    """One cell of the matrix: state, how much of it was answered, class and flags. Nothing known is said to be so."""
    if of is None:
        return format_html('<td class="none"><span class="muted">{}</span></td>', _("no such tier"))
    part = 100.0 * of.done / of.total if of.total else (100.0 if of.state in ("erased", "verified") else 0.0)
    veiled = of.state == "silent"
    fill = '<rect class="c-sunken" width="100%" height="100%"/><rect class="veil" width="100%" height="100%"/>'
    bar = format_html(
        '<svg class="bar thin" aria-hidden="true"><rect class="track" width="100%" height="100%"/>{}</svg>',
        SafeString(fill) if veiled else format_html('<rect class="c-text" width="{}%" height="100%"/>', f"{part:.1f}"),
    )
    return format_html(
        '<td{}><div class="cell"><span class="row tight">{}</span>{}<span class="row tight"><small>{}</small>{}</span>'
        "{}</div></td>",
        SafeString(' data-state="silent"') if veiled else "",
        status("cell", of.state),
        bar,
        amount(of),
        eclass(of.cls, name=False) if of.cls is not None else "",
        flags(of.flags),
    )


def amount(of: Cell) -> str:
    """How many bytes of what was known there."""
    if not of.total:
        return _("nothing was known here")
    if of.done >= of.total or of.state in ("erased", "verified"):
        return str(formats.size(of.total))
    return _("%(done)s of %(total)s") % {"done": formats.size(of.done), "total": formats.size(of.total)}


@register.simple_tag
def flags(of: Sequence[str]) -> SafeString:
    """Flags as codes, each with its sentence."""
    if not of:
        return SafeString("")
    language = sentences.lang()
    rows = ((flag, erasure_words.flag_sentence(flag, language)) for flag in of)
    return format_html(
        '<span class="row tight flags">{}</span>',
        format_html_join(
            "", '<abbr class="badge outline mono" title="{1}">{0}<span class="sr">: {1}</span></abbr>', rows
        ),
    )


@register.filter
def flag_sentence(flag: str) -> str:
    """The sentence of a flag in the language of the page."""
    return erasure_words.flag_sentence(flag, sentences.lang())


@register.filter
def trouble(code: str) -> Any:
    """What an operation waits for, or why it failed."""
    known = meaning(code)
    return WHY.get(code) or (known.title if known else code)


@register.simple_tag
def selected(pairs: Sequence[tuple[Any, str]]) -> SafeString:
    """What is selected: fields and their values."""
    if not pairs:
        return format_html('<span class="muted">{}</span>', _("nothing named"))
    return format_html_join(
        SafeString(' <span class="muted" aria-hidden="true">·</span> '),
        '<span class="sel"><span class="muted">{}</span> <b class="mono">{}</b></span>',
        ((word, formats.middle(value, 40)) for word, value in pairs),
    )


@register.filter
def fact(value: Any, name: str) -> Any:
    """A fact of an approval as people read it."""
    if name == "bytes":
        return formats.size(value)
    if name in ("review_at", "expires_at"):
        return formats.stamp(formats.moment(value))
    if isinstance(value, list):
        return format_html('<span class="mono">{}</span>', ", ".join(map(str, value)))
    if isinstance(value, int):
        return formats.number(value)
    return format_html("<span{}>{}</span>", SafeString(" data-said" if name == "reason" else ' class="mono"'), value)


@register.simple_tag
def left(seconds: float) -> str:
    """How long a plan can still be started."""
    minutes, rest = divmod(int(seconds), 60)
    return _("%(minutes)s min %(seconds)s s") % {"minutes": minutes, "seconds": f"{rest:02d}"}


@register.filter
def nodes(n: int) -> str:
    """So many nodes."""
    return ngettext("%(n)s node", "%(n)s nodes", n) % {"n": formats.number(n)}


@register.simple_tag
def plan_cell(of: Mapping[str, Any] | None) -> SafeString:
    """What a plan saw in one node and tier."""
    if not of:
        return format_html('<td class="n"><span class="muted">{}</span></td>', formats.DASH)
    away = "" if of["reachable"] else format_html(' <span class="sub">{}</span>', _("does not answer"))
    return format_html(
        '<td class="n"{}>{} <span class="sub">{}</span>{}</td>',
        SafeString(' data-state="silent"') if away else "",
        formats.number(of["blocks"]),
        formats.size(of["bytes"]),
        away,
    )


@register.inclusion_tag("frontend/tenancy/_field.html")
def op_field(
    form: Form, name: str, kind: str = "text", choices: Any = None, required: bool = False, suggest: str = "",
    words: str = "",
) -> dict[str, Any]:  # fmt: skip
    """One field of a form of operations: label, what was typed, hint, and what is wrong with it.

    `words`: whose label and hint, where they are not those of the name.
    """
    label, hint = PARTS[words or name]
    return form.row(name, label=label, hint=hint, kind=kind, choices=choices, required=required, suggest=suggest)


@register.simple_tag
def state_mark(name: str) -> SafeString:
    """The icon of a phase: reached, under way or ahead."""
    return icon({"done": "check", "now": "work"}.get(name, "unknown"), small=True)
