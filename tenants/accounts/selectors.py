"""Reads of people, their tokens and their factors, for pages and REST; on the plane of the caller."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.db.models import Case, QuerySet, Value, When
from django.utils import timezone

from kvconsole.infra.sql import PLATFORM, named
from kvconsole.infra.statements import Rows, fetch
from tenants.models import Token, User
from tenants.services.token import OWNED_KINDS, UNUSED_DAYS

_HIDDEN = ("password", "lookalike")


class PersonView(msgspec.Struct, frozen=True):
    """A person or service account. state: active | invited | suspended | removed."""

    id: UUID
    username: str
    email: str
    kind: str
    roles: list[str]
    tenant_id: UUID | None
    tenant_slug: str
    state: str
    created_at: datetime
    last_login: datetime | None


class TokenView(msgspec.Struct, frozen=True):
    """A token without its secret. state: active | expired | revoked | unused | owner-suspended."""

    id: str
    kind: str
    name: str
    owner_id: UUID | None
    owner: str
    roles: list[str]
    effective_roles: list[str]
    """What it may now: what its owner still may of its roles."""
    scopes: list[str]
    cidr: str
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime | None
    state: str
    tenant_slug: str


class PasskeyView(msgspec.Struct, frozen=True):
    """One passkey of a person."""

    id: int
    name: str
    created_at: datetime
    last_used_at: datetime | None


class Factors(msgspec.Struct, frozen=True):
    """By what a person can log in besides a password."""

    totp: bool
    passkeys: list[PasskeyView]
    recovery_codes_left: int
    linked: list[str]
    """Names of OpenID providers."""


def people(*, tenant_id: UUID | None = None, fleet: bool = False, kind: str = "") -> QuerySet[User]:
    """People that the plane shows, but for those who were removed.

    Args:
        tenant_id: of this tenant only.
        fleet: staff of the fleet only.
        kind: person or service only.
    """
    found = User.objects.defer(*_HIDDEN).select_related("tenant").filter(removed_at=None)
    if tenant_id is not None:
        found = found.filter(tenant_id=tenant_id)
    if fleet:
        found = found.filter(tenant__isnull=True)
    return found.filter(kind=kind) if kind else found


PEOPLE = Rows(
    people,
    columns=(
        *("id", "username", "email", "kind", "roles", "tenant_id", "tenant__slug", "is_active", "password_initial"),
        *("removed_at", "created_at", "last_login"),
    ),
    key=("username",),
)


def person(user_id: UUID) -> PersonView | None:
    """One person that the plane shows, removed or not."""
    user = User.objects.defer(*_HIDDEN).select_related("tenant").filter(id=user_id).first()
    return person_views([user])[0] if user else None


def subjects_named(username: str) -> list[str]:
    """Whose keys name the people of this log-in name in the audit log, of those that the plane shows."""
    return [f"user:{user_id}" for user_id in User.objects.filter(username=username).values_list("id", flat=True)]


def person_views(users: Sequence[User]) -> list[PersonView]:
    """The people as they are shown; one query for all their invitations."""
    invited = _invited(users)
    return [_person(u, u.tenant.slug if u.tenant else "", invited) for u in users]


def person_row_views(rows: Sequence[Any]) -> list[PersonView]:
    """As `person_views`, of rows of `PEOPLE`."""
    invited = _invited(rows)
    return [_person(u, u.tenant__slug or "", invited) for u in rows]


def _invited(users: Sequence[Any]) -> frozenset[str]:
    found = fetch(named("tenants")["invited"], [[str(u.id) for u in users]])
    return frozenset(holder for (holder,) in found)


def _person(user: Any, tenant_slug: str, invited: frozenset[str]) -> PersonView:
    return PersonView(
        id=user.id,
        username=user.username,
        email=user.email,
        kind=user.kind,
        roles=list(user.roles),
        tenant_id=user.tenant_id,
        tenant_slug=tenant_slug,
        state=_state(user, str(user.id) in invited),
        created_at=user.created_at,
        last_login=user.last_login,
    )


def _state(user: Any, invited: bool) -> str:
    if user.removed_at is not None:
        return "removed"
    if not user.is_active:
        return "suspended"
    waiting = user.last_login is None and user.kind == "person" and (invited or user.password_initial)
    return "invited" if waiting else "active"


def tokens_of(*, tenant_id: UUID, owner_id: UUID | None = None) -> QuerySet[Token]:
    """The tenant's tokens that people manage (the platform's are the fleet's), of one owner where named."""
    found = Token.objects.select_related("user", "tenant").defer("user__password", "user__lookalike", "secret_hash")
    found = found.filter(tenant_id=tenant_id, kind__in=OWNED_KINDS)
    return found.filter(user_id=owner_id) if owner_id else found


