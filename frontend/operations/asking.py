"""Decides how a deletion is asked for: fields and tables become selectors, plans are made of them, and started.

What a selector may say, what it reaches and what its risk asks for is decided by the same services as REST.
"""

import csv
import io
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode
from uuid import UUID

from django.http import Http404, QueryDict
from django.urls import reverse

from catalog.api_operations import selector_said
from catalog.map_selection import row_meant
from catalog.operation_bodies import DeletionIn, OptionsIn, SelectorIn
from catalog.operation_reads import plan_row, plans_of, started
from catalog.operation_requests import deletion_request, plan_create, plan_drift
from catalog.operation_views import plan_view
from frontend.operations import sentences
from frontend.operations.wording import COLLATERAL, WHY
from frontend.problems import problem as meaning
from frontend.tenancy import forms
from frontend.tenancy.forms import Form
from frontend.tenancy.pages import may
from frontend.wording import TIERS
from kvconsole.infra.access import Principal
from kvconsole.infra.rest import Problem
from kvcore.risk import friction

PARTS = ("tenant", "namespace", "epoch", "class", "label", "subject", "session", "older_than")
CHOSEN = ("collateral", "share_groups")
TICKS = ("override_pins", "crypto_erase")
COLUMNS = ("subject", "namespace", "label")
"""Of a table: one of these, and maybe `tenant` before it."""
MOST_ROWS = 100
MOST_ADDRESS = 4000
MOST_TABLE = 256 << 10
VOID = ("plan-drifted", "plan-expired")
"""What a plan that no longer holds is refused with: the same has to be planned again."""
STARTED = ("page-plan-start", "page-plan-confirm", "page-plan-retire")


class Row(NamedTuple):
    """A row of a table: its line in the file, what it selects, and what is wrong with it."""

    line: int
    selector: dict[str, str]
    error: Any = ""
    code: str = ""


# --- the form ---------------------------------------------------------------------------------------------------------


def selector_form(data: QueryDict, principal: Principal | None = None) -> Form:
    """What was typed, or what a link brought along; the principal's, of a row of the map."""
    form = forms.typed(data, *PARTS, "prefix", *CHOSEN, *TICKS)
    form.given["table"] = data.get("table", "")
    if principal and from_map(form, data, principal, most=1) and not form.given["collateral"]:
        form.given["collateral"] = "none"
    return form


def from_map(form: Form, data: QueryDict, principal: Principal, *, most: int | None) -> bool:
    """The form begins with what a row of the map stands for: its namespace, and so many keys of its family.

    Whether a family was meant. The map is the fleet's; nobody else's form begins with it.
    """
    meant = row_meant(data.get("row", "")) if principal.tenant_id is None else None
    if meant is None:
        return False
    told = {"tenant": meant.tenant, "namespace": meant.namespace, "prefix": "\n".join(meant.keys[:most])}
    form.given |= {name: value for name, value in told.items() if name in form.given and not form.given[name]}
    return bool(meant.keys)


def selector_of(form: Form) -> dict[str, Any]:
    """The selector that was typed, as REST takes it; empty: the form says what is wrong."""
    said: dict[str, Any] = {name: form.given[name] for name in PARTS if form.given.get(name)}
    if "subject" in said:
        said["subject"] = said["subject"].lower()
    if keys := forms.words(form.given.get("prefix", "").lower()):
        said["prefix"] = keys
    fields = forms.checked(SelectorIn, form, said)
    return {} if form.code else selector_said(fields)


def options_of(form: Form) -> dict[str, Any]:
    """The choices beside it."""
    said: dict[str, Any] = {name: form.given[name] == "yes" for name in TICKS}
    if form.given["collateral"]:
        said["collateral"] = form.given["collateral"]
    if groups := forms.words(form.given["share_groups"]):
        said["share_groups"] = groups
    fields = forms.checked(OptionsIn, form, said) if not form.code else {}
    return {**fields, "share_groups": [str(one) for one in fields.get("share_groups", ())]}


def plan_make(form: Form, actor: Principal, now: datetime) -> Any:
    """The frozen plan of what was typed; None: the form says why there is none."""
    said, chosen = selector_of(form), options_of(form)
    return forms.attempt(form, lambda: plan_create(selector=said, options=chosen, actor=actor, now=now))


def ask_context(form: Form, rows: list[Row], principal: Principal) -> dict[str, Any]:
    """What the page of the form shows."""
    return {
        "collateral": [(code, word, "") for code, word in COLLATERAL.items()],
        "own": principal.tenant_slug,
        "wrong": [row for row in rows if row.error],
        "rows": len(rows),
        "most": MOST_ROWS,
        "may": may(principal, "page-plans-start"),
    }


# --- tables -----------------------------------------------------------------------------------------------------------


