"""Decides what is done for what somebody announces: a session that comes back, a prefix that will be needed.

What is kept is a pin and what is fetched a prefetch of the catalog, within bounds that grow with how often the tenant's
announcements came true (`kvcore.hints`) and end at a part of its own allowance. A worker's slot is never kept: that is
another thing than keeping blocks. Called by REST.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from django.db import connections, transaction
from django.db.models import Count, Sum

from catalog import operation_owners as owners
from catalog.move_requests import prefetch_request
from catalog.pins import pin_create, pin_remove
from catalog.quotas import quota_view
from kvconsole.infra.access import FLEET_PLANE, TENANT_PLANE, Principal, plane, system
from kvconsole.infra.rest import Problem, add_codes
from kvconsole.infra.sql import uuid7
from kvcore import hints as rule
from routing.models import Announcement, TrustDay
from tenants.erasing import Erasable, ErasableTenant, erasable_tenant, namespaces_selected

add_codes({"hints-too-many": (429, "The tenant has announced too much within a minute")})
TOOL, PREFIX = "tool", "prefix"
KEPT, WISHED, FETCHED, NOTHING = "kept", "wished", "fetched", "nothing"
FETCHER = system("announcements")
WISHES = 50
A_MINUTE = 600
TRUST_DAYS = 7
LATEST = timedelta(days=30)
QUIET = ("no-slack", "no-route", "nothing-selected", "pins-too-many", "all-pinned", "audit-unavailable")
"""Refusals of what an announcement would bring about: it is taken, and nothing is done for it."""


class Announced(msgspec.Struct, frozen=True):
    """An announcement that was taken. `reason`: why nothing is done for it; "" = something is."""

    id: UUID
    effect: str
    reason: str
    until: datetime
    blocks: int
    believed: float
    trust: float
    operation: UUID | None


class TrustView(msgspec.Struct, frozen=True):
    """What a tenant announced within `days`, and how far it is believed."""

    share: float
    came: int
    missed: int
    open: int
    unseen: int
    days: int


def session_announce(
    *, tenant: str, session: str, event: str, eta_ms: float, confidence: float, namespace: str = "",
    block_keys: Sequence[str] = (), actor: Principal, now: datetime,
) -> Announced:  # fmt: skip
    """A tool runs (`tool_start`): what is cached of the session is kept for a while; it has ended: for a moment more.

    Args:
        tenant: its slug.
        session: as requests name it.
        event: tool_start or tool_end.
        eta_ms: when the session's next turn is expected.
        confidence: 0 to 1.
        namespace: digest or id, with `block_keys`: which prefix is the session's, where it is not apart from the rest.
        actor: who says so.
        now: aware.

    Raises:
        Problem: not-found or hints-too-many; nothing was done.
    """
    whose = _tenant(tenant, actor)
    about = hashlib.sha256(session.encode()).digest()
    eta_ms = 0.0 if event == "tool_end" else eta_ms
    with transaction.atomic(using=plane()):
        _admit(whose.id, now)
        trust = _trust(whose.id, now)
        believed = rule.weight(trust, confidence)
        for pin in _pins(Announcement.objects.filter(tenant_id=whose.id, kind=TOOL, about=about, until__gt=now)):
            _release(pin, actor, now)
        rows = _session_rows(whose, session, namespace)
        said = Announcement(
            id=uuid7(), tenant_id=whose.id, kind=TOOL, about=about, blocks=len(block_keys), namespace=None, said_at=now,
            until=now + timedelta(seconds=rule.window_seconds(eta_ms)), believed=believed, effect=NOTHING,
            reason="not-separable" if rows is None else "", bytes=0, pins=[], operation=None, wish=None, state="open",
        )  # fmt: skip
        if rows:
            until = now + timedelta(seconds=rule.keep_seconds(eta_ms, believed))
            _keep(said, rows, block_keys, until, whose, actor, now)
        elif rows is not None:
            said.reason = "nothing-selected"
        said.save(force_insert=True)
    return _announced(said, trust)


def prefix_announce(
    *, namespace: str, block_keys: Sequence[str], node: str, tier: str, need_at: datetime, priority: int,
    expires_at: datetime, confidence: float, actor: Principal, now: datetime,
) -> Announced:  # fmt: skip
    """A prefix will be needed on a node: it is copied there, if there is time, room and trust.

    Args:
        namespace: digest or id.
        block_keys: of the prefix, in hex.
        node, tier: where.
        need_at: when.
        priority: 0 to 9; of little trust only what matters most is done.
        expires_at: comes it later, it did not come.
        confidence: 0 to 1.
        actor: who says so.
        now: aware.

    Raises:
        Problem: not-found, validation-failed or hints-too-many; nothing was done.
    """
    if not now < need_at <= expires_at <= now + LATEST:
        detail = f"now < need_at <= expires_at, within {LATEST.days} days."
        raise Problem("validation-failed", errors=[{"pointer": "/need_at", "code": "invalid", "detail": detail}])
    (row,) = namespaces_selected(namespace=namespace)
    if actor.tenant_id and row.tenant_id != actor.tenant_id:
        raise Problem("not-found")
    with transaction.atomic(using=plane()):
        _admit(row.owner, now)
        trust = _trust(row.owner, now)
        believed = rule.weight(trust, confidence)
        said = Announcement(
            id=uuid7(), tenant_id=row.owner, kind=PREFIX, about=bytes.fromhex(block_keys[-1])[:8],
            blocks=len(block_keys), namespace=row.digest, said_at=now, until=expires_at, believed=believed,
            effect=NOTHING, reason="", bytes=0, pins=[], operation=None, wish=None, state="open",
        )  # fmt: skip
        most = rule.allowed(believed=believed, limit_bytes=_limit(row.owner, now), priority=priority)
        said.reason = rule.prefetch_refusal(_standing(row.owner, now), most) or _size_refusal(row, block_keys, most)
        if not said.reason:
            said.effect, said.wish = WISHED, {"namespace": str(row.id), "prefix": list(block_keys), "to_node": node,
                                              "to_tier": tier, "need_at": need_at.isoformat()}  # fmt: skip
            if plane() != TENANT_PLANE:  # a tenant's connection sees no nodes: a task does it
                _serve(said, actor, now)
        said.save(force_insert=True)
    return _announced(said, trust)


def wishes_serve(*, now: datetime) -> int:
    """Prefixes that tenants announced are being copied, or the reason why not is known; answers how many there were."""
    with transaction.atomic(using=FLEET_PLANE):
        rows = Announcement.objects.using(FLEET_PLANE).filter(wish__isnull=False).order_by("said_at")
        found = list(rows.select_for_update(skip_locked=True)[:WISHES])
        for said in found:
            _serve(said, FETCHER, now)
            said.save(update_fields=["effect", "reason", "operation", "wish"])
    return len(found)


def trust_view(*, tenant: UUID, now: datetime) -> TrustView:
    """How far what the tenant announces is believed, and why."""
    trust = _trust(tenant, now)
    since = now - timedelta(days=TRUST_DAYS)
    states = dict(
        Announcement.objects.filter(tenant_id=tenant, said_at__gt=since).values_list("state").annotate(Count("id"))
    )
    return TrustView(trust.share, trust.came, trust.missed, states.get("open", 0), states.get("unseen", 0), TRUST_DAYS)


def announcements_of(*, tenant: UUID, session: str, most: int = 50) -> list[Announcement]:
    """What was announced of a session, newest first, as far as it is kept."""
    about = hashlib.sha256(session.encode()).digest()
    return list(Announcement.objects.filter(tenant_id=tenant, kind=TOOL, about=about).order_by("-said_at")[:most])


def _serve(said: Announcement, actor: Principal, now: datetime) -> None:
    """The wish is a prefetch now, or `said` has the reason why it is none."""
    asked = {**(said.wish or {})}
    need_at = datetime.fromisoformat(asked.pop("need_at"))
    said.wish = None
    try:
        with transaction.atomic(using=plane()):
            said.operation = prefetch_request(**asked, need_at=need_at, actor=actor, now=now).id
        said.effect = FETCHED
    except Problem as refused:  # a node that is not there looks like one that takes nothing
        said.effect, said.reason = NOTHING, refused.code if refused.code in QUIET else "no-route"


# --- inside -------------------------------------------------------------------------------


def _tenant(slug: str, actor: Principal) -> ErasableTenant:
    found = erasable_tenant(slug)
    if found is None or found.state != "active" or (actor.tenant_id and found.id != actor.tenant_id):
        raise Problem("not-found")
    return found


def _admit(tenant: UUID, now: datetime) -> None:
    """One announcement of a tenant at a time: bounds hold also for those that come together.

    Raises:
        Problem: hints-too-many.
    """
    with connections[plane()].cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 4))", (f"hints {tenant}",))
    if Announcement.objects.filter(tenant_id=tenant, said_at__gt=now - timedelta(minutes=1)).count() >= A_MINUTE:
        raise Problem("hints-too-many", f"At most {A_MINUTE} a minute.", retry_after_seconds=60)


def _trust(tenant: UUID, now: datetime) -> rule.Trust:
    rows = TrustDay.objects.filter(tenant_id=tenant, day__gt=(now - timedelta(days=TRUST_DAYS)).date())
    sums = rows.aggregate(came=Sum("came"), missed=Sum("missed"))
    return rule.Trust(int(sums["came"] or 0), int(sums["missed"] or 0))


def _limit(tenant: UUID, now: datetime) -> int | None:
    """Bytes that the tenant may hold on all tiers together; None: some tier of it is not limited."""
    limits = [tier.limit_bytes for tier in quota_view(tenant=tenant, now=now).tiers.values()]
    return None if None in limits else sum(limit for limit in limits if limit is not None)


def _standing(tenant: UUID, now: datetime) -> rule.Standing:
    rows = Announcement.objects.filter(tenant_id=tenant)
    kept = list(rows.filter(effect=KEPT, until__gt=now).values_list("pins", "blocks", "bytes"))
    begun = rows.filter(effect__in=(WISHED, FETCHED), said_at__gt=now - timedelta(minutes=1)).count()
    return rule.Standing(
        sum(len(pins) for pins, _, _ in kept), sum(n for _, n, _ in kept), sum(n for *_, n in kept), begun
    )


def _session_rows(whose: ErasableTenant, session: str, namespace: str) -> list[Erasable] | None:
    """The namespaces of the session's blocks; None: they are not apart from the rest, and nobody said which."""
    if namespace:
        rows = namespaces_selected(namespace=namespace)
        if any(row.tenant_id != whose.id for row in rows):
            raise Problem("not-found")
        return rows
    if whose.erasure_scope != "session":
        return None
    return namespaces_selected(tenant=whose.slug, session=session, shared=False)


