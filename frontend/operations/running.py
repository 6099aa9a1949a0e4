"""Decides what the page of one operation shows: how far it is, cell by cell, and what it waits for. Called by `views`.

State, cells and conditions are those of REST (`catalog.operation_views`). A tenant's people see tiers, and no nodes.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.http import Http404

from catalog.live import FLEET_ROLES
from catalog.operation_reads import operation_row, plan_row, steps_newest
from catalog.operation_views import operation_view
from catalog.selectors import WRITER_SECONDS, node_names
from frontend import formats
from frontend.operations import asking, sentences
from frontend.operations.names import people_of
from frontend.operations.wording import CONDITIONS, WORST
from frontend.tenancy.pages import may
from frontend.wording import TIERS
from kvconsole.infra.access import Principal
from kvcore.plan_kinds import KINDS

ACTS = ("page-operation-pause", "page-operation-resume", "page-operation-stop", "page-operation-throttle")
MOST_NODES = 24
"""So many nodes are on a page, those first that are waited for; all of them are one click away."""
MOST_STEPS = 25


class Cell(NamedTuple):
    """What is known of one node and tier together. `cls`: the lowest class of its places, None = not graded."""

    state: str
    done: int
    total: int
    cls: int | None
    flags: tuple[str, ...]
    places: int


def operation_or_404(operation_id: UUID) -> Any:
    """The operation, where the caller may see it."""
    found = operation_row(operation_id)
    if found is None:
        raise Http404
    return found


def operation(now: datetime, one: Any, principal: Principal, *, every: bool = False) -> dict[str, Any]:
    """The page of an operation."""
    shown = operation_view(one, now=now)
    staff = principal.tenant_id is None
    rows = matrix(shown["progress"]["cells"], by_node=staff)
    silent = sorted({name for name, cells in rows if any(cell.state == "silent" for cell in cells.values())})
    removes, state = KINDS[one.kind].certified, shown["state"]
    said = sentences.running(state, shown, len(silent)) if removes else sentences.moved(state, shown)
    true = {c["type"]: c["status"] == "true" for c in shown["conditions"]}
    return {
        "one": one,
        "state": state,
        "what": sentences.selected(one.selector),
        "said": said,
        "removes": removes,
        "phases": phases(one) if removes else [],
        "unroutable": true.get("Unroutable", False) and one.fenced_at is not None,
        "after": took(one, one.routed_at),
        "percent": shown["progress"]["percent"],
        "tiers": TIERS,
        "rows": rows if every else rows[:MOST_NODES],
        "more": 0 if every else max(0, len(rows) - MOST_NODES),
        "silent": silent if staff else [],
        "silent_nodes": len(silent),
        "conditions": [condition(c, staff=staff) for c in shown["conditions"] if one.concluded_at is None],
        "names": people_of([one.requested_by]),
        "steps": (found := steps_newest(one.id, MOST_STEPS)),
        "node_names": names_of({step.node for step in found if step.node}) if staff else {},
        "staff": staff,
        "open": one.concluded_at is None and one.stopped_at is None,
        "live": {"as_of": now, "promise": WRITER_SECONDS, "old": False} if hears(principal) else None,
        "may": may(principal, *ACTS),
        "sees": may(principal, "page-approval", "page-node", method="GET"),
        "as_of": now,
        "anew": anew(one, principal),
    }


def anew(one: Any, principal: Principal) -> str:
    """The filled form that plans the same again, where its plan did not hold; "" = there is none."""
    row = plan_row(one.plan) if one.problem in asking.VOID and one.plan else None
    page = "page-epoch-retire" if one.kind == "epoch" else "page-deletion-new"
    allowed = may(principal, page).get(page.removeprefix("page-").replace("-", "_"), False)
    return asking.anew(row) if row and allowed else ""


def hears(principal: Principal) -> bool:
    """Whether the live topic of operations is for the caller; others ask by themselves."""
    return principal.tenant_id is None and principal.may(*FLEET_ROLES)


def matrix(cells: Iterable[Mapping[str, Any]], *, by_node: bool) -> list[tuple[str, dict[str, Cell]]]:
    """Node → tier → what is known; those that are waited for first, then those that hold most. "" = all nodes."""
    found: dict[str, dict[str, Cell]] = {}
    for one in cells:
        row = found.setdefault(one["node"] if by_node else "", {})
        row[one["tier"]] = joined(row.get(one["tier"]), one)

    def weight(pair: tuple[str, dict[str, Cell]]) -> tuple[int, int, str]:
        worst = min((WORST.index(cell.state) for cell in pair[1].values() if cell.state in WORST), default=len(WORST))
        return min(worst, 2), -sum(cell.total for cell in pair[1].values()), pair[0]

    return sorted(found.items(), key=weight)


def joined(before: Cell | None, one: Mapping[str, Any]) -> Cell:
    """A place more in a cell."""
    now = Cell(one["state"], one["done_bytes"], one["total_bytes"], one["class"], tuple(one["flags"]), 1)
    if before is None:
        return now
    state = next((s for s in WORST if s in (before.state, now.state)), now.state)
    cls = None if before.cls is None or now.cls is None else min(before.cls, now.cls)
    flags = tuple(dict.fromkeys((*before.flags, *now.flags)))
    return Cell(state, before.done + now.done, before.total + now.total, cls, flags, before.places + 1)


def phases(one: Any) -> list[dict[str, Any]]:
    """Request, fence, removal, look and certificate: when each was reached, and which is under way."""
    asked = [("request", one.created_at), ("fence", one.fenced_at), ("erase", one.erased_at),
             ("verify", one.verified_at), ("certificate", one.concluded_at if one.certificate else None)]  # fmt: skip
    over = one.concluded_at is not None or one.stopped_at is not None
    current = "" if over else next((name for name, at in asked if at is None), "")
    return [{"name": name, "at": at, "after": took(one, at), "now": name == current} for name, at in asked]


def took(one: Any, at: datetime | None) -> Any:
    """How long after the request it was; "" = it was not yet, or is the request itself."""
    if at is None or at - one.created_at < timedelta(milliseconds=1):
        return ""
    return formats.milliseconds((at - one.created_at).total_seconds() * 1000)


def condition(one: Mapping[str, Any], *, staff: bool) -> dict[str, Any]:
    """A condition as it is shown; which nodes it is about is told to staff alone."""
    said, good = CONDITIONS.get(one["type"], (one["type"], True))
    right = one["status"] == ("true" if good else "false")
    tone = ("unknown", "unknown") if one["status"] == "unknown" else ("ok", "check") if right else ("warn", "clock")
    bad = not good and not right
    return {
        "said": said,
        "status": one["status"],
        "tone": "danger" if bad else tone[0],
        "icon": "danger" if bad else tone[1],
        "reason": one["reason"],
        "detail": one["message"] if staff else "",
        "since": formats.moment(one["since"]),
    }


def names_of(ids: Collection[UUID]) -> dict[UUID, str]:
    """What the nodes of steps are called, for the fleet's own people."""
    return {UUID(node): name for name, node in node_names(ids=ids).items()}


def stopping(one: Any) -> dict[str, Any]:
    """What to stop it means."""
    return {"one": one, "what": sentences.selected(one.selector), "removes": KINDS[one.kind].certified}
