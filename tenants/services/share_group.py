"""Decides who may share a cache: groups of tenants that one person asks for, another approves, and that always end.

Private is the default. A request must declare the group, its tenant must be in the audience, the group approved and
not over; then it uses a namespace of the platform's that only such requests reach. Ending a group fences that
namespace's generation, and the grant is gone in the same transaction.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.postgres.functions import TransactionNow
from django.db import IntegrityError, transaction

from audit.approvals import approval_of, approval_request, approval_settle, approval_withdraw
from audit.services import record
from audit.standing import hindrance, need_log
from kvconsole.infra.access import FLEET_PLANE, Principal, plane, system
from kvconsole.infra.rest import Problem, add_codes
from kvcore.leaf import APPROVAL
from tenants.models import Namespace, ShareGroup, ShareMember, Tenant, User
from tenants.services.identity import invalid
from tenants.services.namespace import generation_bump

add_codes(
    {
        "audience-unknown": (422, "There is no such tenant to share with"),
        "expiry-range": (422, "The expiry is not between now and 180 days from now"),
        "share-group-taken": (409, "The owner has a share group of this name"),
        "share-group-incompatible": (409, "These tenants cannot share"),
    }
)
LONGEST = timedelta(days=180)
DECIDED_WITHIN = timedelta(days=7)
"""How long a request waits for its second person."""
AUDIENCE = 100
KIND = "share_group"
SWEEPER = system("tenants")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


def share_group_request(
    *,
    owner: str,
    name: str,
    audience: Sequence[str],
    expires_at: datetime,
    reason: str,
    actor: Principal,
    now: datetime | None = None,
) -> ShareGroup:
    """The group waits for a second person; nobody shares anything yet.

    Args:
        owner: slug of the tenant whose matter it is; it is in the audience without being named.
        name: 1 to 63 of a-z, 0-9 and hyphens inside; one of the owner's groups that are not over.
        audience: slugs of the tenants that may share.
        expires_at: at most 180 days from now.
        reason: why, for who approves.
        actor: who asks. No service account: whoever holds its tokens could be who approves.

    Raises:
        Problem: person-needed, not-found (owner), validation-failed, audience-unknown, expiry-range,
            share-group-incompatible or share-group-taken.
    """
    now = now or datetime.now(UTC)
    if actor.user_id and User.objects.filter(id=actor.user_id, kind="service").exists():
        raise Problem("person-needed", "A service account does not ask for what a second person decides.")
    if not _NAME.fullmatch(name):
        raise invalid("/name", "1 to 63 characters of a-z, 0-9 and, inside, hyphens.")
    if not reason.strip():
        raise invalid("/reason", "Say why, for the person who approves.")
    if not now < expires_at <= now + LONGEST:
        raise Problem("expiry-range")
    with transaction.atomic(using=plane()):
        members = _members(owner, audience)
        group = ShareGroup(
            tenant=members[0],
            owner_slug=owner,
            name=name,
            reason=reason,
            residency=members[0].residency,
            requested_by=actor.subject,
            requested_at=now,
            expires_at=expires_at,
        )
        _insert(group)
        ShareMember.objects.bulk_create(
            ShareMember(tenant=t, group=group, owner=group.tenant_id, slug=t.slug, state=group.state,
                        expires_at=expires_at)
            for t in members
        )  # fmt: skip
        facts = _facts(group) | {"reason": reason, "expires_at": expires_at, "residency": group.residency}
        facts["audience"] = sorted(t.slug for t in members)
        approval = approval_request(
            kind=KIND,
            object_id=str(group.id),
            tenant_id=group.tenant_id,
            what=facts,
            risk="R2",
            actor=actor,
            expires_at=min(expires_at, now + DECIDED_WITHIN),
            now=now,
        )
        _record("sharing.requested", group, actor, {**facts, "approval": str(approval.id)})
    return group


def _members(owner: str, audience: Sequence[str]) -> list[Tenant]:
    """The owner, then the others, if they can share with each other; none of them changes in this transaction."""
    wanted = sorted({*audience} - {owner})
    if not 1 <= len(wanted) <= AUDIENCE:
        raise invalid("/audience", f"1 to {AUDIENCE} tenants beside the owner.")
    rows = Tenant.objects.filter(slug__in=[owner, *wanted], state="active").order_by("id")
    found = {t.slug: t for t in rows.select_for_update(no_key=True)}
    if owner not in found or owner == "platform":
        raise Problem("not-found")
    unknown = [slug for slug in wanted if slug not in found or slug == "platform"]
    if unknown:
        where = [
            {"pointer": f"/audience/{list(audience).index(slug)}", "code": "audience-unknown", "detail": slug[:63]}
            for slug in unknown
        ]
        raise Problem("audience-unknown", f"{unknown[0][:63]!r} is no tenant.", errors=where)
    members = [found[owner], *(found[slug] for slug in wanted)]
    _require_alike(members)
    return members


def _require_alike(members: Sequence[Tenant]) -> None:
    """They may share as they are now; the first is the owner."""
    owner = members[0].slug
    apart = [t.slug for t in members if t.isolation != "shared"]
    if apart:
        raise Problem("share-group-incompatible", f"{apart[0]} is isolated from others: its isolation is not shared.")
    elsewhere = [t.slug for t in members if t.residency != members[0].residency]
    if elsewhere:
        raise Problem("share-group-incompatible", f"{elsewhere[0]} and {owner} must stay in different regions.")


def _recheck(group: ShareGroup) -> None:
    """What was true when the group was asked for still is: its tenants are there and may share as they are."""
    ids = list(ShareMember.objects.filter(group=group, state=group.state).values_list("tenant_id", flat=True))
    rows = Tenant.objects.select_for_update(no_key=True).filter(id__in=ids).order_by("id")
    members = sorted(rows, key=lambda t: t.id != group.tenant_id)
    if gone := [t.slug for t in members if t.state != "active"]:
        raise Problem("share-group-incompatible", f"{gone[0]} is closed.")
    if len(members) < 2 or members[0].id != group.tenant_id:
        raise Problem("share-group-incompatible", "Nobody is left to share with.")
    _require_alike(members)
    if members[0].residency != group.residency:
        raise Problem("share-group-incompatible", "Its tenants must stay in another region than when it was asked for.")


def share_group_approve(*, group_id: UUID, actor: Principal, now: datetime | None = None) -> ShareGroup:
    """Its members may share from commit on.

    Raises:
        Problem: as `approval_settle`, share-group-inactive, or share-group-incompatible (its tenants have changed
            since), or audit-unavailable; nothing was decided.
    """
    return _decide(group_id, True, actor, now or datetime.now(UTC), "")


def share_group_deny(*, group_id: UUID, actor: Principal, reason: str = "", now: datetime | None = None) -> ShareGroup:
    """It stays without effect for good.

    Raises:
        Problem: as `approval_settle`, or share-group-inactive.
    """
    return _decide(group_id, False, actor, now or datetime.now(UTC), reason)


def _decide(group_id: UUID, approve: bool, actor: Principal, now: datetime, reason: str) -> ShareGroup:
    with transaction.atomic(using=plane()):
        group = _locked(group_id)
        approval = approval_of(KIND, str(group.id), tenant_id=group.tenant_id)
        if approval is None:
            raise Problem("not-found")
        approval_settle(approval_id=approval.id, approve=approve, actor=actor, now=now, reason=reason, kind=KIND)
        if group.state != "awaiting_approval":
            raise Problem("share-group-inactive")
        if approve:
            need_log()
            _recheck(group)
        _apply(group, "approved" if approve else "denied", actor, str(approval.id), actor.subject, reason, now)
    return group


def _apply(
    group: ShareGroup, state: str, actor: Principal, approval: str, decided_by: str, reason: str, now: datetime
) -> None:
    """The decision is in force."""
    group.state, group.decided_by, group.decided_at = state, decided_by, now
    group.save(update_fields=["state", "decided_by", "decided_at"])
    ShareMember.objects.filter(group=group, state="awaiting_approval").update(state=state)
    body: dict[str, Any] = {**_facts(group), "approval": approval, "decided_by": decided_by}
    if state == "approved":
        members = ShareMember.objects.filter(group=group, state=state)
        body["audience"] = sorted(members.values_list("slug", flat=True))
    else:
        body["reason"] = reason
    _record(f"sharing.{state}", group, actor, body, APPROVAL)


def share_group_revoke(*, group_id: UUID, reason: str, actor: Principal, now: datetime | None = None) -> ShareGroup:
    """Nobody shares through it any more: the grants are gone, and what was cached is fenced, from commit on.

    Raises:
        Problem: not-found, validation-failed or share-group-inactive.
    """
    if not reason.strip():
        raise invalid("/reason", "Say why.")
    now = now or datetime.now(UTC)
    with transaction.atomic(using=plane()):
        group = _locked(group_id)
        if group.state not in ("awaiting_approval", "approved"):
            raise Problem("share-group-inactive", f"It is {group.state} already.")
        if not _reachable(group):
            raise Problem("share-group-inactive", "It has expired, and is being ended.")
        _end(group, "revoked", actor, now, {"reason": reason})
    return group


def _reachable(group: ShareGroup) -> bool:
    """Whether its namespaces can be fenced from here. On a tenant's plane they are out of sight once it has expired by
    the clock of the database: then the sweep ends it, within a second, and fences them."""
    return plane() == FLEET_PLANE or ShareGroup.objects.filter(id=group.id, expires_at__gt=TransactionNow()).exists()


def _end(group: ShareGroup, state: str, actor: Principal, now: datetime, more: dict[str, Any]) -> None:
    """Grants, then fences: in one transaction, so nobody gets a key between them."""
    approval_withdraw(kind=KIND, object_id=str(group.id), tenant_id=group.tenant_id, now=now)
    fenced = _fence(group, f"share-group-{state}", actor, now)
    group.state, group.ended_at = state, now
    group.save(update_fields=["state", "ended_at"])
    ShareMember.objects.filter(group=group).exclude(state="revoked").update(state=state)
    _record(f"sharing.{state}", group, actor, {**_facts(group), "namespaces": fenced, **more})


def share_groups_sweep(*, now: datetime) -> int:
    """Groups that are over have ended, and decisions that nobody told us of are in force.

    Returns:
        How many groups changed.
    """
    changed = sum(decision_apply(group_id=id_, now=now) for id_ in _waiting())
    over = ShareGroup.objects.filter(state__in=("awaiting_approval", "approved"), expires_at__lte=now)
    for id_ in list(over.order_by("expires_at").values_list("id", flat=True)[:100]):
        with transaction.atomic(using=plane()):
            group = _locked(id_)
            if group.state in ("awaiting_approval", "approved") and group.expires_at <= now:
                _end(group, "expired", SWEEPER, now, {})
                changed += 1
    return changed


def decision_apply(*, group_id: UUID, now: datetime) -> bool:
    """What was decided on the group's approval is in force. Whether anything changed."""
    with transaction.atomic(using=plane()):
        group = ShareGroup.objects.select_for_update(no_key=True).filter(id=group_id).first()
        if group is None or group.state != "awaiting_approval":
            return False
        approval = approval_of(KIND, str(group.id), tenant_id=group.tenant_id)
        if approval is None:
            return False
        if approval.state in ("approved", "denied"):
            if approval.decided_by in ("", group.requested_by):  # nobody's decision, or not a second person's
                return False
            if approval.state == "approved" and hindrance():  # it widens who shares: later
                return False
            if approval.state == "approved" and (why := _unfit(group)):
                _end(group, "revoked", SWEEPER, now, {"reason": why})
                return True
            _apply(group, approval.state, SWEEPER, str(approval.id), approval.decided_by, approval.reason, now)
            return True
        if approval.expires_at <= now:
            _end(group, "expired", SWEEPER, now, {})
            return True
    return False


