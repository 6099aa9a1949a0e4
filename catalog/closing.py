"""Decides whether a tenant may be deleted: who owns bytes cannot vanish. Called by `api_tenancy`."""

from datetime import datetime

from django.db import connections, transaction

from catalog.placing import places
from catalog.quotas import holdings, quotas_lock
from catalog.rates import deletion_take
from kvconsole.infra.access import Principal, plane
from kvconsole.infra.rest import Problem, add_codes
from kvconsole.infra.sql import named
from kvcore.blocks import TIERS, VOLATILE
from kvcore.residency import Place
from tenants.placing import TenantPlace, has_namespaces
from tenants.services.closing import CLOSED, tenant_close

add_codes(
    {
        "tenant-holds-bytes": (409, "The tenant still holds blocks"),
        "tenant-bytes-unknown": (409, "Nobody can see now whether the tenant holds blocks"),
    }
)
PERSISTENT = [str(t) for t in TIERS if t not in VOLATILE]


def tenant_delete(*, tenant: TenantPlace, actor: Principal | None, now: datetime) -> None:
    """The tenant is closed; it held nothing.

    Raises:
        Problem: not-found, deletions-quota-exceeded, tenant-holds-bytes or tenant-bytes-unknown; nothing was changed.
    """
    with transaction.atomic(using=plane()):
        quotas_lock()
        if tenant.state == CLOSED:
            raise Problem("not-found")
        _require_empty(tenant)
        _require_seen(tenant)
        deletion_take(tenant.id, now=now)
        tenant_close(tenant=tenant.id, actor=actor, now=now)


def _require_empty(tenant: TenantPlace) -> None:
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


def _require_seen(tenant: TenantPlace) -> None:
    """What lies on the persistent tiers of a node that cannot be seen is unknown, not nothing."""
    with connections[plane()].cursor() as cursor:
        cursor.execute(named("catalog", "quotas.sql")["nodes_unseen"], (PERSISTENT,))
        unseen = dict(cursor.fetchall())
    if not unseen or not has_namespaces(tenant.id):
        return
    where = places(list(unseen))
    names = [name for node, name in unseen.items() if node in where and _may_hold(tenant, where[node])]
    if names:
        detail = (
            f"{', '.join(names[:5])}{' and others' if len(names) > 5 else ''} cannot be seen now and may hold its"
            " blocks on persistent tiers. Wait until they are back, or retire them for good (manage.py node_retire"
            " NAME, which the audit trail keeps); then delete the tenant again."
        )
        errors = [{"pointer": "/nodes", "code": "node-unseen", "detail": name} for name in names[:100]]
        raise Problem("tenant-bytes-unknown", detail, errors=errors)


def _may_hold(tenant: TenantPlace, place: Place) -> bool:
    """Whether the node may ever have been given the tenant's blocks, by isolation; residency may have changed since."""
    return place.dedicated_to in ("", str(tenant.id))
