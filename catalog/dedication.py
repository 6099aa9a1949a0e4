"""Decides which nodes serve one tenant alone: the nodes of tenants whose isolation is `node`.

Such a tenant's blocks are on these nodes only, and nobody else's are. Called by `api_tenancy` and pages.
"""

from collections.abc import Sequence
from uuid import UUID

from django.db import connections, transaction

from audit.services import record
from audit.standing import need_log
from catalog.models import Node
from catalog.quotas import QUOTAS
from kvconsole.infra import nudge
from kvconsole.infra.access import Principal, plane
from kvconsole.infra.rest import Problem, add_codes
from kvconsole.infra.sql import named
from tenants.placing import TenantPlace

add_codes(
    {
        "tenant-not-node-isolated": (409, "Only a tenant whose isolation is node has nodes of its own"),
        "node-dedicated": (409, "The node is another tenant's own"),
        "node-holds-others": (409, "The node holds blocks of other tenants"),
    }
)


def nodes_dedicated(*, tenant: UUID) -> list[str]:
    """Names of the tenant's own nodes; on the fleet's plane."""
    return list(Node.objects.filter(dedicated_to=tenant).order_by("name").values_list("name", flat=True))


def nodes_dedicate(
    *, tenant: TenantPlace, names: Sequence[str], evict: bool = False, actor: Principal | None
) -> list[str]:
    """The tenant's own nodes are these; nodes that are no longer among them are everybody's.

    Args:
        tenant: of isolation `node`, or `names` is empty.
        names: of nodes.
        evict: blocks of others on them are meant to leave.
        actor: who does it.

    Raises:
        Problem: validation-failed, tenant-not-node-isolated, node-dedicated, node-holds-others or, to evict,
            audit-unavailable; nothing was changed.
    """
    if names and tenant.isolation != "node":
        raise Problem("tenant-not-node-isolated", f"Its isolation is {tenant.isolation}.")
    with transaction.atomic(using=plane()):
        if evict:
            need_log()
        found = {n.name: n for n in Node.objects.select_for_update().filter(name__in=names)}
        for index, name in enumerate(names):
            _check(tenant, f"/nodes/{index}", name, found.get(name), evict)
        for node in Node.objects.filter(dedicated_to=tenant.id).exclude(name__in=names):
            _give(node, None, False, tenant, actor)
        for node in found.values():
            if node.dedicated_to != tenant.id:
                _give(node, tenant.id, evict, tenant, actor)
        nudge.on_commit(QUOTAS, using=plane())
        nudge.on_commit(nudge.NODES, using=plane())
    return sorted(found)


def _check(tenant: TenantPlace, pointer: str, name: str, node: Node | None, evict: bool) -> None:
    if node is None:
        errors = [{"pointer": pointer, "code": "unknown-node", "detail": "There is no such node."}]
        raise Problem("validation-failed", errors=errors)
    if node.dedicated_to not in (None, tenant.id):
        raise Problem("node-dedicated", name)
    foreign = 0 if evict else _foreign(node.id, tenant.id)
    if foreign:
        raise Problem("node-holds-others", f'{name} holds {foreign} bytes of others. Say "evict": true to drop them.')


def _foreign(node: UUID, tenant: UUID) -> int:
    with connections[plane()].cursor() as cursor:
        cursor.execute(named("catalog", "quotas.sql")["node_foreign"], (node, tenant))
        return int(cursor.fetchone()[0] or 0)


def _give(node: Node, to: UUID | None, evict: bool, tenant: TenantPlace, actor: Principal | None) -> None:
    node.dedicated_to = to
    node.save(update_fields=["dedicated_to"])
    record(
        event_type="node.dedicated",
        outcome="success",
        actor=actor,
        tenant_id=tenant.id,
        object_kind="node",
        object_id=str(node.id),
        body={"name": node.name, "tenant": tenant.slug if to else "", "evict": evict},
    )
