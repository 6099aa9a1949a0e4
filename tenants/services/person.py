"""Decides who may make, change and remove people and service accounts, and which roles they can give.

Staff of the fleet works on the fleet's plane, an administrator of a tenant on the tenant's: there the database itself
shows and takes nothing but the tenant's own people.
"""

import secrets
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from django.contrib.auth.hashers import make_password
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import connections, transaction

from audit.services import record
from kvconsole.infra.access import TENANT_ROLES, Principal, plane
from kvconsole.infra.rest import Problem, add_codes
from kvconsole.infra.sql import PLATFORM, named
from tenants import tokens
from tenants.constants import ROLES
from tenants.models import Tenant, Token, User
from tenants.services.identity import invalid, user_insert
from tenants.services.token import grantable, token_good, token_issue, token_redeem, token_revoke

add_codes(
    {
        "role-not-grantable": (403, "The caller cannot give or take this role"),
        "own-roles": (409, "Nobody changes, suspends or removes themselves"),
        "last-administrator": (409, "Nobody else could do what this person does"),
        "person-removed": (409, "The person was removed and stays so"),
        "invitation-invalid": (410, "The invitation was used, is too old or never was"),
    }
)
INVITATION = timedelta(days=3)
KEPT_ROLES = ("operator", "approver")
PERSONS_ONLY = frozenset({"approver"})
"""Roles that no service account has: who decides is a person, and not a token that somebody else made."""
"""At least one person of the fleet keeps each of these: without them nobody could give roles again."""
How = Literal["link", "password", "none"]


def person_create(
    *,
    username: str,
    roles: Sequence[str],
    actor: Principal,
    tenant: Tenant | None = None,
    email: str = "",
    kind: Literal["person", "service"] = "person",
    how: How = "link",
    language: str = "",
    now: datetime | None = None,
) -> tuple[User, str | None]:
    """The person is invited, or can log in with the initial password, or is a service that never logs in.

    Args:
        username: unique over all; a tenant's people have names under `<slug>/`, so that a name that is taken tells
            nothing of another tenant.
        roles: what they may be; all of them the actor can give.
        actor: who makes them; a tenant's administrator only makes its own.
        tenant: whose they are; None = staff of the fleet.
        email: for people to know whom they see; nothing is sent there.
        kind: whether it can ever log in.
        how: `link` = an invitation to hand over, good once and for three days; `password` = an initial password,
            which opens nothing but its change; `none` = neither yet.

    Returns:
        The person, and the invitation or password, which exists nowhere else.

    Raises:
        Problem: validation-failed, role-not-grantable, username-taken or username-lookalike.
    """
    at = now or datetime.now(UTC)
    _check_roles(roles, actor, tenant.id if tenant else None)
    _check_kind(roles, kind)
    _check_email(email)
    if actor.tenant_id is not None and (tenant is None or tenant.id != actor.tenant_id):
        raise Problem("not-found")
    if kind == "service" and how != "none":
        raise invalid("/how", "A service account does not log in.")
    password = secrets.token_urlsafe(15) if how == "password" else None
    user = User(
        username=f"{tenant.slug}/{username}" if tenant else username,
        password=make_password(password),
        password_initial=password is not None,
        email=email,
        kind=kind,
        tenant=tenant,
        roles=sorted(set(roles)),
        language=language,
        created_at=at,
    )
    with transaction.atomic(using=plane()):
        user_insert(user, pointer_name=username, actor=actor)
        secret = _invite(user, actor, at) if how == "link" else password
    return user, secret


