"""Decides how bearer tokens are issued, used up and revoked, and who may have one made."""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from audit.services import portable, record
from kvconsole.infra.access import TENANT_ROLES, Principal, plane
from kvconsole.infra.access import scopes as known_scopes
from kvconsole.infra.rest import Problem
from tenants import tokens
from tenants.constants import GRANTABLE, PLATFORM_TENANT, ROLES
from tenants.models import Tenant, Token, User
from tenants.services.identity import invalid

DEFAULT_DAYS, MOST_DAYS, UNUSED_DAYS = 90, 365, 60
OVERLAP = timedelta(hours=24)
"""How long a token still works after another one took its place."""
OWNED_KINDS = ("user", "service", "gateway")
"""Kinds that people manage; a node's and an invitation have lives of their own."""
FLEET_KINDS = ("enrol", "node")
"""Kinds that no tenant has: nodes are the platform's."""
_BY = ("token", "gateway", "node")
"""Kinds of principals that are a token, by whose id they go."""


def token_issue(
    kind: str,
    *,
    tenant_id: UUID = PLATFORM_TENANT,
    user: User | None = None,
    holder: str = "",
    name: str = "",
    roles: Sequence[str] = (),
    scopes: Sequence[str] = (),
    cidr: str = "",
    expires_at: datetime | None = None,
    actor: Principal | None = None,
    now: datetime | None = None,
) -> tuple[Token, str]:
    """The token is good from commit on; its plaintext exists only in the answer.

    Args:
        kind: enrol | node | gateway | service | user | invite.
        tenant_id: whose it is; the platform's are over all tenants.
        user: who stands behind it: it can never do what that person may not.
        holder: id of the node or gateway it stands for.

    Raises:
        Problem: validation-failed (role unknown, or longer than a year).
    """
    at = now or datetime.now(UTC)
    until = expires_at or at + timedelta(days=DEFAULT_DAYS)
    if unknown := sorted(set(roles) - set(ROLES)):
        raise invalid("/roles", f"Not a role: {unknown[0]!r}.")
    if not at < until <= at + timedelta(days=MOST_DAYS):
        raise invalid("/expires_at", "In the future, at most 365 days.")
    plaintext, parsed = tokens.generate(kind)
    token = Token(
        id=parsed.id,
        kind=kind,
        tenant_id=tenant_id,
        user=user,
        holder=holder,
        name=name,
        secret_hash=parsed.secret_hash,
        roles=sorted(set(roles)),
        scopes=sorted(set(scopes)),
        cidr=cidr,
        created_at=at,
        expires_at=until,
    )
    body = {"kind": kind, "roles": token.roles, "scopes": token.scopes, "expires_at": until, "holder": holder}
    with transaction.atomic(using=plane()):
        token.save(force_insert=True)
        record(
            event_type="token.issued",
            outcome="success",
            actor=actor,
            tenant_id=tenant_id,
            object_kind="token",
            object_id=token.id,
            body=body,
        )
    return token, plaintext


def token_redeem(*, kind: str, plaintext: str | tokens.Parsed, now: datetime) -> Token | None:
    """The token of this kind is used up, by this call and no other; None: it is not good, or somebody was first.

    The caller records what it was used for, in the same transaction.
    """
    parsed = _parsed(plaintext)
    if parsed is None or not _good(kind, parsed, now).update(used_at=now):
        return None
    return Token.objects.get(id=parsed.id, secret_hash=parsed.secret_hash)


def token_good(*, kind: str, plaintext: str | tokens.Parsed, now: datetime) -> bool:
    """Whether `token_redeem` would take the token now; nothing is used up."""
    parsed = _parsed(plaintext)
    return parsed is not None and _good(kind, parsed, now).exists()


def _parsed(given: str | tokens.Parsed) -> tokens.Parsed | None:
    return tokens.parse(given) if isinstance(given, str) else given


def _good(kind: str, parsed: tokens.Parsed, now: datetime) -> QuerySet[Token]:
    found = Token.objects.filter(id=parsed.id, kind=kind, secret_hash=parsed.secret_hash)
    if kind in FLEET_KINDS:
        found = found.filter(tenant_id=PLATFORM_TENANT)
    return found.filter(used_at=None, revoked_at=None, expires_at__gt=now)  # the hash covers the kind that was said


def tokens_retire(*, holder: str, kinds: Sequence[str], reason: str, actor: Principal | None, now: datetime) -> int:
    """The holder's tokens of these kinds that could still be used are revoked; answers how many they were."""
    old = Token.objects.filter(holder=holder, kind__in=kinds, used_at=None, revoked_at=None, expires_at__gt=now)
    return sum(token_revoke(token=token, reason=reason, actor=actor, now=now) for token in old.order_by("id"))