def _unfit(group: ShareGroup) -> str:
    """Why its tenants may not share any more, "" if they may."""
    try:
        _recheck(group)
    except Problem as problem:
        return f"{problem.code}: {problem.text}"
    return ""


def sharing_lock(tenant_id: UUID) -> None:
    """The groups of the tenant stay as they are until the end of the transaction; taken before its own row."""
    mine = ShareMember.objects.filter(tenant_id=tenant_id, state__in=("awaiting_approval", "approved"))
    list(ShareGroup.objects.select_for_update(no_key=True).filter(id__in=mine.values("group_id")).order_by("id"))


def memberships_end(*, tenant: Tenant, reason: str, actor: Principal | None, now: datetime) -> int:
    """The tenant shares with nobody any more; called in the transaction that ends it.

    Groups that it owns, that wait for approval or that would have one member left are revoked; in the others its grant
    is over, and what they had cached is fenced, because it has the keys.

    Returns:
        How many groups that was.
    """
    mine = ShareMember.objects.filter(tenant=tenant, state__in=("awaiting_approval", "approved"))
    ids = sorted(mine.values_list("group_id", flat=True))
    who = actor or SWEEPER
    for id_ in ids:
        group = _locked(id_)
        others = ShareMember.objects.filter(group=group, state=group.state).exclude(tenant=tenant).count()
        if group.tenant_id == tenant.id or group.state != "approved" or others < 2:
            _end(group, "revoked", who, now, {"reason": reason})
        else:
            _leave(group, tenant, reason, who, now)
    return len(ids)


