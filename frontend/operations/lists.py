"""Decides what the lists of operations and of one's own plans show, and how what is selected is named. As `running`."""

from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.http import QueryDict

from catalog.operation_bodies import ENDS
from catalog.operation_reads import plans_ready
from catalog.operation_views import operations, operations_shown, plan_view
from frontend.operations import sentences
from frontend.operations.names import people_of
from frontend.operations.wording import KINDS, STATES
from frontend.tenancy.lists import Page
from frontend.tenancy.pages import may
from kvconsole.infra.access import Principal
from kvcore.risk import friction
from tenants.listing import Keys, listing

NEWEST: Keys = (("-id", UUID),)
ROWS = 25
MOST_PLANS = 100
ACTS = ("page-deletion-new", "page-hold-new", "page-epoch-retire")


def operation_list(now: datetime, data: QueryDict, principal: Principal) -> dict[str, Any]:
    """A page of operations, newest first; `state` is open or how they ended, `kind` one of the kinds."""
    state, kind = data.get("state", ""), data.get("kind", "")
    state = state if state in ("open", *ENDS) else ""
    kind = kind if kind in KINDS else ""
    rows = operations(state == "open", "" if state == "open" else state)
    rows = rows.filter(kind=kind) if kind else rows
    found = listing(rows, keys=NEWEST, after=data.get("after", ""), before=data.get("before", ""), limit=ROWS)
    used = {name: value for name, value in (("state", state), ("kind", kind)) if value}
    lines = [line(one, shown) for one, shown in zip(found.items, operations_shown(found.items, now=now), strict=True)]
    return {
        "lines": lines,
        "names": people_of([one.requested_by for one in found.items]),
        "page": Page(found.items, _at(used, after=found.after), _at(used, before=found.before)),
        "used": used,
        "follow": urlencode({**used, **{n: data[n][:80] for n in ("after", "before") if data.get(n)}}),
        "states": [("", sentences.every_state(), ""), ("open", sentences.open_ones(), "")]
        + [(code, STATES[code].word, "") for code in ENDS],
        "kinds": [("", sentences.every_kind(), ""), *((code, word, "") for code, word in KINDS.items())],
        "state": state,
        "kind": kind,
        "answer": sentences.operations(_count(), bool(used), bool(found.items)),
        "as_of": now,
        "may": may(principal, *ACTS),
    }


def line(one: Any, shown: dict[str, Any]) -> dict[str, Any]:
    """One row."""
    far = shown["progress"]["percent"]
    return {
        "one": one,
        "state": shown["state"],
        "percent": far
        if shown["state"] in ("erasing", "verifying", "moving", "completed", "completed_with_exceptions")
        else None,
        "what": sentences.selected(one.selector),
    }


def _count() -> dict[str, int]:
    """How many are open, and how many of these wait for a second person."""
    rows = operations(open_=True)
    waiting = rows.filter(needs_approval=True, fenced_at=None)
    return {"open": rows.count(), "waiting": waiting.count()}


def _at(used: dict[str, str], **place: str) -> str:
    """The address of this list with these filters, from a place on; "" = there is no such page."""
    ((way, mark),) = place.items()
    return f"?{urlencode({**used, way: mark})}#list" if mark else ""


# --- one's own plans --------------------------------------------------------------------------------------------------


def plan_list(now: datetime, principal: Principal) -> dict[str, Any]:
    """One's own plans that can still be started, the newest first, each with what its start asks for."""
    lines = [plan_line(row) for row in plans_ready(principal.subject, now=now, most=MOST_PLANS)]
    return {
        "lines": lines,
        "at_once": [one["row"].id for one in lines if not one["typed"] and one["blocks"] is not None],
        "answer": sentences.plans(len(lines)),
        "may": may(principal, "page-plans-start", "page-deletion-new"),
    }


def plan_line(row: Any) -> dict[str, Any]:
    """One plan in the list."""
    shown = plan_view(row)
    return {
        "row": row,
        "what": sentences.selected(row.selector),
        "namespaces": shown["namespaces"],
        "blocks": shown["blocks"],
        "bytes": shown["bytes"],
        "blockers": len(shown["blockers"]),
        "typed": friction(row.risk).phrase,
    }
