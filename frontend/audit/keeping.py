"""Decides what the pages of the access review, of webhooks and of retention show. As `pages`."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import Http404, QueryDict
from django.urls import reverse

from audit import retention, selectors
from audit.approvals import approval_state, approvals
from audit.webhooks.kinds import KINDS
from frontend.audit.pages import ACTS, ROWS, numbered, plan
from frontend.audit.wording import CLASSES
from frontend.tenancy.pages import may
from kvconsole.infra.access import TENANT_ROLES, Principal
from tenants.reading.access import SINCE, AccessReview, Power, access_review

MOST_NAMES = 20
"""So many names stand beside a power; the list below it has all."""


def access(now: datetime, principal: Principal) -> dict[str, Any]:
    """Who can delete what today."""
    review = access_review(now=now)
    return {
        "review": review,
        "powers": [power(one, review, principal) for one in review.powers],
        "own": principal.tenant_id is not None,
        "since": now - SINCE,
        "may": may(principal, "page-person", "page-audit-event", method="GET"),
    }


def power(one: Power, review: AccessReview, reader: Principal) -> dict[str, Any]:
    """What cannot be taken back, with the people and tokens that can do it now.

    `fleet`: people and tokens of the fleet may as well, and the reader, of a tenant, is not shown who they are.
    """
    people = [who for who in review.people if not who.suspended and set(who.roles) & set(one.roles)]
    scopes = {one.scope, f"*:{one.scope.partition(':')[2]}"}
    tokens = [t for t in review.tokens if not one.person and scopes & set(t.scopes) and set(t.roles) & set(one.roles)]
    return {
        "code": f"{one.scope}{'/person' if one.person else ''}",
        "power": one,
        "people": people[:MOST_NAMES],
        "others": max(0, len(people) - MOST_NAMES),
        "fleet": reader.tenant_id is not None and not TENANT_ROLES.issuperset(one.roles),
        "tokens": tokens,
    }


def hooks(principal: Principal) -> dict[str, Any]:
    """Webhooks of the caller's place, oldest first."""
    return {"hooks": list(selectors.webhooks().order_by("id")), "may": may(principal, *ACTS)}


def hook_or_404(webhook_id: UUID) -> Any:
    """The webhook, where the caller may see it."""
    found = selectors.webhooks().filter(id=webhook_id).first()
    if found is None:
        raise Http404
    return found


def hook(webhook_id: UUID, data: QueryDict, principal: Principal) -> dict[str, Any]:
    """One webhook and what was sent to it."""
    found, page = numbered(selectors.deliveries(webhook_id).defer("payload").order_by("-created_at", "-id"), data)
    return {
        "hook": hook_or_404(webhook_id),
        "deliveries": found,
        "page": page,
        "may": may(principal, "page-webhook-state"),
    }


def hook_plan(what: str, hook: Any) -> dict[str, Any]:
    """The same, of a webhook."""
    return plan(what, hook.name or hook.url, reverse("page-webhook", args=[hook.id]))


def hook_kinds() -> list[str]:
    """What one can be told of."""
    return list(KINDS)


def retentions(now: datetime, principal: Principal) -> dict[str, Any]:
    """Which bodies went, and what waits for a second person."""
    gone = retention.retired()
    done = {row.approval for row in gone}
    rows = approvals().filter(kind=retention.KIND).order_by("-requested_at")[:ROWS]
    asked = [{**wish(a, now, principal), **({"state": "retired"} if a.id in done else {})} for a in rows]
    return {
        "gone": [{"row": row, "subject": CLASSES.get(row.class_, "")} for row in gone],
        "asked": asked,
        "may": may(principal, "page-audit-retention-new", "page-audit-retention-approve"),
    }


def wish(approval: Any, now: datetime, principal: Principal) -> dict[str, Any]:
    """Somebody's wish that bodies go, as it is shown."""
    return {
        "approval": approval,
        "state": approval_state(approval, now),
        "own": approval.requested_by == principal.subject,
        "subject": CLASSES.get(approval.what.get("class"), ""),
        "phrase": wish_phrase(approval),
    }


def wish_phrase(approval: Any) -> str:
    """What the second person types before the bodies go: month and class, in one language."""
    return f"{approval.what['month']} {retention.CLASSES[approval.what['class']]}"


def wish_or_404(approval_id: UUID) -> Any:
    """The wish that some bodies go."""
    found = approvals().filter(id=approval_id, kind=retention.KIND).first()
    if found is None:
        raise Http404
    return found