def _leave(group: ShareGroup, tenant: Tenant, reason: str, actor: Principal, now: datetime) -> None:
    ShareMember.objects.filter(group=group, tenant=tenant).update(state="revoked")
    body = {**_facts(group), "member": tenant.slug, "reason": reason}
    _record("sharing.left", group, actor, {**body, "namespaces": _fence(group, "share-group-left", actor, now)})


def _fence(group: ShareGroup, reason: str, actor: Principal, now: datetime) -> int:
    """How many namespaces of the group have their next generation."""
    shared = list(Namespace.objects.filter(share_group=group.id, state="active").order_by("id"))
    for namespace in shared:
        generation_bump(namespace=namespace, reason=reason, actor=actor, now=now)
    return len(shared)


def _waiting() -> list[UUID]:
    waiting = ShareGroup.objects.filter(state="awaiting_approval").order_by("requested_at")
    return list(waiting.values_list("id", flat=True)[:100])


def _locked(group_id: UUID) -> ShareGroup:
    found = ShareGroup.objects.select_for_update(no_key=True).filter(id=group_id).first()
    if found is None:
        raise Problem("not-found")
    return found


def _insert(group: ShareGroup) -> None:
    try:
        with transaction.atomic(using=plane()):
            group.save(force_insert=True)
    except IntegrityError as e:
        raise Problem("share-group-taken") from e


def _facts(group: ShareGroup) -> dict[str, Any]:
    return {"name": group.name, "owner": group.owner_slug}


def _record(event_type: str, group: ShareGroup, actor: Principal, body: dict[str, Any], flags: int = 0) -> None:
    record(
        event_type=event_type,
        outcome="success",
        actor=actor,
        tenant_id=group.tenant_id,
        object_kind="share_group",
        object_id=str(group.id),
        body=body,
        flags=flags,
    )