def token_revoke(*, token: Token, reason: str, actor: Principal | None = None, now: datetime | None = None) -> bool:
    """The token is of no use from commit on. False: it was revoked before."""
    with transaction.atomic(using=plane()):
        rows = Token.objects.filter(id=token.id, tenant_id=token.tenant_id, revoked_at=None)  # ids are of a tenant
        changed = rows.update(revoked_at=now or datetime.now(UTC))
        if changed:
            record(
                event_type="token.revoked",
                outcome="success",
                actor=actor,
                tenant_id=token.tenant_id,
                object_kind="token",
                object_id=token.id,
                body={"kind": token.kind, "reason": reason},
            )
    return bool(changed)


def token_create(
    *,
    tenant: Tenant,
    owner: User,
    actor: Principal,
    kind: str = "user",
    name: str = "",
    roles: Sequence[str] = (),
    scopes: Sequence[str] = (),
    cidr: str = "",
    expires_at: datetime | None = None,
    now: datetime | None = None,
) -> tuple[Token, str]:
    """The owner has one more token; its plaintext exists only in the answer.

    People make their own tokens only: who makes a token can act as its owner. A service account's are made by who
    could have given it the roles they carry. A token makes tokens only where it carries the scope for it by name, and
    none that reaches further than itself: not in roles, scopes, addresses or time. It does not take them with it when
    it is revoked.

    Args:
        tenant: of the owner; the platform for staff of the fleet.
        owner: who stands behind it; it can never do what the owner may not at the time of use.
        actor: who makes it.
        kind: user (of a person), service, or gateway (of a service account that is one).
        roles: a part of the owner's.
        scopes: what of that it can be used for; none = everything but what cannot be taken back.
        cidr: addresses it works from; "" = anywhere, or wherever the token that asks does.
        expires_at: default 90 days, at most 365, and never after the token that asks.

    Raises:
        Problem: not-found, validation-failed, role-not-grantable, own-password-needed, conflict.
    """
    at = now or datetime.now(UTC)
    _check_owner(tenant, owner, kind, actor)
    if beyond := sorted(set(roles) - set(owner.roles)):
        raise invalid("/roles", f"Its owner has no such role: {beyond[0]}.", "beyond-owner")
    if not roles:
        raise invalid("/roles", "At least one of its owner's roles.")
    if owner.kind == "service" and (beyond := sorted(set(roles) - grantable(actor))):
        raise Problem("role-not-grantable", f"The role {beyond[0]} is given by somebody else.")
    if actor.kind in _BY and (beyond := sorted(set(roles) - actor.roles)):
        raise Problem("role-not-grantable", f"The token that asks has no such role: {beyond[0]}.")
    if unknown := sorted(set(scopes) - known_scopes()):
        raise invalid("/scopes", f"There is no such scope: {unknown[0]!r}.")
    if actor.scopes and not set(scopes or {"*"}) <= actor.scopes:
        raise invalid("/scopes", "A token with scopes makes tokens with no more than these.", "beyond-caller")
    cidr, expires_at = _within(actor, _network(cidr), expires_at, at)
    return token_issue(
        kind,
        tenant_id=tenant.id,
        user=owner,
        holder=str(owner.id) if kind == "gateway" else "",
        name=name,
        roles=roles,
        scopes=scopes,
        cidr=cidr,
        expires_at=expires_at,
        actor=actor,
        now=at,
    )


def token_rotate(*, tenant: Tenant, token_id: str, actor: Principal, now: datetime | None = None) -> tuple[Token, str]:
    """Another token takes the place of this one: the same owner, roles, scopes and addresses, for as long again.

    The old one works for another 24 hours at most, so that programs can be told. Who may do it is who could make the
    new one; roles that the owner has lost meanwhile do not come along.

    Raises:
        Problem: not-found, conflict (it is revoked, over or has no role left), or as `token_create`.
    """
    at = now or datetime.now(UTC)
    with transaction.atomic(using=plane()):
        old = _locked(tenant, token_id)
        known = User.objects.defer("password", "lookalike")
        owner = known.filter(id=old.user_id).first() if old and old.user_id else None
        if old is None or owner is None or not (_own(old, actor) or administers(actor, old.tenant_id)):
            raise Problem("not-found")
        roles = [role for role in old.roles if role in owner.roles]
        if old.revoked_at is not None or old.expires_at <= at or not roles:
            raise Problem("conflict", "It is revoked, over, or its owner has none of its roles any more.")
        again = at + (old.expires_at - old.created_at) if _asking(actor) is None else None
        made = token_create(
            tenant=tenant, owner=owner, actor=actor, kind=old.kind, name=old.name, roles=roles, scopes=old.scopes,
            cidr=old.cidr, expires_at=min(again, at + timedelta(days=MOST_DAYS)) if again else None, now=at,
        )  # fmt: skip
        until = min(old.expires_at, at + OVERLAP)
        Token.objects.filter(id=old.id, tenant_id=old.tenant_id).update(expires_at=until)
        record(
            event_type="token.rotated",
            outcome="success",
            actor=actor,
            tenant_id=old.tenant_id,
            object_kind="token",
            object_id=old.id,
            body={"kind": old.kind, "replaced_by": made[0].id, "expires_at": until},
        )
    return made


