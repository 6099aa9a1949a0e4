"""Decides what of a tenant can be changed after it was made."""

from collections.abc import Callable, Mapping
from typing import Any

from django.db import transaction

from audit.services import record
from audit.standing import need_log
from kvconsole.infra.access import Principal, plane
from kvconsole.infra.rest import Problem
from tenants.constants import ERASURE_SCOPES, ISOLATIONS
from tenants.models import Namespace, ShareMember, Tenant
from tenants.services import resolved
from tenants.services.identity import check_tenant
from tenants.services.namespace import generation_bump

CHANGEABLE = ("name", "residency", "isolation", "classes", "erasure_scope", "retention")
APART = ("residency", "isolation")
"""What members of a share group must have in common."""
SHARING = ("awaiting_approval", "approved")


def tenant_change(
    *,
    slug: str,
    changes: Mapping[str, Any],
    actor: Principal | None,
    unless: Callable[[Tenant], bool] = lambda tenant: False,
) -> Tenant:
    """The tenant with these fields changed. What changes nothing leaves no event.

    A finer erasure scope fences what was cached before: it cannot be told apart, and stays judged as such.

    Args:
        slug: whose.
        changes: of `CHANGEABLE`, the new values.
        unless: asked with the locked row; true = it is not what the caller saw.

    Raises:
        Problem: not-found, etag-mismatch, validation-failed, share-group-incompatible or, where the tenant would be
            kept apart less than before, audit-unavailable; nothing was changed.
    """
    with transaction.atomic(using=plane()):
        tenant = Tenant.objects.select_for_update().filter(slug=slug).first()
        if tenant is None:
            raise Problem("not-found")
        if unless(tenant):
            raise Problem("etag-mismatch")
        before = {f: getattr(tenant, f) for f in CHANGEABLE if f in changes and getattr(tenant, f) != changes[f]}
        if _widens(before, changes):
            need_log()
        for name in before:
            setattr(tenant, name, changes[name])
        check_tenant(tenant)
        _require_unshared(tenant, [f for f in APART if f in before])
        if "classes" in before:
            tenant.former_classes = sorted({*tenant.former_classes, *before["classes"]} - {*tenant.classes})
        if before:
            tenant.save(update_fields=[*before, "former_classes"])
            _record(tenant, before, actor)
            transaction.on_commit(lambda: resolved.forget(), using=plane(), robust=True)
        if "erasure_scope" in before:
            _fence_mixed(tenant, before["erasure_scope"], actor)
    return tenant


def _widens(before: Mapping[str, Any], changes: Mapping[str, Any]) -> bool:
    """Whether the tenant is kept apart less: from others, in its region, or its parts from each other."""
    order = {"isolation": ISOLATIONS, "erasure_scope": ERASURE_SCOPES}
    less = [n for n in order.keys() & before.keys() if changes[n] in order[n]
            and order[n].index(changes[n]) < order[n].index(before[n])]  # fmt: skip
    return bool(less) or bool(before.get("residency"))


def _require_unshared(tenant: Tenant, changed: list[str]) -> None:
    """A grant says that its members may share as they are: first it goes, then they change."""
    if not changed:
        return
    members = ShareMember.objects.filter(tenant=tenant, state__in=SHARING).select_related("group").order_by("id")
    names = [f"{m.group.owner_slug}/{m.group.name}" for m in members[:20]]
    if names:
        raise Problem(
            "share-group-incompatible",
            f"It shares in {', '.join(names)}. Revoke these groups first (POST /api/v1/share-groups/{{id}}:revoke).",
            errors=[{"pointer": f"/{f}", "code": "shared", "detail": ", ".join(names)} for f in changed],
        )


def _fence_mixed(tenant: Tenant, before: str, actor: Principal | None) -> None:
    """What was cached under a coarser scope is out of reach: nobody could erase a part of it by the new one."""
    depth = ERASURE_SCOPES.index(tenant.erasure_scope)
    if depth <= ERASURE_SCOPES.index(before):
        return
    groups = ShareMember.objects.filter(tenant=tenant).values("group_id")
    own = Namespace.objects.filter(tenant=tenant, state="active").order_by("id")
    shared = Namespace.objects.filter(share_group__in=groups, state="active").order_by("id")
    for namespace in [*own.iterator(), *shared]:
        made = namespace.spec.get("erasure_scope") or before
        if namespace.share_group or ERASURE_SCOPES.index(made) < depth:
            generation_bump(namespace=namespace, reason="erasure-scope", actor=actor)


def _record(tenant: Tenant, before: Mapping[str, Any], actor: Principal | None) -> None:
    """Values before and after, but not of the name: a person's may stand in it."""
    told = [f for f in before if f != "name"]
    record(
        event_type="tenant.changed",
        outcome="success",
        actor=actor,
        tenant_id=tenant.id,
        object_kind="tenant",
        object_id=str(tenant.id),
        body={
            "changed": list(before),
            "before": {f: before[f] for f in told},
            "after": {f: getattr(tenant, f) for f in told},
        },
    )
