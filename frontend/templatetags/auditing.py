"""Decides how fields of filters and exports are drawn. Loaded as `{% load auditing %}`."""

from typing import Any

from django import template

from frontend.audit.wording import FILTERS
from frontend.tenancy.forms import Form

register = template.Library()


@register.inclusion_tag("frontend/tenancy/_field.html")
def filter_field(form: Form, name: str, kind: str = "text", choices: Any = None, required: bool = False) -> Any:
    """One field of the pages of the log: label, what was typed, hint, and what is wrong with it."""
    label, hint = FILTERS[name]
    return {
        "name": name,
        "label": label,
        "hint": hint,
        "kind": kind,
        "choices": choices,
        "required": required,
        "value": form.given.get(name, ""),
        "error": form.errors.get(name),
        "detail": form.details.get(name, ""),
    }