def token_withdraw(*, tenant: Tenant, token_id: str, actor: Principal, now: datetime | None = None) -> None:
    """The token is of no use from commit on: one's own, or one that the actor administers. Twice is once.

    Raises:
        Problem: not-found: there is none, or it is somebody else's.
    """
    token = _owned(tenant, token_id).first()
    if token is None or not (_own(token, actor) or administers(actor, token.tenant_id)):
        raise Problem("not-found")
    token_revoke(token=token, reason="withdrawn", actor=actor, now=now)


def administers(actor: Principal, tenant_id: UUID) -> bool:
    """Whether the actor manages the people and tokens of the tenant; the platform's are the fleet's."""
    if actor.tenant_id is not None:
        return actor.tenant_id == tenant_id and actor.may("tenant-admin")
    return actor.kind == "system" or actor.may("operator", "approver")


def grantable(actor: Principal) -> frozenset[str]:
    """The roles that the actor may give and take."""
    if actor.kind == "system":
        return frozenset(ROLES)
    found = frozenset(role for held, roles in GRANTABLE.items() if actor.may(held) for role in roles)
    return found if actor.tenant_id is None else found & TENANT_ROLES


def _owned(tenant: Tenant, token_id: str) -> QuerySet[Token]:
    return Token.objects.filter(id=token_id, tenant_id=tenant.id, kind__in=OWNED_KINDS)


def _locked(tenant: Tenant, token_id: str) -> Token | None:
    return _owned(tenant, token_id).select_for_update(no_key=True).first()


def _own(token: Token, actor: Principal) -> bool:
    return str(token.user_id) == (actor.user_id or actor.id)


def _asking(actor: Principal) -> tuple[str, datetime] | None:
    """Addresses and end of the token that asks; None: a person or the console itself does."""
    rows = Token.objects.filter(id=actor.id, tenant_id=actor.tenant_id or PLATFORM_TENANT)
    return rows.values_list("cidr", "expires_at").first() if actor.kind in _BY else None


def _within(actor: Principal, cidr: str, expires_at: datetime | None, at: datetime) -> tuple[str, datetime | None]:
    """Addresses and end of a new token, which are not beyond those of the token that asks for it."""
    asking = _asking(actor)
    if asking is None:
        return cidr, expires_at
    own, end = asking
    if own and cidr and not _inside(cidr, own):
        raise invalid("/cidr", f"The token that asks works from {own} alone.", "beyond-caller")
    if expires_at is not None and expires_at > end:
        raise invalid("/expires_at", f"The token that asks ends at {portable(end)}.", "beyond-caller")
    return cidr or own, expires_at or min(end, at + timedelta(days=DEFAULT_DAYS))


def _inside(cidr: str, outer: str) -> bool:
    inner, around = ipaddress.ip_network(cidr), ipaddress.ip_network(outer)
    return inner.version == around.version and inner.subnet_of(around)  # type: ignore[arg-type]


def _check_owner(tenant: Tenant, owner: User, kind: str, actor: Principal) -> None:
    if (owner.tenant_id or PLATFORM_TENANT) != tenant.id:
        raise Problem("not-found")
    if owner.removed_at is not None or not owner.is_active:
        raise Problem("conflict", "The owner is suspended or removed.")
    if owner.password_initial:
        raise Problem("own-password-needed", "The owner has no password of their own yet.")
    if kind not in OWNED_KINDS or (kind == "user") != (owner.kind == "person"):
        raise invalid("/kind", "user for a person's, service or gateway for a service account's.")
    if kind == "gateway" and "gateway" not in owner.roles:
        raise invalid("/kind", "Its owner is no gateway.")
    if owner.kind == "person" and str(owner.id) != (actor.user_id or actor.id):
        raise Problem("forbidden", "A person's tokens are made by that person alone.")
    if owner.kind == "service" and not administers(actor, tenant.id):
        raise Problem("not-found")


def _network(cidr: str) -> str:
    if not cidr:
        return ""
    try:
        return str(ipaddress.ip_network(cidr, strict=True))
    except ValueError:
        raise invalid("/cidr", "A network like 10.0.0.0/8, without bits behind its prefix.") from None
