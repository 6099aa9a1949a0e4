"""Decides for the console which tiers of which nodes may hold a namespace's blocks, by the rules of `kvcore.residency`.

Named in settings (`NAMESPACE_POLICY`) for the leases of nodes; called by the replay for placement and by ingest for
the check of what nodes tell.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from functools import reduce
from typing import Any
from uuid import UUID

import msgspec

from catalog.models import ClassRule, Node, NodeTier, Quota
from catalog.pins import pins_told
from kvcore.residency import Place, Rule, barred, rule_for, shut
from tenants.placing import NamespacePlace, TenantPlace, namespace_places

Rules = Mapping[UUID, Mapping[str, Rule]]


class NodePolicy(msgspec.Struct, frozen=True):
    """What one node is told of a namespace: who pays for it, tiers that may not hold it and why.

    `metered`: the tenant's bytes are limited, so that without an allowance nothing of it may be taken. `shut`: why
    nothing of it may be on the node at all. `pins`: what is kept where it lies, and until when.
    """

    tenant: str
    barred: dict[str, str]
    metered: bool
    shut: str
    pins: list[dict[str, Any]] = []


def class_rules(tenants: Collection[UUID] | None = None) -> dict[UUID, dict[str, Rule]]:
    """The rules of tenants, by class; None = of all."""
    found = ClassRule.objects.all() if tenants is None else ClassRule.objects.filter(tenant_id__in=tenants)
    out: dict[UUID, dict[str, Rule]] = {}
    for row in found:
        out.setdefault(row.tenant_id, {})[row.data_class] = Rule(
            tiers=None if row.tiers is None else frozenset(row.tiers),
            regions=None if row.regions is None else frozenset(row.regions),
            min_protection=row.min_protection,
        )
    return out


def rule_of(namespace: NamespacePlace, rules: Rules) -> Rule:
    """Where the namespace's blocks may be: of a share group, where each of its members' may be."""
    if not namespace.members:
        return _rule(namespace.tenant, rules, namespace.data_class, namespace.separable)
    found = [_rule(member, rules, "", member.separable) for member in namespace.members]
    return reduce(Rule.and_, found, _rule(namespace.tenant, rules, "", True))


def _rule(tenant: TenantPlace, rules: Rules, data_class: str, separable: bool) -> Rule:
    return rule_for(
        rules.get(tenant.id, {}), data_class=data_class, classes={*tenant.classes, *tenant.former},
        separable=separable, residency=tenant.residency,
    )  # fmt: skip


def tenants_of(namespaces: Iterable[NamespacePlace]) -> set[UUID]:
    """All tenants whose rules say where these namespaces' blocks may be."""
    return {tenant.id for n in namespaces for tenant in (n.tenant, *n.members)}


def bars(namespace: NamespacePlace, place: Place, rules: Rules) -> dict[str, str]:
    """Tier → reason, of the tiers of the place that may not hold the namespace's blocks."""
    tenant = namespace.tenant
    return barred(rule_of(namespace, rules), place, tenant=str(tenant.id), isolation=tenant.isolation)


def places(nodes: Collection[UUID] | None = None) -> dict[UUID, Place]:
    """Nodes as rules see them; None = all."""
    tiers, found = NodeTier.objects.filter(encrypted=True), Node.objects.all()
    if nodes is not None:
        tiers, found = tiers.filter(node_id__in=nodes), found.filter(id__in=nodes)
    encrypted: dict[UUID, set[str]] = {}
    for node, tier in tiers.values_list("node_id", "tier"):
        encrypted.setdefault(node, set()).add(tier)
    return {
        node: Place(region=region, encrypted=frozenset(encrypted.get(node, ())), dedicated_to=str(owner or ""))
        for node, region, owner in found.values_list("id", "region", "dedicated_to")
    }


def node_policies(*, node: str, region: str, digests: Collection[bytes]) -> dict[bytes, NodePolicy]:
    """What a node is told of these namespaces.

    Args:
        node: its id; one that the fleet does not know is in `region` and nobody's own.
        region: as its token says.
        digests: of registered namespaces.
    """
    found = namespace_places(digests)
    payers = {n.payer for n in found.values()}
    rules, known = class_rules(tenants_of(found.values())), places([UUID(node)]) if _is_uuid(node) else {}
    place = known.get(UUID(node)) if known else None
    pins = pins_told(digests, datetime.now(UTC))
    metered = set(Quota.objects.filter(tenant_id__in=payers).values_list("tenant_id", flat=True))
    out = {}
    for digest, namespace in found.items():
        bars_ = bars(namespace, place or Place(region=region), rules)
        limited = namespace.payer in metered or namespace.tenant.isolation == "arena"
        out[digest] = NodePolicy(namespace.payer.hex, bars_, limited, shut(bars_), pins.get(digest, []))
    return out


def open_nodes(digest: bytes, nodes: Iterable[UUID]) -> set[UUID]:
    """Those of the nodes that may hold blocks of the namespace; all, if nobody registered it."""
    wanted = list(nodes)
    namespace = namespace_places([digest]).get(digest)
    if namespace is None:
        return set(wanted)
    rules = class_rules(tenants_of([namespace]))
    return {node for node, place in places(wanted).items() if not shut(bars(namespace, place, rules))}


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
