"""Decides what the pages of findings, and of logs that go on after each other, show. As `pages`."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import Http404, QueryDict

from audit import epochs, explaining, selectors
from audit.approvals import approval_state, approvals
from audit.standing import hindrance
from frontend.audit.pages import numbered
from frontend.audit.wording import ENDS, ORIGINS
from frontend.tenancy.pages import may
from kvconsole.infra.access import Principal


def findings(data: QueryDict, principal: Principal) -> dict[str, Any]:
    """What was found amiss, the open ones first."""
    rows, page = numbered(selectors.findings().order_by("-resolved_at", "-id"), data)  # NULL is the largest
    return {"findings": explaining.explained(rows), "page": page}


def finding_or_404(finding_id: int) -> explaining.Explained:
    """The finding, where the caller may see it."""
    rows = selectors.findings().filter(id=finding_id) if finding_id < explaining.MOST_ID else []
    for row in rows:
        return explaining.explained([row])[0]
    raise Http404


def finding(found: explaining.Explained, principal: Principal) -> dict[str, Any]:
    """One finding: what it means, what to do, and who has looked into it."""
    means, do = ORIGINS.get(found.row.kind, ORIGINS[""])
    return {
        "found": found,
        "means": means,
        "do": do,
        "may": may(principal, "page-audit-finding-acknowledge")
        | may(principal, "page-audit", "page-audit-event", method="GET"),
    }


def logs(now: datetime, principal: Principal) -> dict[str, Any]:
    """All logs, the present one last, and who asked that it ends."""
    found = epochs.logs()
    done = {one.approval for one in found}
    asked = []
    for approval in epochs.epochs_asked():
        state = "retired" if approval.id in done else approval_state(approval, now)
        told = wish(approval, now, principal)
        asked.append({**told, "state": state, "order": state == "approved" and approval.what["origin"] == told["now"]})
    return {
        "logs": found,
        "asked": asked,
        "closed": hindrance(),
        "may": may(principal, "page-audit-log-new", "page-audit-log-approve"),
    }


def wish(approval: Any, now: datetime, principal: Principal) -> dict[str, Any]:
    """Somebody's wish that a log ends, as it is shown. `now`: the name of the log that is signed at present."""
    return {
        "approval": approval,
        "state": approval_state(approval, now),
        "own": approval.requested_by == principal.subject,
        "why": ENDS.get(approval.what.get("reason"), ""),
        "now": epochs.kept_now().origin,
    }


def wish_or_404(approval_id: UUID) -> Any:
    """The wish that a log ends."""
    found = approvals().filter(id=approval_id, kind=epochs.KIND).first()
    if found is None:
        raise Http404
    return found


def record_or_404(number: int) -> str:
    """What the keys of two logs signed together, when the later one began."""
    for log in epochs.logs():
        if log.number == number and log.record:
            return log.record
    raise Http404
