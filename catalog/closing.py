"""Decides whether a tenant may be deleted: who owns bytes cannot vanish. Called by `api_tenancy`."""

from datetime import datetime

from django.db import transaction

from catalog.quotas import holdings, quotas_lock
from catalog.rates import deletion_take
from kvconsole.infra.access import Principal, plane
from kvconsole.infra.rest import Problem, add_codes
from tenants.placing import TenantPlace
from tenants.services.closing import CLOSED, tenant_close

add_codes({"tenant-holds-bytes": (409, "The tenant still holds blocks")})


def tenant_delete(*, tenant: TenantPlace, actor: Principal | None, now: datetime) -> None:
    """The tenant is closed; it held nothing.

    Raises:
        Problem: not-found, deletions-quota-exceeded or tenant-holds-bytes; nothing was changed.
    """
    with transaction.atomic(using=plane()):
        quotas_lock()
        if tenant.state == CLOSED:
            raise Problem("not-found")
        held = holdings(tenant.id)
        if held:
            errors = [
                {"pointer": f"/tiers/{tier}", "code": "holds-bytes", "detail": f"{h.bytes} bytes in {h.blocks} blocks"}
                for tier, h in sorted(held.items())
            ]
            detail = (
                f"{sum(h.bytes for h in held.values())} bytes in {sum(h.blocks for h in held.values())} blocks are"
                " held. Delete them first (POST /api/v1/deletion-plans), or let nodes evict them: PUT its quotas with"
                ' limit_bytes 0 and "evict": true; then delete the tenant again.'
            )
            raise Problem("tenant-holds-bytes", detail, errors=errors)
        deletion_take(tenant.id, now=now)
        tenant_close(tenant=tenant.id, actor=actor, now=now)
