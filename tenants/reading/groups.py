"""Reads share groups as who asks may see them."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from django.db.models import QuerySet

from audit.approvals import approval_state, approvals_of
from kvconsole.infra.access import FLEET_PLANE, plane
from kvconsole.infra.sql import named
from kvconsole.infra.statements import Rows, fetch
from tenants.listing import NEWEST_FIRST, Listing, listing
from tenants.models import Namespace, ShareGroup, ShareMember


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


_COLUMNS = ("id", "owner_slug", "name", "reason", "residency", "state", "requested_at", "expires_at", "decided_at",
            "ended_at")  # fmt: skip
_KEY = ("requested_at", "id")
GROUPS = Rows(ShareGroup.objects.all, columns=(*_COLUMNS, *ShareGroup.STAFF_ONLY), key=_KEY)
GROUPS_OF_TENANT = Rows(ShareGroup.objects.all, columns=_COLUMNS, key=_KEY)


def group_rows() -> Rows:
    """The groups that the current plane shows, with the columns that it may read."""
    return GROUPS if plane() == FLEET_PLANE else GROUPS_OF_TENANT


def group_view(group: ShareGroup, *, now: datetime) -> GroupView:
    """One group."""
    return group_views([group], now)[0]


def group_views(groups: Sequence[Any], now: datetime) -> list[GroupView]:
    """The groups, or rows of `GROUPS`; two queries for all their members and approvals."""
    fleet = plane() == FLEET_PLANE
    members: dict[UUID, list[str]] = {}
    for group_id, slug in fetch(named("tenants")["members"], [[g.id for g in groups]]):
        members.setdefault(group_id, []).append(slug)
    found = approvals_of("share_group", [str(g.id) for g in groups]) if fleet else {}
    return [_view(g, members.get(g.id, []), found.get(str(g.id)), fleet, now) for g in groups]


def _view(group: Any, members: list[str], approval: Any, fleet: bool, now: datetime) -> GroupView:
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


def share_groups(*, now: datetime, limit: int = 500, tenant_id: UUID | None = None) -> list[GroupView]:
    """The groups that the current plane shows, newest first; those of one tenant where it is named."""
    return group_views(list(_groups(tenant_id).order_by("-requested_at", "-id")[:limit]), now)


def share_groups_page(*, now: datetime, tenant_id: UUID | None = None, after: str = "", before: str = "") -> Listing:
    """A page of them."""
    found = listing(_groups(tenant_id), keys=NEWEST_FIRST, after=after, before=before)
    return Listing(group_views(found.items, now), found.after, found.before)


def share_groups_waiting(*, now: datetime) -> int:
    """How many of those that the current plane shows wait for a second person. Index: state."""
    return ShareGroup.objects.filter(state="awaiting_approval", expires_at__gt=now).count()


def _groups(tenant_id: UUID | None) -> QuerySet[ShareGroup]:
    rows = ShareGroup.objects.all()
    if tenant_id is not None:
        rows = rows.filter(id__in=ShareMember.objects.filter(tenant_id=tenant_id).values("group_id"))
    return rows


def group_names(ids: Collection[UUID]) -> dict[UUID, str]:
    """What these groups are called: owner and name."""
    rows = ShareGroup.objects.filter(id__in=ids).values_list("id", "owner_slug", "name") if ids else ()
    return {id_: f"{owner}/{name}" for id_, owner, name in rows}


def groups_of_namespaces(digests: Collection[bytes]) -> dict[bytes, UUID]:
    """Namespace → its group, of those that are a group's and that the current plane shows."""
    rows = Namespace.objects.filter(digest__in=list(digests)).values_list("digest", "share_group") if digests else ()
    return {bytes(digest): group for digest, group in rows if group is not None}


def share_group(group_id: UUID, *, now: datetime) -> GroupView | None:
    """One of them."""
    found = ShareGroup.objects.filter(id=group_id).first()
    return None if found is None else group_view(found, now=now)
