"""Decides what the pages of pins and migrations show and do: what stays where it lies, and what goes to another tier.

Nothing is removed by either; what they may is decided by the same services as REST.
"""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import Http404, QueryDict

from catalog.move_bodies import MigrationIn, PinIn
from catalog.move_requests import migration_request
from catalog.operation_reads import pin_row, pin_rows
from catalog.pins import pin_create, pin_remove
from catalog.selectors import node_names
from frontend.operations import asking
from frontend.operations.lists import NEWEST
from frontend.operations.names import people_of
from frontend.tenancy import forms
from frontend.tenancy.forms import Form
from frontend.tenancy.lists import Page
from frontend.tenancy.pages import may
from frontend.wording import TIERS
from kvconsole.infra.access import Principal
from tenants.listing import listing

ROWS = 25


def pin_form(data: QueryDict) -> Form:
    """What was typed, or what a link brought along."""
    return forms.typed(data, "namespace", "prefix", "days", "reason")


def pin_list(now: datetime, data: QueryDict, principal: Principal) -> dict[str, Any]:
    """Pins, newest first; those whose time is over are void."""
    found = listing(pin_rows(), keys=NEWEST, after=data.get("after", ""), before=data.get("before", ""), limit=ROWS)
    at = {way: f"?{way}={mark}" if mark else "" for way, mark in (("after", found.after), ("before", found.before))}
    return {
        "lines": [{"one": one, "over": one.until <= now, "blocks": len(one.keys or ())} for one in found.items],
        "page": Page(found.items, at["after"], at["before"]),
        "names": people_of(one.requested_by for one in found.items),
        "may": may(principal, "page-pins", "page-migration-new"),
    }


def pin_or_404(pin_id: UUID) -> Any:
    """The pin, where the caller may see it."""
    found = pin_row(pin_id)
    if found is None:
        raise Http404
    return found


def pin_make(form: Form, actor: Principal, now: datetime) -> Any:
    """It is pinned; None: the form says why not."""
    until, given = forms.until(form, "days", now), form.given
    keys = forms.words(given["prefix"].lower()) or None
    said = {"namespace": given["namespace"], "reason": given["reason"], "until": until, "prefix": keys}
    fields = forms.checked(PinIn, form, said) if not form.code else {}

    def act() -> Any:
        return pin_create(
            namespace=fields["namespace"], keys=fields["prefix"], until=fields["until"], reason=fields["reason"],
            actor=actor, now=now,
        )  # fmt: skip

    made = forms.attempt(form, act)
    if "until" in form.errors:
        form.errors["days"] = form.errors.pop("until")
    return made


def pin_take(form: Form, one: Any, actor: Principal, now: datetime) -> None:
    """The pin is gone, or the form says why not."""
    forms.attempt(form, lambda: pin_remove(pin_id=one.id, actor=actor, now=now))


# --- migrations -------------------------------------------------------------------------------------------------------


def move_form(data: QueryDict) -> Form:
    """What was typed, or what a link brought along."""
    form = asking.selector_form(data)
    form.given |= forms.typed(data, "from_tier", "to_tier", "to_node", "throttle", "reason").given
    return form


def move_context() -> dict[str, Any]:
    """The tiers and nodes to choose from."""
    return {
        "tiers": [(tier, tier, "") for tier in TIERS],
        "to_nodes": [("", "–", ""), *((name, name, "") for name in node_names())],
    }


def move_ask(form: Form, actor: Principal, now: datetime) -> Any:
    """The migration is under way; None: the form says why not, and nothing was moved."""
    said, throttle = asking.selector_of(form), forms.size(form, "throttle")
    given = {name: form.given[name] for name in ("from_tier", "to_tier", "to_node", "reason") if form.given[name]}
    fields = forms.checked(MigrationIn, form, {**given, "selector": {}, "throttle": throttle or None})
    asked = {**fields, "selector": said}
    return forms.attempt(form, lambda: migration_request(**asked, actor=actor, now=now))