def person_change(
    *,
    user_id: UUID,
    actor: Principal,
    roles: Sequence[str] | None = None,
    email: str | None = None,
    is_active: bool | None = None,
    unless: Callable[[User], bool] = lambda user: False,
) -> User:
    """The person has these roles and may, or may not, log in: from commit on, in open sessions and by all tokens.

    Args:
        user_id: whose.
        actor: who changes them. Whoever suspends somebody, or lets them in again, could give all of their roles.
        roles: all of them from now on; None = as they are.
        email: None = as it is.
        is_active: False = suspended; None = as it is.
        unless: asked with the locked row; true = it is not what the caller saw.

    Raises:
        Problem: not-found, etag-mismatch, own-roles, person-removed, role-not-grantable, last-administrator or
            validation-failed; nothing was changed.
    """
    changed: list[str] = []
    with transaction.atomic(using=plane()):
        user = _reachable(user_id, actor)
        if unless(user):
            raise Problem("etag-mismatch")
        if roles is not None and sorted(set(roles)) != user.roles:
            not_oneself(user, actor)
            _check_roles(set(roles) ^ set(user.roles), actor, user.tenant_id)
            _check_kind(roles, user.kind)
            _keep_one(user, set(user.roles) - set(roles))
            user.roles = sorted(set(roles))
            changed.append("roles")
        if is_active is not None and is_active != user.is_active:
            not_oneself(user, actor)
            check_grantable(user.roles, actor)
            if not is_active:
                _keep_one(user, user.roles)
            user.is_active = is_active
            changed.append("is_active")
        if email is not None and email != user.email:
            _check_email(email)
            user.email = email
            changed.append("email")
        if changed:
            user.save(update_fields=changed)
            pii = {"email": user.email} if "email" in changed else None
            _record("user.changed", user, actor, {"changed": changed, "roles": user.roles}, pii)
    return user


def person_remove(*, user_id: UUID, actor: Principal, now: datetime | None = None) -> None:
    """The person has no name, address, factor, token or session left; the trail still knows that somebody acted.

    Raises:
        Problem: not-found, own-roles, role-not-grantable or last-administrator.
    """
    at = now or datetime.now(UTC)
    with transaction.atomic(using=plane()):
        user = _reachable(user_id, actor)
        not_oneself(user, actor)
        check_grantable(user.roles, actor)
        _keep_one(user, user.roles)
        for token in _tokens_of(user):
            token_revoke(token=token, reason="owner removed", actor=actor, now=at)
        user.username = user.lookalike = f"removed {user.id}"
        user.email, user.password, user.roles = "", make_password(None), []
        user.is_active, user.password_initial, user.removed_at = False, False, at
        fields = ["username", "lookalike", "email", "password", "roles", "is_active", "password_initial", "removed_at"]
        user.save(update_fields=fields)
        _record("user.removed", user, actor, {})


def invitation_renew(*, user_id: UUID, actor: Principal, now: datetime | None = None) -> str:
    """A new invitation to hand over; earlier ones are void. With it the person chooses a new password.

    Raises:
        Problem: not-found, own-roles, role-not-grantable, or conflict: a service, or somebody suspended.
    """
    with transaction.atomic(using=plane()):
        user = _reachable(user_id, actor)
        not_oneself(user, actor)
        _check_roles(user.roles, actor, user.tenant_id)  # who chooses the password could act as the person
        if user.kind != "person" or not user.is_active:
            raise Problem("conflict")
        return _invite(user, actor, now or datetime.now(UTC))


def invitation_accept(*, invitation: str | tokens.Parsed, password: str, now: datetime) -> User:
    """The person has this password, and the invitation is used up. Called on the fleet's plane, for nobody yet.

    Args:
        invitation: its plaintext, or what is kept of it.

    Raises:
        Problem: invitation-invalid; nothing was changed.
    """
    with transaction.atomic(using=plane()):
        token = token_redeem(kind="invite", plaintext=invitation, now=now)
        user = _invitee(token) if token else None
        if user is None:
            raise Problem("invitation-invalid")
        user_password_set(user_id=user.id, password=password, actor=_themselves(user))
    return user


def user_password_set(*, user_id: UUID, password: str, actor: Principal | None = None) -> None:
    """The old password is of no use, and sessions made with it are over.

    Where somebody else made the old one, all that could be added with it is gone too: factors, linked identities
    (the database sees to both) and tokens.

    Raises:
        Problem: not-found.
    """
    with transaction.atomic(using=plane()):
        user = User.objects.select_for_update(no_key=True).filter(id=user_id).first()
        if user is None:
            raise Problem("not-found")
        if user.password_initial:
            for token in _tokens_of(user):
                token_revoke(token=token, reason="first own password", actor=actor)
        user.password, user.password_initial = make_password(password), False
        user.save(update_fields=["password", "password_initial"])
        _record("user.changed", user, actor, {"changed": ["password"]})


def invited(*, invitation: str | tokens.Parsed, now: datetime) -> User | None:
    """Whose invitation it is, None where it is not good; nothing is used up."""
    parsed = tokens.parse(invitation) if isinstance(invitation, str) else invitation
    if parsed is None or not token_good(kind="invite", plaintext=parsed, now=now):
        return None
    return _invitee(Token.objects.get(id=parsed.id, secret_hash=parsed.secret_hash))