def table_of(upload: Any, text: str, form: Form) -> list[Row]:
    """The rows of a table that was uploaded or pasted; the form says why there are none."""
    raw = upload.read(MOST_TABLE + 1) if upload else text.encode()
    if len(raw) > MOST_TABLE:
        form.wrong("csv", "range")
        return []
    try:
        lines = list(csv.reader(io.StringIO(raw.decode("utf-8-sig").replace("\0", ""))))
    except (UnicodeDecodeError, csv.Error):
        form.wrong("csv", "unstorable-text")
        return []
    head = [cell.strip().lower() for cell in lines[0]] if lines else []
    named = [name for name in head if name in COLUMNS]
    if len(named) != 1 or set(head) - {*named, "tenant", ""}:
        form.wrong("csv", "required")
        return []
    rows = list(_rows(head, lines[1:]))
    if not 1 <= len(rows) <= MOST_ROWS:
        form.wrong("csv", "range")
        return []
    return rows


def _rows(head: list[str], lines: list[list[str]]) -> Iterator[Row]:
    seen: dict[tuple[tuple[str, str], ...], int] = {}
    for number, cells in enumerate(lines, 2):
        if not any(cell.strip() for cell in cells):
            continue
        said = {name: cell.strip() for name, cell in zip(head, cells, strict=False) if name and cell.strip()}
        same = tuple(sorted(said.items()))
        code = "" if set(said) & set(COLUMNS) and len(cells) <= len(head) else "required"
        code = code or ("duplicate" if same in seen else "")
        seen[same] = number
        yield Row(number, said, forms.FIELD_WORDS[code] if code else "", code)


def plans_make(rows: list[Row], form: Form, actor: Principal, now: datetime) -> list[Row]:
    """A plan for every row, or none at all: then the rows say which of them cannot be, and why."""
    chosen = options_of(form)
    found = [row if row.error else _plan_row(row, chosen, form, actor, now) for row in rows]
    if any(row.error for row in found):
        form.code, form.status = form.code or "validation-failed", 400
    return found


def _plan_row(row: Row, chosen: Mapping[str, Any], form: Form, actor: Principal, now: datetime) -> Row:
    own = Form({**dict.fromkeys(PARTS, ""), "prefix": "", "tenant": form.given["tenant"], **row.selector})
    said = selector_of(own)
    forms.attempt(own, lambda: plan_create(selector=said, options=chosen, actor=actor, now=now))
    if not own.code:
        return row
    known = meaning(own.code)
    said_so = next(iter(own.errors.values()), known.title if known else own.code)
    return row._replace(error=said_so, code=own.code)


# --- the plan ---------------------------------------------------------------------------------------------------------


def plan_or_404(plan_id: UUID, *, kinds: tuple[str, ...] = ()) -> Any:
    """The plan, where the caller may see it."""
    found = plan_row(plan_id)
    if found is None or (kinds and found.kind not in kinds):
        raise Http404
    return found


def plan(now: datetime, row: Any, principal: Principal) -> dict[str, Any]:
    """The page of a plan. A tenant's people see tiers, and no nodes."""
    shown, asks = plan_view(row), friction(row.risk)
    staff = principal.tenant_id is None
    route = "page-plan-retire" if row.kind == "epoch" else "page-plan-confirm" if asks.mfa else "page-plan-start"
    return {
        "row": row,
        "plan": shown,
        "what": sentences.selected(row.selector),
        "said": sentences.plan(shown),
        "tiers": TIERS,
        "cells": cells(shown["cells"], by_node=staff),
        "sums": sums(shown["cells"]),
        "unreachable": shown["unreachable"] if staff else [],
        "unreachable_nodes": len(shown["unreachable"]),
        "blockers": [{**one, "node": one["node"] if staff else ""} for one in shown["blockers"]],
        "friction": asks,
        "left": max(0.0, (row.expires_at - now).total_seconds()),
        "over": row.expires_at <= now,
        "started": started([row.id]).get(row.id),
        "start": route,
        "at_once": route == "page-plan-start" and not asks.modal,
        "staff": staff,
        "may_start": may(principal, route).get(route.removeprefix("page-").replace("-", "_"), False),
        "may": may(principal, "page-deletion-new", *STARTED),
    }


def cells(found: list[dict[str, Any]], *, by_node: bool) -> dict[str, dict[str, dict[str, Any]]]:
    """Node → tier → what was seen there together, most bytes first. "" = all nodes."""
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    for one in found:
        row = rows.setdefault(one["node"] if by_node else "", {})
        cell = row.setdefault(one["tier"], {"blocks": 0, "bytes": 0, "reachable": True})
        cell["blocks"] += one["blocks"]
        cell["bytes"] += one["bytes"]
        cell["reachable"] = cell["reachable"] and one["reachable"]
    return dict(sorted(rows.items(), key=lambda pair: (-sum(c["bytes"] for c in pair[1].values()), pair[0])))


