"""Reads share groups as who asks may see them."""

from datetime import datetime
from uuid import UUID

import msgspec

from audit.approvals import approval_of, approval_state
from kvconsole.infra.access import FLEET_PLANE, plane
from tenants.models import ShareGroup, ShareMember


class GroupView(msgspec.Struct, frozen=True):
    """A share group as the caller may see it: other members only the owner and the fleet."""

    id: UUID
    name: str
    owner: str
    audience: list[str]
    state: str
    reason: str
    residency: str
    requested_by: str
    requested_at: datetime
    expires_at: datetime
    decided_by: str
    decided_at: datetime | None
    ended_at: datetime | None
    approval: UUID | None
    approval_state: str


def group_view(group: ShareGroup, *, now: datetime) -> GroupView:
    """One group."""
    fleet = plane() == FLEET_PLANE
    members = list(ShareMember.objects.filter(group=group).order_by("slug").values_list("slug", flat=True))
    approval = approval_of("share_group", str(group.id)) if fleet else None
    over = group.state == "approved" and group.expires_at <= now
    return GroupView(
        id=group.id,
        name=group.name,
        owner=group.owner_slug,
        audience=members,
        state="expired" if over else group.state,
        reason=group.reason,
        residency=group.residency,
        requested_by=group.requested_by if fleet else "",
        requested_at=group.requested_at,
        expires_at=group.expires_at,
        decided_by=group.decided_by if fleet else "",
        decided_at=group.decided_at,
        ended_at=group.ended_at,
        approval=approval.id if approval else None,
        approval_state=approval_state(approval, now) if approval else "",
    )


def share_groups(*, now: datetime, limit: int = 500) -> list[GroupView]:
    """The groups that the current plane shows, newest first."""
    return [group_view(g, now=now) for g in ShareGroup.objects.order_by("-requested_at", "-id")[:limit]]


def share_group(group_id: UUID, *, now: datetime) -> GroupView | None:
    """One of them."""
    found = ShareGroup.objects.filter(id=group_id).first()
    return None if found is None else group_view(found, now=now)
