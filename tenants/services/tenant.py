"""Decides what of a tenant can be changed after it was made."""

from collections.abc import Callable, Mapping
from typing import Any

from django.db import transaction

from audit.services import record
from kvconsole.infra.access import Principal, plane
from kvconsole.infra.rest import Problem
from tenants.models import Tenant
from tenants.services.identity import check_tenant

CHANGEABLE = ("name", "residency", "isolation", "classes", "erasure_scope", "retention")


def tenant_change(
    *,
    slug: str,
    changes: Mapping[str, Any],
    actor: Principal | None,
    unless: Callable[[Tenant], bool] = lambda tenant: False,
) -> Tenant:
    """The tenant with these fields changed. What changes nothing leaves no event.

    Args:
        slug: whose.
        changes: of `CHANGEABLE`, the new values.
        unless: asked with the locked row; true = it is not what the caller saw.

    Raises:
        Problem: not-found, etag-mismatch or validation-failed; nothing was changed.
    """
    with transaction.atomic(using=plane()):
        tenant = Tenant.objects.select_for_update().filter(slug=slug).first()
        if tenant is None:
            raise Problem("not-found")
        if unless(tenant):
            raise Problem("etag-mismatch")
        changed = [f for f in CHANGEABLE if f in changes and getattr(tenant, f) != changes[f]]
        for name in changed:
            setattr(tenant, name, changes[name])
        check_tenant(tenant)
        if changed:
            tenant.save(update_fields=changed)
            record(
                event_type="tenant.changed",
                outcome="success",
                actor=actor,
                tenant_id=tenant.id,
                object_kind="tenant",
                object_id=str(tenant.id),
                body={"changed": changed},
            )
    return tenant