TOKENS = Rows(
    tokens_of,
    columns=(
        *("id", "kind", "name", "roles", "scopes", "cidr", "created_at", "expires_at", "last_used_at", "revoked_at"),
        *("user_id", "user__username", "user__roles", "user__is_active"),
    ),
    key=("id",),
)


def ranked(tokens: QuerySet[Token], now: datetime) -> QuerySet[Token]:
    """The tokens, with `rank`: 0 for those that are neither revoked nor over, 1 for the others."""
    good = When(revoked_at=None, expires_at__gt=now, then=Value(0))
    return tokens.annotate(rank=Case(good, default=Value(1)))


def token(token_id: str, *, now: datetime | None = None) -> TokenView | None:
    """One token that the plane shows."""
    found = Token.objects.select_related("user", "tenant").defer("user__password", "user__lookalike", "secret_hash")
    one = found.filter(id=token_id, kind__in=OWNED_KINDS).first()
    return token_view(one, now or timezone.now()) if one else None


def token_view(found: Token, now: datetime) -> TokenView:
    """The token as it is shown."""
    owner = found.user
    known = (owner.id, owner.username, owner.roles, owner.is_active) if owner else None
    return _token(found, known, found.tenant.slug if found.tenant_id != PLATFORM else "platform", now)


def token_row_view(row: Any, tenant_slug: str, now: datetime) -> TokenView:
    """As `token_view`, of a row of `TOKENS`."""
    seen = row.user__username is not None  # an owner whom the plane does not show is none
    known = (row.user_id, row.user__username, row.user__roles, row.user__is_active) if seen else None
    return _token(row, known, tenant_slug, now)


def _token(found: Any, owner: tuple[UUID, str, list[str], bool] | None, tenant_slug: str, now: datetime) -> TokenView:
    return TokenView(
        id=found.id,
        kind=found.kind,
        name=found.name,
        owner_id=owner[0] if owner else None,
        owner=owner[1] if owner else "",
        roles=list(found.roles),
        effective_roles=sorted(set(found.roles) & set(owner[2])) if owner else list(found.roles),
        scopes=list(found.scopes),
        cidr=found.cidr,
        created_at=found.created_at,
        expires_at=found.expires_at,
        last_used_at=found.last_used_at,
        state=_token_state(found, owner is None or owner[3], now),
        tenant_slug=tenant_slug,
    )


def _token_state(found: Any, owned: bool, now: datetime) -> str:
    if found.revoked_at is not None:
        return "revoked"
    if found.expires_at <= now:
        return "expired"
    if (found.last_used_at or found.created_at) <= now - timedelta(days=UNUSED_DAYS):
        return "unused"
    return "active" if owned else "owner-suspended"


def factors(user_id: UUID) -> Factors:
    """By what the person can log in besides a password. Always read on the fleet's plane."""
    found = list(Authenticator.objects.filter(user_id=user_id).order_by("created_at"))
    codes = next((a for a in found if a.type == Authenticator.Type.RECOVERY_CODES), None)
    keys = [
        PasskeyView(id=a.pk, name=str(a.data.get("name", "")), created_at=a.created_at, last_used_at=a.last_used_at)
        for a in found
        if a.type == Authenticator.Type.WEBAUTHN
    ]
    return Factors(
        totp=any(a.type == Authenticator.Type.TOTP for a in found),
        passkeys=keys,
        recovery_codes_left=len(codes.wrap().get_unused_codes()) if codes else 0,
        linked=list(SocialAccount.objects.filter(user_id=user_id).values_list("provider", flat=True)),
    )