def sums(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Tier → what was seen there on all nodes together; who of them answers is said where each stands."""
    return {tier: {**cell, "reachable": True} for tier, cell in cells(found, by_node=False).get("", {}).items()}


def drift(now: datetime, row: Any, principal: Principal) -> dict[str, Any]:
    """What is different now from what was frozen: nothing is hidden, and nothing is started by looking."""
    context: dict[str, Any] = {"row": row, "left": max(0.0, (row.expires_at - now).total_seconds()), "as_of": now}
    context |= {"over": row.expires_at <= now, "anew": anew(row)}
    if context["over"]:
        return context
    try:
        found = plan_drift(row, actor=principal, now=now)
    except Problem as refused:
        return {**context, "refused": meaning(refused.code), "refused_code": refused.code}
    added = {"blocks": sum(cell.blocks for cell in found.added), "bytes": sum(cell.bytes for cell in found.added)}
    return {**context, "drift": found, "added": added, "why": [WHY.get(code, code) for code in found.reasons]}


def anew(row: Any) -> str:
    """The form that the plan was made with, filled as it was; "" = it has parts that the form does not."""
    said, chosen = row.selector, row.options
    if row.kind == "epoch":
        return _address("page-epoch-retire", _epoch_asked(said, chosen))
    if row.kind != "deletion" or "and" in said:
        return ""
    asked = {name: said[name] for name in PARTS if said.get(name)} | {"prefix": " ".join(said.get("prefix", ()))}
    if said.get("older_than"):
        asked["older_than"] = datetime.fromtimestamp(said["older_than"], UTC).isoformat()
    asked |= {"collateral": chosen.get("collateral", ""), "share_groups": " ".join(chosen.get("share_groups", ()))}
    return _address("page-deletion-new", asked | {name: "yes" for name in TICKS if chosen.get(name)})


def _epoch_asked(said: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, str]:
    model, _, number = str(said.get("epoch", "")).rpartition("/")
    if not chosen.get("drain"):
        return {"model": model, "number": number}
    seconds = f"{chosen['drain_seconds']:.0f}" if chosen.get("drain_seconds") else ""
    return {"model": model, "number": number, "policy": "drain", "drain_seconds": seconds}


def _address(page: str, asked: Mapping[str, str]) -> str:
    query = urlencode({name: value for name, value in asked.items() if value})
    return f"{reverse(page)}?{query}" if len(query) < MOST_ADDRESS else ""


def void(form: Form, now: datetime, row: Any, principal: Principal) -> dict[str, Any]:
    """Where the plan no longer holds: what has changed, and the form that plans the same again, in place of a start."""
    if form.code not in VOID and row.expires_at > now:
        return {}
    form.detail = ""
    return {**drift(now, row, principal), "void": True}


# --- the start --------------------------------------------------------------------------------------------------------


def kinds(epoch: bool) -> tuple[str, ...]:
    """The kinds of plans that an address starts: the end of an epoch has one of its own, as not everybody may ask."""
    return ("epoch",) if epoch else ("deletion", "quota_trim")


def start_form(data: QueryDict, row: Any) -> Form:
    """What was typed."""
    form = forms.typed(data, "reason", "confirm_phrase", "grace", "throttle", "pass_windows")
    form.given["seen"] = data.get("seen", bytes(row.plan_hash).hex())
    return form


def plan_start(form: Form, row: Any, actor: Principal, now: datetime) -> Any:
    """The plan that was looked at is carried out; None: the form says why not, and nothing was fenced."""
    minutes, throttle = forms.whole(form, "grace"), forms.size(form, "throttle")
    said = {
        "plan_id": str(row.id),
        "plan_hash": form.given["seen"],
        "reason": form.given["reason"],
        "confirm_phrase": form.given["confirm_phrase"],
        "grace_seconds": 60.0 * (minutes or 0),
        "throttle": throttle or None,
        "pass_windows": "yes" in form.given["pass_windows"],
    }
    fields = forms.checked(DeletionIn, form, said) if not form.code else {}
    if "grace_seconds" in form.errors:
        form.errors["grace"] = form.errors.pop("grace_seconds")
    return forms.attempt(form, lambda: deletion_request(**fields, actor=actor, now=now))


def plans_start(ids: list[str], form: Form, actor: Principal, now: datetime) -> list[Any]:
    """These plans are carried out, all of them or none. Only what needs no typing is started together."""
    found = plans_of(actor.subject, ids=[UUID(one) for one in ids if _is_id(one)])
    if not found or len(found) != len(set(ids)):
        form.wrong("plan", "invalid_choice")
    if any(friction(row.risk).phrase for row in found):
        form.refuse(Problem("plan-needed"))

    def act() -> list[Any]:
        return [
            deletion_request(plan_id=row.id, plan_hash=bytes(row.plan_hash).hex(), actor=actor, now=now)
            for row in found
        ]

    return forms.attempt(form, act) or []


def _is_id(text: str) -> bool:
    try:
        return bool(UUID(text))
    except ValueError:
        return False
