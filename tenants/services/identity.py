"""Decides how tenants and people come to be."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.contrib.auth.hashers import make_password
from django.db import DatabaseError, IntegrityError, transaction

from audit import spool
from audit.refusals import Repetitions
from audit.services import record
from kvconsole.infra import evidence, outage
from kvconsole.infra.access import Principal, plane
from kvconsole.infra.keystore import KeyStoreUnavailable, keystore, tenant_name
from kvconsole.infra.rest import Problem, add_codes, request_id
from kvconsole.infra.sql import uuid7
from kvcore.residency import PLACE
from tenants import slugs
from tenants.constants import ERASURE_SCOPES, ISOLATIONS, ROLES
from tenants.lookalikes import normal, scripts, skeleton
from tenants.models import Tenant, User
from tenants.selectors import known_username

add_codes(
    {
        "slug-taken": (409, "Another tenant has this slug"),
        "slug-lookalike": (409, "Another tenant's slug looks like this one"),
        "username-taken": (409, "Somebody else has this log-in name"),
        "username-lookalike": (409, "Somebody else's log-in name looks the same"),
    }
)
LOGIN_BUCKETS = 64
"""Counters of refused log-ins: at most so many events a minute, whatever is tried."""
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_NAME = re.compile(r"[^\W_][\w.-]{0,62}")


def invalid(pointer: str, detail: str, code: str = "invalid") -> Problem:
    """The refusal of one field."""
    return Problem("validation-failed", errors=[{"pointer": pointer, "code": code, "detail": detail}])


def tenant_create(
    *,
    slug: str,
    name: str,
    residency: str = "",
    isolation: str = "shared",
    classes: Sequence[str] = (),
    erasure_scope: str = "label",
    retention: Mapping[str, int] | None = None,
    actor: Principal | None = None,
    now: datetime | None = None,
    tenant_id: UUID | None = None,
) -> Tenant:
    """The tenant exists, with a key under which the audit log names it.

    Args:
        slug: 1 to 63 of a-z, 0-9 and hyphens inside; what it looks like is what it is.
        residency: region its blocks must stay in; "" = any.
        classes: data classes its requests may name.
        retention: data class → seconds.

    Raises:
        Problem: validation-failed, slug-taken or slug-lookalike.
    """
    lookalike = _checked_slug(slug)
    tenant = Tenant(
        id=tenant_id or uuid7(),
        slug=slug,
        lookalike=lookalike,
        name=name,
        residency=residency,
        isolation=isolation,
        classes=list(classes),
        erasure_scope=erasure_scope,
        retention=dict(retention or {}),
        created_at=now or datetime.now(UTC),
    )
    check_tenant(tenant)
    keystore().ensure(tenant_name(tenant.id))
    fields = ("slug", "residency", "isolation", "classes", "erasure_scope", "retention")
    with transaction.atomic(using=plane()):
        _insert(tenant, "slug-taken")
        _record("tenant.created", tenant.id, "tenant", str(tenant.id), actor, {f: getattr(tenant, f) for f in fields})
    return tenant


def check_tenant(tenant: Tenant) -> None:
    """Its words are of the lists, and it keeps only classes it has.

    Raises:
        Problem: validation-failed.
    """
    if tenant.isolation not in ISOLATIONS:
        raise invalid("/isolation", f"One of {', '.join(ISOLATIONS)}.")
    if tenant.erasure_scope not in ERASURE_SCOPES:
        raise invalid("/erasure_scope", f"One of {', '.join(ERASURE_SCOPES)}.")
    if tenant.residency and not re.fullmatch(PLACE, tenant.residency):
        raise invalid("/residency", "Letters and digits and, behind the first, dots, hyphens and underscores.")
    if bad := [c for c in tenant.classes if not _WORD.fullmatch(c)]:
        raise invalid("/classes", f"Not a data class: {bad[0]!r}.")
    kept: dict[str, int] = tenant.retention
    if set(kept) - set(tenant.classes) or any(not 0 < seconds < 2**31 for seconds in kept.values()):
        raise invalid("/retention", "Positive seconds for classes of the tenant.")


def _checked_slug(slug: str) -> str:
    """What the slug looks like; no other tenant's does."""
    lookalike = slugs.slug_skeleton(slug)
    other = Tenant.objects.filter(lookalike=lookalike).values_list("slug", flat=True).first()
    if other == slug:
        raise Problem("slug-taken")
    if other is not None:
        raise Problem("slug-lookalike", f"{slug!r} looks like {other!r}, which another tenant has.")
    if not slugs.is_slug(slug):
        raise invalid("/slug", slugs.RULE)
    return lookalike