def _size(row: Erasable, keys: Sequence[str]) -> tuple[int, int]:
    """Blocks and bytes that a pin of these keys (none = all of the namespace) keeps, as far as is known."""
    cells = owners.held([(row.digest, row.generation + 1)]).get(row.digest, {}).values()
    blocks, size = sum(cell.blocks for cell in cells), sum(cell.bytes for cell in cells)
    if not keys:
        return blocks, size
    return len(keys), len(keys) * (size // blocks if blocks else 0)


def _size_refusal(row: Erasable, keys: Sequence[str], most: rule.Allowed) -> str:
    _, size = _size(row, keys)
    return "allowance-used" if most.bytes is not None and size > most.bytes else ""


def _keep(
    said: Announcement, rows: Sequence[Erasable], keys: Sequence[str], until: datetime, whose: ErasableTenant,
    actor: Principal, now: datetime,
) -> None:  # fmt: skip
    """The blocks are pinned until then, as far as the tenant's announcements may; else `said` has the reason."""
    most = rule.allowed(believed=said.believed, limit_bytes=_limit(whose.id, now))
    standing = _standing(whose.id, now)
    for row in rows:
        blocks, size = _size(row, keys)
        said.reason = rule.keep_refusal(standing, most, blocks=blocks, size_bytes=size)
        if said.reason or until <= now:
            said.reason = said.reason or "trust-too-small"
            return
        try:
            pin = pin_create(namespace=str(row.id), keys=list(keys) or None, until=until, reason="announced",
                             actor=actor, now=now)  # fmt: skip
        except Problem as refused:
            if refused.code not in QUIET:
                raise
            said.reason = refused.code
            return
        said.pins, said.effect = [*said.pins, str(pin.id)], KEPT
        said.blocks, said.bytes = (said.blocks if keys else said.blocks + blocks), said.bytes + size
        standing = rule.Standing(standing.pins + 1, standing.blocks + blocks, standing.bytes + size)


def _pins(rows: Any) -> list[UUID]:
    return [UUID(pin) for pins in rows.values_list("pins", flat=True) for pin in pins]


def _release(pin: UUID, actor: Principal, now: datetime) -> None:
    try:
        pin_remove(pin_id=pin, actor=actor, now=now)
    except Problem as gone:
        if gone.code != "not-found":
            raise


def _announced(said: Announcement, trust: rule.Trust) -> Announced:
    return Announced(
        said.id, said.effect, said.reason, said.until, said.blocks, round(said.believed, 4), round(trust.share, 4),
        said.operation,
    )  # fmt: skip
