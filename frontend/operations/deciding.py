"""Decides what the pages of approvals, legal holds and the end of epochs show. Nobody decides what they asked for."""

from datetime import UTC, datetime, time
from typing import Any
from uuid import UUID

from django.http import Http404, QueryDict
from django.urls import reverse

from audit import approvals
from catalog import holds
from catalog.operation_bodies import RetireIn
from catalog.operation_reads import hold_row, hold_rows, operation_row
from catalog.operation_requests import plan_create
from frontend.operations import asking, sentences
from frontend.operations.lists import ACTS, NEWEST
from frontend.operations.names import people_of
from frontend.operations.wording import FACTS, POLICIES
from frontend.tenancy import forms
from frontend.tenancy.epochs import model_or_404
from frontend.tenancy.forms import Form
from frontend.tenancy.lists import Page
from frontend.tenancy.pages import may
from kvconsole.infra.access import Principal
from tenants import reading
from tenants.listing import Keys, listing

ROWS = 25
MOST_MODELS = 25
"""Of so many models the epochs are suggested."""
OLDEST: Keys = (("id", UUID),)
DECIDE = ("page-approval-approve", "page-approval-deny")
STATES = ("open", "approved", "denied", "withdrawn", "expired")


# --- approvals --------------------------------------------------------------------------------------------------------


def approval_list(now: datetime, data: QueryDict, principal: Principal) -> dict[str, Any]:
    """What waits for a second person, the oldest first, or what was decided, the newest first."""
    state = data.get("state", "open")
    state = state if state in STATES else "open"
    stored = "open" if state == "expired" else state
    rows = approvals.approvals(stored)
    rows = rows.filter(expires_at__gt=now) if state == "open" else rows
    rows = rows.filter(expires_at__lte=now) if state == "expired" else rows
    keys = OLDEST if state == "open" else NEWEST
    found = listing(rows, keys=keys, after=data.get("after", ""), before=data.get("before", ""), limit=ROWS)
    at = {way: f"?state={state}&{way}={mark}" if mark else ""
          for way, mark in (("after", found.after), ("before", found.before))}  # fmt: skip
    lines = [approval_line(one, now, principal) for one in found.items]
    own = sum(1 for one in lines if one["own"])
    return {
        "lines": lines,
        "names": people_of(one.requested_by for one in found.items),
        "page": Page(found.items, at["after"], at["before"]),
        "state": state,
        "states": STATES,
        "answer": sentences.approvals(len(lines), own, state, bool(found.after)),
        "may": may(principal, *DECIDE),
    }


def approval_line(one: Any, now: datetime, principal: Principal) -> dict[str, Any]:
    """One row."""
    return {
        "one": one,
        "state": approvals.approval_state(one, now),
        "own": one.requested_by == principal.subject,
        "what": sentences.selected(one.what.get("selector", {})),
        "reason": one.what.get("reason", ""),
    }


def approval_or_404(approval_id: UUID) -> Any:
    """The approval, where the caller may see it."""
    found = approvals.approvals().filter(id=approval_id).first()
    if found is None:
        raise Http404
    return found


def approval(one: Any, now: datetime, principal: Principal) -> dict[str, Any]:
    """One approval: what would happen, why it is risky, and who decides."""
    shown = approval_line(one, now, principal)
    allowed = may(principal, *DECIDE)
    return {
        **shown,
        "facts": [(FACTS[name], name, value) for name, value in one.what.items() if name in FACTS and value != ""],
        "reasons": one.what.get("reasons", ()),
        "names": people_of([one.requested_by, one.decided_by] if one.decided_by else [one.requested_by]),
        "of": place(one),
        "can": shown["state"] == "open" and not shown["own"] and allowed["approval_approve"],
        "may": allowed,
    }


def place(one: Any) -> str:
    """The address of what it is about; "" = it has no page."""
    named = one.object_id.partition("/")[0]
    if one.kind == "operation" and operation_row(named):
        return reverse("page-operation", args=[named])
    if one.kind in (holds.PLACE, holds.RELEASE) and hold_row(named):
        return reverse("page-hold", args=[named])
    if one.kind == "share_group":
        return reverse("page-share-group", args=[named])
    return reverse("page-audit-retention") if one.kind == "audit_retention" else ""


# --- holds ------------------------------------------------------------------------------------------------------------


def hold_list(data: QueryDict, principal: Principal) -> dict[str, Any]:
    """Legal holds, newest first."""
    found = listing(hold_rows(), keys=NEWEST, after=data.get("after", ""), before=data.get("before", ""), limit=ROWS)
    at = {way: f"?{way}={mark}" if mark else "" for way, mark in (("after", found.after), ("before", found.before))}
    force = hold_rows(in_force=True).count()
    return {
        "lines": [{"one": one, "what": sentences.selected(one.selector)} for one in found.items],
        "page": Page(found.items, at["after"], at["before"]),
        "answer": sentences.holds(force, bool(found.items)),
        "names": people_of(one.requested_by for one in found.items),
        "may": may(principal, *ACTS),
    }


