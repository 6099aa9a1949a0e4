"""Decides how amounts, contributions of terms, and candidates of decisions are drawn, as `{% load routes %}`."""

from collections.abc import Mapping, Sequence
from typing import Any

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from frontend import formats
from frontend.routing.wording import ANSWERS, PANELS, POLICY_FIELDS, QUANTITIES, TERMS, UNITS
from frontend.tenancy.forms import Form

register = template.Library()
CONTEXT_TOKENS = 131_072


@register.simple_tag
def panel_words(name: str) -> tuple[Any, Any]:
    """Title and note of a calculator."""
    return PANELS[name]


@register.filter
def unit(name: str) -> Any:
    """A unit as people read it; most are the same in every language."""
    return UNITS.get(name, name)


@register.inclusion_tag("frontend/routing/_quantity.html")
def quantity(row: Mapping[str, Any]) -> dict[str, Any]:
    """One field of a calculator."""
    label, hint = QUANTITIES[row["name"]]
    return {**row, "label": label, "hint": hint}


@register.filter
def block_size(model: Any) -> Any:
    """Bytes of one block of a model."""
    return formats.size(model.bytes_per_token * model.block_tokens)


@register.filter
def context_size(model: Any) -> Any:
    """Bytes of 131,072 tokens of a model."""
    return formats.size(model.bytes_per_token * CONTEXT_TOKENS)


@register.filter
def precise(value: float | None) -> str | SafeString:
    """Milliseconds as the terms of a decision are told: a tenth below ten, else whole; unknown is not 0."""
    if value is None:
        return formats.unknown()
    return pgettext("duration", "%(n)s ms") % {"n": f"{value:,.1f}" if abs(value) < 9.95 else f"{value:,.0f}"}


@register.filter
def signed(value: float | None) -> str | SafeString:
    """A difference in milliseconds, with its sign."""
    if value is None:
        return formats.unknown()
    sign = "+" if value > 0.05 else "−" if value < -0.05 else "±"
    return f"{sign}{precise(abs(value))}"


@register.filter
def part_of(value: float | None, whole: float | None) -> str | SafeString:
    """A share in percent; of nothing it is unknown."""
    return formats.share(value / whole if value is not None and whole else None)


@register.filter
def answer_word(code: str) -> Any:
    """The word of an answer."""
    return ANSWERS[code].word


@register.simple_tag
def terms_legend() -> SafeString:
    """Which colour is which term, in their order."""
    return format_html_join(
        "", '<li><svg class="swatch" aria-hidden="true"><rect class="{}" width="100%" height="100%"/></svg>{}</li>',
        ((colour(number), word) for number, word in enumerate(TERMS.values())),
    )  # fmt: skip


def colour(number: int) -> str:
    """The class of a term's colour; the seventh has an outline instead."""
    return f"c-{1 + number}" if number < 6 else "ghost"


@register.simple_tag
def contributions(terms: Sequence[float], widest: float) -> SafeString:
    """The terms of one candidate as one bar, as long as its time is against the longest; its label says the same."""
    x, parts, scale = 0.0, [], 100 / widest if widest > 0 else 0.0
    named = list(zip(TERMS.values(), terms, strict=True))
    for number, (word, ms) in enumerate(named):
        if ms > 0:
            parts.append((colour(number), f"{x:.2f}", f"{ms * scale:.2f}", f"{word}: {precise(ms)}"))
        x += ms * scale
    rects = format_html_join("", '<rect class="{}" x="{}%" width="{}%" height="100%"><title>{}</title></rect>', parts)
    label = ", ".join(f"{word} {precise(ms)}" for word, ms in named if ms > 0)
    return format_html('<svg class="contrib" role="img" aria-label="{}">{}</svg>', label or _("takes no time"), rects)


@register.filter
def times(value: float) -> str:
    """A factor."""
    return f"{value:,.2f} ×"


@register.inclusion_tag("frontend/tenancy/_field.html")
def policy_field(form: Form, name: str, kind: str = "text", choices: Any = None) -> dict[str, Any]:
    """One field of a policy that is no parameter."""
    label, hint = POLICY_FIELDS[name]
    return form.row(name, label=label, hint=hint, kind=kind, choices=choices)
