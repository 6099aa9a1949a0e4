"""Decides how fields of filters and exports, and commands to copy, are drawn. Loaded as `{% load auditing %}`."""

from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from audit.selectors import EventView
from audit.webhooks.services import host_of
from frontend.audit.wording import ACTORS, FILTERS
from frontend.templatetags.console import icon
from frontend.tenancy.forms import Form
from frontend.wording import Text

register = template.Library()
LOG_CLASS = 0x0F
"""Class of the events that the log writes about itself."""


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


@register.filter
def host(url: str) -> str:
    """Where an address leads; its path may be a secret."""
    return host_of(url)


@register.simple_tag
def acted(event: EventView) -> Text:
    """What kind of actor an event names. Sequencer and scrubber act as the log, which holds no key to name anybody."""
    own = event.actor_kind == "nobody" and event.object_kind == "log" and event.number >> 8 == LOG_CLASS
    return ACTORS.get("log" if own else event.actor_kind, event.actor_kind)


@register.simple_tag
def command(*parts: Any) -> SafeString:
    """A line for a terminal, with a button that copies it."""
    return format_html(
        '<div class="cmd"><span>{0}</span><button type="button" class="btn quiet icon-only" aria-label="{1}"'
        ' data-copy="{0}">{2}</button></div>',
        "".join(map(str, parts)),
        _("Copy command"),
        icon("copy", small=True),
    )


@register.inclusion_tag("frontend/audit/_brought.html")
def brought(form: Form, name: str, label: str, hint: str = "", rows: int = 3) -> Any:
    """A file of somebody, or its text where they paste it."""
    return {
        "name": name,
        "label": label,
        "hint": hint,
        "rows": rows,
        "value": form.given.get(name, ""),
        "error": form.errors.get(name),
    }
