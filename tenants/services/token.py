"""Decides how bearer tokens are issued, used up and revoked."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from audit.services import record
from kvconsole.infra.access import Principal, plane
from tenants import tokens
from tenants.constants import PLATFORM_TENANT, ROLES
from tenants.models import Token, User
from tenants.services.identity import invalid

DEFAULT_DAYS, MOST_DAYS = 90, 365


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
        kind: enrol | node | gateway | service | user.
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


def token_redeem(*, kind: str, plaintext: str, now: datetime) -> Token | None:
    """The token of this kind is used up, by this call and no other; None: it is not good, or somebody was first.

    The caller records what it was used for, in the same transaction.
    """
    parsed = tokens.parse(plaintext)
    if parsed is None or not _good(kind, parsed, now).update(used_at=now):
        return None
    return Token.objects.get(id=parsed.id)


def token_good(*, kind: str, plaintext: str, now: datetime) -> bool:
    """Whether `token_redeem` would take the token now; nothing is used up."""
    parsed = tokens.parse(plaintext)
    return parsed is not None and _good(kind, parsed, now).exists()


def _good(kind: str, parsed: tokens.Parsed, now: datetime) -> QuerySet[Token]:
    found = Token.objects.filter(id=parsed.id, kind=kind, secret_hash=parsed.secret_hash)
    return found.filter(used_at=None, revoked_at=None, expires_at__gt=now)  # the hash covers the kind that was said


def tokens_retire(*, holder: str, kinds: Sequence[str], reason: str, actor: Principal | None, now: datetime) -> int:
    """The holder's tokens of these kinds that could still be used are revoked; answers how many they were."""
    old = Token.objects.filter(holder=holder, kind__in=kinds, used_at=None, revoked_at=None, expires_at__gt=now)
    return sum(token_revoke(token=token, reason=reason, actor=actor, now=now) for token in old.order_by("id"))


def token_revoke(*, token: Token, reason: str, actor: Principal | None = None, now: datetime | None = None) -> bool:
    """The token is of no use from commit on. False: it was revoked before."""
    with transaction.atomic(using=plane()):
        changed = Token.objects.filter(id=token.id, revoked_at=None).update(revoked_at=now or datetime.now(UTC))
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