def hold_or_404(hold_id: UUID) -> Any:
    """The hold, where the caller may see it."""
    found = hold_row(hold_id)
    if found is None:
        raise Http404
    return found


def hold(one: Any, principal: Principal) -> dict[str, Any]:
    """One hold, and what was asked about it, for those who see what others decide."""
    sees = may(principal, "page-approval", method="GET")
    names = [str(one.id), *(f"{one.id}/{n}" for n in range(1, one.releases + 1))] if sees["approval"] else []
    kinds = (holds.PLACE, holds.RELEASE)
    rows = list(approvals.approvals().filter(kind__in=kinds, object_id__in=names).order_by("-id")) if names else []
    return {
        "one": one,
        "what": sentences.selected(one.selector),
        "asked": rows,
        "names": people_of([one.requested_by, *(row.requested_by for row in rows)]),
        "may": may(principal, "page-hold-release"),
        "sees": sees,
    }


def hold_form(data: QueryDict) -> Form:
    """What was typed."""
    form = asking.selector_form(data)
    form.given |= forms.typed(data, "authority", "reason", "review_at").given
    return form


def hold_ask(form: Form, actor: Principal, now: datetime) -> Any:
    """The hold waits for a second person; None: the form says why not."""
    said, day = asking.selector_of(form), _day(form, "review_at")
    for name, most in (("authority", 200), ("reason", 500)):
        if not 0 < len(form.given[name]) <= most:
            form.wrong(name, "required" if not form.given[name] else "max_length")
    if form.code or day is None:
        return None
    given = {name: form.given[name] for name in ("authority", "reason")}
    return forms.attempt(
        form, lambda: holds.hold_request(selector=said, review_at=day, **given, actor=actor, now=now)
    )  # fmt: skip


def hold_release(form: Form, one: Any, actor: Principal, now: datetime) -> Any:
    """Its end waits for a second person; None: the form says why not."""
    if not 0 < len(form.given["reason"]) <= 500:
        form.wrong("reason", "required" if not form.given["reason"] else "max_length")
    return forms.attempt(
        form, lambda: holds.hold_release_request(hold_id=one.id, reason=form.given["reason"], actor=actor, now=now)
    )  # fmt: skip


def _day(form: Form, name: str) -> datetime | None:
    try:
        return datetime.combine(datetime.fromisoformat(form.given[name]).date(), time(), UTC)
    except ValueError:
        form.wrong(name, "required" if not form.given[name] else "invalid_choice")
        return None


# --- the end of an epoch ----------------------------------------------------------------------------------------------


def retire_form(data: QueryDict) -> Form:
    """What was typed, or what a link brought along."""
    form = forms.typed(data, "model", "number", "policy", "drain_seconds")
    form.given["policy"] = form.given["policy"] or "immediate"
    form.given["drain_seconds"] = form.given["drain_seconds"] or "600"
    return form


def _epochs(model: str) -> list[int]:
    """Those that can still end."""
    return [one.epoch for one in reading.epochs_of(model_or_404(model)) if one.state != "retired"]


def retire_context(form: Form, now: datetime) -> dict[str, Any]:
    """The models and epochs that can end."""
    models = reading.models()
    model = model_or_404(form.given["model"]) if form.given["model"] else None
    rows = reading.rollout(model, now=now).epochs if model else []
    return {
        "known": [(m.name, number) for m in models[:MOST_MODELS] for number in _epochs(m.name)],
        "models": [(m.name, m.name, "") for m in models],
        "model": model,
        "epochs": rows,
        "policies": [(code, word, "") for code, word in POLICIES.items()],
    }


def retire_plan(form: Form, actor: Principal, now: datetime) -> Any:
    """The plan of all that is cached of the epoch; None: the form says why there is none. Nothing ends by it."""
    name, number = form.given["model"], forms.whole(form, "number")
    if number is None:
        form.wrong("number", "required")
    seconds = forms.whole(form, "drain_seconds")
    said = {"policy": form.given["policy"], "drain_seconds": seconds, "reason": "-"}
    fields = forms.checked(RetireIn, form, said) if not form.code else {}
    drain = fields.get("policy") == "drain"
    options = {"drain": True, "drain_seconds": float(fields["drain_seconds"])} if drain else {}
    made = forms.attempt(
        form,
        lambda: plan_create(
            selector={"epoch": f"{name}/{number}"}, options=options, actor=actor, now=now, kind="epoch"
        ),
    )
    if "epoch" in form.errors:
        form.errors["number"] = form.errors.pop("epoch")
    return made
