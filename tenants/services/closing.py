"""Decides how a tenant ends: closed, never removed, so that its evidence stays its own."""

from datetime import datetime
from uuid import UUID

from django.db import transaction

from audit.services import record
from audit.standing import need_log
from kvconsole.infra.access import Principal, plane
from kvconsole.infra.rest import Problem
from tenants.models import Namespace, Tenant
from tenants.services.namespace import generation_bump
from tenants.services.share_group import memberships_end, sharing_lock

CLOSED = "closed"


def tenant_close(*, tenant: UUID, actor: Principal | None, now: datetime) -> None:
    """The tenant is closed, its namespaces are fenced and closed: no key is leased and no request resolved for it.

    It shares with nobody any more; its share groups are revoked.

    Whoever calls has made sure that it holds nothing.

    Raises:
        Problem: not-found: there is no such tenant, or it is closed already; audit-unavailable.
    """
    with transaction.atomic(using=plane()):
        need_log()
        sharing_lock(tenant)
        row = Tenant.objects.select_for_update().filter(id=tenant).exclude(state=CLOSED).first()
        if row is None:
            raise Problem("not-found")
        groups = memberships_end(tenant=row, reason="tenant-closed", actor=actor, now=now)
        namespaces = list(Namespace.objects.filter(tenant=row, state="active"))
        for namespace in namespaces:
            generation_bump(namespace=namespace, reason="tenant-closed", actor=actor, now=now)
        Namespace.objects.filter(id__in=[n.id for n in namespaces]).update(state=CLOSED)
        row.state = CLOSED
        row.save(update_fields=["state"])
        record(
            event_type="tenant.closed",
            outcome="success",
            actor=actor,
            tenant_id=row.id,
            object_kind="tenant",
            object_id=str(row.id),
            body={"slug": row.slug, "namespaces": len(namespaces), "share_groups": groups},
        )
