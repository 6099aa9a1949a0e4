"""Reads who could delete what today: what the routes allow, the people and tokens that may, and what looks odd.

Everything that cannot be taken back is a route with a scope that ends in `:destroy` or that asks for a fresh proof; the
registry of routes is the list, so nothing has to be kept up to date here.
"""

from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from audit.selectors import EventView, own_approvals
from kvconsole.infra import access
from tenants.models import Token, User
from tenants.services.token import UNUSED_DAYS

MOST = 500
"""Of people and of tokens that are listed."""
SINCE = timedelta(days=90)


class Power(msgspec.Struct, frozen=True):
    """Something that cannot be taken back, and who may do it by role."""

    scope: str
    calls: list[str]
    roles: list[str]
    person: bool
    """A person alone, no token."""


class Holder(msgspec.Struct, frozen=True):
    """Somebody whose roles are enough for one of them."""

    id: UUID
    username: str
    tenant: str
    roles: list[str]
    suspended: bool
    last_login: datetime | None


class Key(msgspec.Struct, frozen=True):
    """A token that is good now."""

    id: str
    name: str
    owner: str
    tenant: str
    roles: list[str]
    scopes: list[str]
    last_used_at: datetime | None
    expires_at: datetime


class AccessReview(msgspec.Struct, frozen=True):
    """The review, as far as the current plane shows people, tokens and events."""

    powers: list[Power]
    people: list[Holder]
    tokens: list[Key]
    unused_tokens: list[Key]
    own_approvals: list[EventView]
    complete: bool
    """False: more people or tokens than are listed."""


def access_review(*, now: datetime) -> AccessReview:
    """Who can delete what at this moment."""
    powers = _powers()
    roles = sorted({role for power in powers for role in power.roles})
    people = list(User.objects.filter(removed_at=None, roles__overlap=roles).select_related("tenant")
                  .only("id", "username", "roles", "is_active", "last_login", "tenant__slug")
                  .order_by("username")[: MOST + 1])  # fmt: skip
    good = Token.objects.filter(revoked_at=None, expires_at__gt=now).select_related("user", "tenant")
    good = good.defer("secret_hash", "user__password", "user__lookalike").order_by("id")
    tokens = [t for t in good.exclude(scopes=[]).iterator() if any(s.endswith(":destroy") for s in t.scopes)]
    old = now - timedelta(days=UNUSED_DAYS)
    unused = list((good.filter(last_used_at__lt=old) | good.filter(last_used_at=None, created_at__lt=old))[: MOST + 1])
    return AccessReview(
        powers=powers,
        people=[_holder(user) for user in people[:MOST]],
        tokens=[_key(token) for token in tokens[:MOST]],
        unused_tokens=[_key(token) for token in unused[:MOST]],
        own_approvals=own_approvals(now - SINCE),
        complete=max(len(people), len(tokens), len(unused)) <= MOST,
    )


def _powers() -> list[Power]:
    found: dict[tuple[str, bool], tuple[set[str], set[str]]] = {}
    for name, rules in access.registry().items():
        for method, rule in rules.items():
            if method != "GET" and rule.scope.endswith(f":{access.DESTROY}"):  # the page before an act destroys nothing
                calls, roles = found.setdefault((rule.scope, rule.person), (set(), set()))
                calls.add(f"{method} {name}")
                roles.update(rule.roles)
    return [
        Power(scope, sorted(calls), sorted(roles), person) for (scope, person), (calls, roles) in sorted(found.items())
    ]


def _holder(user: User) -> Holder:
    return Holder(
        id=user.id,
        username=user.username,
        tenant=user.tenant.slug if user.tenant else "",
        roles=list(user.roles),
        suspended=not user.is_active,
        last_login=user.last_login,
    )


def _key(token: Token) -> Key:
    return Key(
        id=token.id,
        name=token.name,
        owner=token.user.username if token.user else token.holder,
        tenant=token.tenant.slug,
        roles=list(token.roles),
        scopes=list(token.scopes),
        last_used_at=token.last_used_at,
        expires_at=token.expires_at,
    )