def user_create(
    *,
    username: str,
    password: str | None,
    roles: Sequence[str],
    tenant: Tenant | None = None,
    email: str = "",
    language: str = "",
    actor: Principal | None = None,
    now: datetime | None = None,
) -> User:
    """The person can log in (not without a password).

    Raises:
        Problem: validation-failed or username-taken.
    """
    if unknown := sorted(set(roles) - set(ROLES)):
        raise invalid("/roles", f"Not a role: {unknown[0]!r}.")
    user = User(
        username=username,
        password=make_password(password),
        email=email,
        tenant=tenant,
        roles=sorted(set(roles)),
        language=language,
        created_at=now or datetime.now(UTC),
    )
    with transaction.atomic(using=plane()):
        user_insert(user, pointer_name=username, actor=actor)
    return user


def user_insert(user: User, *, pointer_name: str, actor: Principal | None) -> None:
    """The person is there, under a name that nobody takes for another's; called in a transaction.

    Args:
        user: not yet in the database.
        pointer_name: the part of its name that the caller chose.
        actor: who makes it.

    Raises:
        Problem: validation-failed, username-taken or username-lookalike.
    """
    name = normal(pointer_name)
    if not _NAME.fullmatch(name):
        raise invalid("/username", "1 to 63 letters and digits and, behind the first, dots, hyphens and underscores.")
    if len(scripts(name)) > 1:
        raise invalid("/username", "Its letters are of several scripts.", "mixed-scripts")
    user.username = user.username.removesuffix(pointer_name) + name
    user.lookalike = skeleton(user.username)
    body = {"roles": user.roles, "tenant": str(user.tenant_id) if user.tenant_id else None, "kind": user.kind}
    try:
        with transaction.atomic(using=plane()):
            user.save(force_insert=True)
    except IntegrityError as e:
        constraint = getattr(getattr(e.__cause__, "diag", None), "constraint_name", "") or ""
        raise Problem("username-lookalike" if "lookalike" in constraint else "username-taken") from e
    pii = {"username": user.username, "email": user.email}
    _record("user.created", user.tenant_id, "user", str(user.id), actor, body, pii)


def user_prefer(*, user_id: UUID, language: str | None = None, theme: str | None = None) -> None:
    """The person's next pages are in this language and theme, on every browser. Of no right, so not audited."""
    chosen = {k: v for k, v in (("language", language), ("theme", theme)) if v is not None}
    if chosen:
        User.objects.filter(id=user_id).update(**chosen)


def user_change(
    *, user_id: UUID, roles: Sequence[str] | None = None, is_active: bool | None = None, actor: Principal | None = None
) -> None:
    """The person has these roles, or may no longer log in, from commit on: in open sessions and with all tokens too.

    Raises:
        Problem: not-found or validation-failed.
    """
    user = User.objects.filter(id=user_id).first()
    if user is None:
        raise Problem("not-found")
    if unknown := sorted(set(roles or ()) - set(ROLES)):
        raise invalid("/roles", f"Not a role: {unknown[0]!r}.")
    changed = []
    if roles is not None:
        user.roles = sorted(set(roles))
        changed.append("roles")
    if is_active is not None:
        user.is_active = is_active
        changed.append("is_active")
    with transaction.atomic(using=plane()):
        user.save(update_fields=changed)
        _record("user.changed", user.tenant_id, "user", str(user.id), actor, {"changed": changed, "roles": user.roles})