def _invitee(token: Token) -> User | None:
    """Whom the invitation is for: somebody of the tenant whose it is, nobody else's."""
    user = User.objects.filter(id=token.holder, is_active=True, removed_at=None).first()
    return user if user is not None and (user.tenant_id or PLATFORM) == token.tenant_id else None


def _themselves(user: User) -> Principal:
    return Principal(kind="user", id=str(user.id), user_id=str(user.id), tenant_id=user.tenant_id, name=user.username)


def _invite(user: User, actor: Principal, at: datetime) -> str:
    for old in Token.objects.filter(kind="invite", holder=str(user.id), used_at=None, revoked_at=None):
        token_revoke(token=old, reason="replaced", actor=actor, now=at)
    whose, until = user.tenant_id or PLATFORM, at + INVITATION
    _, plaintext = token_issue("invite", tenant_id=whose, holder=str(user.id), expires_at=until, actor=actor, now=at)
    return plaintext


def _tokens_of(user: User) -> list[Token]:
    owned = Token.objects.filter(user_id=user.id, revoked_at=None)
    invitations = Token.objects.filter(kind="invite", holder=str(user.id), used_at=None, revoked_at=None)
    return [*owned, *invitations]


def _reachable(user_id: UUID, actor: Principal) -> User:
    """The person, locked, where the actor may see and administer them at all."""
    found = User.objects.select_for_update(no_key=True).defer("password", "lookalike")
    user = found.filter(id=user_id).first()
    if user is None or (actor.tenant_id is not None and user.tenant_id != actor.tenant_id):
        raise Problem("not-found")
    if user.removed_at is not None:
        raise Problem("person-removed")
    return user


def not_oneself(user: User, actor: Principal) -> None:
    """It is somebody else.

    Raises:
        Problem: own-roles.
    """
    if str(user.id) == (actor.user_id or actor.id):
        raise Problem("own-roles")


def _check_roles(roles: Collection[str], actor: Principal, tenant_id: UUID | None) -> None:
    if unknown := sorted(set(roles) - set(ROLES)):
        raise invalid("/roles", f"Not a role: {unknown[0]!r}.")
    check_grantable(roles, actor)
    if tenant_id is not None and (void := sorted(set(roles) - TENANT_ROLES)):
        raise invalid("/roles", f"Not a role within a tenant: {void[0]}.", "not-of-tenant")
    if tenant_id is None and (void := sorted({"tenant-admin", "tenant-member"} & set(roles))):
        raise invalid("/roles", f"A role within a tenant, and there is none: {void[0]}.", "needs-tenant")


def check_grantable(roles: Collection[str], actor: Principal) -> None:
    """The actor could give all of these roles.

    Raises:
        Problem: role-not-grantable.
    """
    if beyond := sorted(set(roles) - grantable(actor)):
        raise Problem("role-not-grantable", f"The role {beyond[0]} is given and taken by somebody else.")


def _check_kind(roles: Collection[str], kind: str) -> None:
    if kind == "service" and (void := sorted(PERSONS_ONLY & set(roles))):
        raise invalid("/roles", f"Not a role of a service account: {void[0]}.", "not-of-service")


def _check_email(email: str) -> None:
    if email:
        try:
            validate_email(email)
        except ValidationError:
            raise invalid("/email", "Not an e-mail address.") from None


def _keep_one(user: User, roles: Collection[str]) -> None:
    """Somebody else of the fleet still has each of these roles."""
    if user.tenant_id is not None or user.kind != "person" or not user.is_active:
        return
    for role in sorted(set(KEPT_ROLES) & set(roles)):
        with connections[plane()].cursor() as cursor:
            cursor.execute(named("tenants")["last_of_role_lock"])
            cursor.execute(named("tenants")["last_of_role"], (role, user.id))
            if cursor.fetchone()[0]:
                raise Problem("last-administrator", f"Nobody else has the role {role}.")


def _record(
    event_type: str, user: User, actor: Principal | None, body: dict[str, Any], pii: dict[str, Any] | None = None
) -> None:
    record(
        event_type=event_type,
        outcome="success",
        actor=actor,
        tenant_id=user.tenant_id,
        object_kind="user",
        object_id=str(user.id),
        body=body,
        pii=pii,
    )
