"""Decides how fields of forms and quotas are drawn. Loaded as `{% load tenancy %}`."""

from collections.abc import Mapping
from typing import Any

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from frontend import formats
from frontend.templatetags.console import tier_bar, word
from frontend.tenancy.forms import Form
from frontend.tenancy.pictures import Step
from frontend.tenancy.wording import FIELDS
from frontend.wording import TIERS

register = template.Library()


@register.inclusion_tag("frontend/tenancy/_field.html")
def field(
    form: Form, name: str, words: str = "", kind: str = "text", choices: Any = None, required: bool = False,
    label: str = "", suggest: str = "",
) -> dict[str, Any]:  # fmt: skip
    """One field: label, what was typed, hint, and what is wrong with it.

    Args:
        name: of the field.
        words: key of its label and hint, where it is not the name.
        kind: text, number, area or select.
        choices: `(code, word, what it means)`, of a select.
        label: replaces the label.
        suggest: id of a list of suggestions.
    """
    known, hint = FIELDS.get(words or name, (label or name, ""))
    return form.row(
        name, label=label or known, hint=hint, kind=kind, choices=choices, required=required, suggest=suggest
    )  # fmt: skip


@register.simple_tag
def quota_bar(step: Step) -> SafeString:
    """Used of the quota, with a mark where the guarantee ends; no bar where there is no limit to measure by."""
    if step.limit_bytes is None:
        return format_html('<span class="muted">{}</span>', step.limit)
    return tier_bar(
        step.tier, step.used_bytes, step.limit_bytes or 1, step.mark, None, label=step.label,
        veiled=step.used_bytes is None,
    )  # fmt: skip


@register.inclusion_tag("frontend/tenancy/_rule.html")
def rule(of: Any) -> dict[str, Any]:
    """The rule of a data class on one line: tiers, regions, protection."""
    tiers = None if of.tiers is None else [t for t in TIERS if t in of.tiers]
    regions = None if of.regions is None else sorted(of.regions)
    return {"tiers": tiers, "regions": regions, "protection": of.min_protection}


@register.simple_tag
def typed_fields(form: Form) -> SafeString:
    """All that was typed, hidden, so that the second step posts exactly what the first one checked."""
    pairs = [(n, v) for n, value in form.given.items() for v in (value if isinstance(value, list) else [value])]
    return format_html_join("", '<input type="hidden" name="{}" value="{}">', pairs)


@register.filter
def typed(form: Form, name: str) -> Any:
    """What stands in a field."""
    return form.given.get(name, "")


@register.filter
def limit(value: int | None) -> Any:
    """A limit in bytes; None says that there is none."""
    return _("no limit") if value is None else formats.size(value)


@register.filter
def words(text: str) -> list[str]:
    """A list of names, written in a template."""
    return text.split()


@register.filter
def get(of: Mapping[str, Any], key: str) -> Any:
    """One value of a mapping, None if it is not there."""
    return of.get(key)


@register.filter
def shown(value: Any, name: str) -> Any:
    """A field of a tenant as people read it."""
    if name in ("isolation", "erasure_scope"):
        return word(value, "isolation" if name == "isolation" else "erasure")
    if isinstance(value, dict):
        return ", ".join(f"{of} {formats.duration(s)}" for of, s in sorted(value.items())) or formats.DASH
    return (", ".join(value) if isinstance(value, list) else value) or formats.DASH