def logged_in(*, who: Principal, method: str = "password") -> None:
    """The trail says that the person has logged in, and how; called in the transaction that begins the session."""
    _record("user.logged_in", who.tenant_id, "user", who.user_id or who.id, who, {"method": method})


def factor_changed(*, who: Principal, changed: str) -> None:
    """The trail says that the person's own means to log in are others: totp, webauthn, recovery_codes, oidc."""
    body = {"changed": [changed], "roles": sorted(who.roles)}
    _record("user.changed", who.tenant_id, "user", who.user_id or who.id, who, body)


def stepped_up(*, who: Principal, method: str) -> None:
    """The trail says that the person has proved themselves anew."""
    _record("user.stepped_up", who.tenant_id, "user", who.user_id or who.id, who, {"method": method})


def logged_out(*, who: Principal) -> None:
    """The trail says that the person has logged out."""
    _record("user.logged_out", who.tenant_id, "user", who.user_id or who.id, who, {})


def login_refused(*, username: str, now: float, reason: str = "name-or-password", address: str = "") -> bool:
    """The trail says that a log-in was refused: at once, then once a minute with the count of those in between.

    Names share counters, whether somebody has them or not: guessing floods nothing, and its time tells nothing. While
    PostgreSQL is away the event waits on disk; without a key store it is counted towards the next one.

    Args:
        username: as it was typed; it is kept sealed, because people type passwords there.
        now: seconds of any steady clock.
        reason: name-or-password | code | passkey | oidc | too-many | unavailable.
        address: where it came from; sealed too.

    Returns:
        Whether an event was written, or waits on disk.
    """
    bucket = hashlib.sha256(username.encode(errors="replace")).digest()[0] % LOGIN_BUCKETS
    key = (str(bucket), reason)
    evidence.told()  # as an event, or in a count: the call needs none beside
    repeated = _refused_logins.due(key, now, reason)
    if repeated is None:
        return False
    pii = {"username": username[:150]} | ({"address": address} if address else {})
    if _refused(reason, repeated, repeated + 1, pii, _known(username) if reason != "unavailable" else ""):
        return True
    _refused_logins.back(key, repeated + 1, reason)
    return False


def _known(username: str) -> str:
    """The id of whose name it is, so that it is sealed under their key; "" = nobody's."""
    known = known_username(normal(username)) if username and "\0" not in username else None
    return str(known.user_id) if known else ""


def _refused(reason: str, repeated: int, calls: int, pii: dict[str, Any] | None = None, whose: str = "") -> bool:
    fields: dict[str, Any] = {
        "event_type": "user.login_refused",
        "outcome": "denied",
        "object_kind": "user",
        "object_id": whose,
        "body": {"reason": reason, "repeated": repeated, "calls": calls},
        "pii": pii,
    }
    try:
        with transaction.atomic(using=plane()):
            record(**fields, actor=None, tenant_id=None)
    except (DatabaseError, KeyStoreUnavailable) as why:
        return outage.is_absence(why) and spool.put(fields, request_id=request_id())
    return True


def _silent_refused(reason: str, calls: int) -> bool:
    return _refused(reason, calls, calls)


_refused_logins = Repetitions(_silent_refused)


def _insert(row: Tenant, taken: str) -> None:
    try:
        with transaction.atomic(using=plane()):
            row.save(force_insert=True)
    except IntegrityError as e:
        raise Problem(taken) from e


def _record(
    event_type: str,
    tenant_id: UUID | None,
    object_kind: str,
    object_id: str,
    actor: Principal | None,
    body: dict[str, Any],
    pii: dict[str, Any] | None = None,
) -> None:
    record(
        event_type=event_type,
        outcome="success",
        actor=actor,
        tenant_id=tenant_id,
        object_kind=object_kind,
        object_id=object_id,
        body=body,
        pii=pii,
    )
