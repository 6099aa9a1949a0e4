"""Decides what the pages of pins and moves show and do: what stays where it lies, and what goes elsewhere.

Nothing is removed by either, but for what a drain is allowed to let go; what they may is decided by the same services
as REST.
"""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.http import Http404, QueryDict

from catalog.cordoning import cordon_request
from catalog.letting_go import DESTROYER, phrase_of
from catalog.move_bodies import DrainIn, MigrationIn, PinIn, PrefetchIn
from catalog.move_requests import drain_request, migration_request, prefetch_request
from catalog.operation_reads import drain_open, pin_row, pin_rows
from catalog.pins import pin_create, pin_remove
from catalog.selectors import NodeView, node_names, node_view
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
LONGEST_NEED = 1440
"""Minutes; what is needed later than in a day is asked for later."""


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
        "may": may(principal, "page-pins", "page-migration-new", "page-prefetch-new"),
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


# --- prefetches -------------------------------------------------------------------------------------------------------


def prefetch_form(data: QueryDict, principal: Principal) -> Form:
    """What was typed, or what a row of the map stands for."""
    form = forms.typed(data, "namespace", "prefix", "to_node", "to_tier", "need", "throttle")
    asking.from_map(form, data, principal, most=None)
    form.given["to_tier"] = form.given["to_tier"] or "dram"
    form.given["need"] = form.given["need"] or "10"
    return form


def prefetch_context() -> dict[str, Any]:
    """The tiers and nodes to choose from."""
    return {"tiers": [(tier, tier, "") for tier in TIERS], "to_nodes": [(name, name, "") for name in node_names()]}


def prefetch_ask(form: Form, actor: Principal, now: datetime) -> Any:
    """The copy is on its way; None: the form says why not, as where it could not be there in time."""
    minutes, throttle = forms.whole(form, "need"), forms.size(form, "throttle")
    if minutes is None or not 1 <= minutes <= LONGEST_NEED:
        form.wrong("need", "not-soon" if form.given["need"] else "required")
        return None
    said = {name: form.given[name] for name in ("namespace", "to_node", "to_tier")}
    said |= {"prefix": forms.words(form.given["prefix"].lower()), "need_at": now + timedelta(minutes=minutes)}
    fields = forms.checked(PrefetchIn, form, {**said, "throttle": throttle or None}) if not form.code else {}
    return forms.attempt(form, lambda: prefetch_request(**fields, actor=actor, now=now))


# --- drains -----------------------------------------------------------------------------------------------------------


def drain_form(data: QueryDict) -> Form:
    """What was typed."""
    return forms.typed(data, "recompute", "confirm_phrase", "throttle", "reason")


def drain_context(node: NodeView, actor: Principal) -> dict[str, Any]:
    """The node as it is, and a drain of it that has not ended."""
    return {
        "node": node, "drain": drain_open(node.name), "phrase": phrase_of(node.name), "may_let_go": actor.may(DESTROYER)
    }  # fmt: skip


def node_or_404(name: str, now: datetime) -> NodeView:
    """The node of this name."""
    found = node_view(name=name, now=now)
    if found is None:
        raise Http404
    return found


def drain_ask(form: Form, node: NodeView, actor: Principal, now: datetime) -> Any:
    """The node's blocks are on their way to others; None: the form says why not, and nothing moves."""
    throttle = forms.size(form, "throttle")
    said = {"recompute": form.given["recompute"] == "yes", "throttle": throttle or None, "reason": form.given["reason"]}
    said["confirm_phrase"] = form.given["confirm_phrase"]
    fields = forms.checked(DrainIn, form, said) if not form.code else {}
    return forms.attempt(form, lambda: drain_request(node=node.name, **fields, actor=actor, now=now))


def cordon_ask(form: Form, node: NodeView, cordoned: bool, actor: Principal, now: datetime) -> Any:
    """The node takes nothing new, or takes what comes again; None: the form says why not."""
    return forms.attempt(form, lambda: cordon_request(node=UUID(node.id), cordoned=cordoned, actor=actor, now=now))
