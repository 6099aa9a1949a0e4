"""Reads what lies where it must not lie (any more), and what a plan to take it away from there is made of.

What decides it is what nodes are told too (`catalog.placing`): residency of tenants, rules of data classes, isolation.
Called by the rule of residency, and when a plan of its kind is frozen and when it starts.
"""

import hashlib
from typing import NamedTuple
from uuid import UUID

from catalog import operation_owners as owners
from catalog.models import ClassRule
from catalog.operation_plans import cell_of, holds_on, upto
from catalog.placing import bars, class_rules, places, tenants_of
from kvconsole.infra.access import FLEET_PLANE
from kvconsole.infra.sql import named
from kvconsole.infra.statements import fetch
from kvcore.plans import Options, PlanInput, Requester, Selector, Target
from kvcore.residency import BUILT_IN
from tenants.erasing import namespaces_selected
from tenants.placing import TenantPlace, groups_namespaces, namespace_places, owners_ruled, tenants_placed

KIND = "residency"


class Lies(NamedTuple):
    """What of a namespace lies in one place."""

    tenant: UUID
    namespace: UUID
    digest: bytes
    place: owners.Place
    blocks: int


def tenants_ruled() -> dict[UUID, TenantPlace]:
    """Tenants of which something may not be everywhere, also of their share groups, for the sake of its members."""
    ruled = set(ClassRule.objects.values_list("tenant_id", flat=True).distinct())
    found = tenants_placed(classes=list(BUILT_IN), also=ruled)
    owners = owners_ruled(found) - found.keys()
    return found | (tenants_placed(classes=list(BUILT_IN), also=owners) if owners else {})


def decided(tenants: dict[UUID, TenantPlace]) -> str:
    """A hash of all that decides where blocks may be: another one = something was changed."""
    told = sorted(f"{name}{place}" for name, place in (*tenants.items(), *places().items(), *class_rules().items()))
    return hashlib.sha256("\n".join(told).encode()).hexdigest()


def misplaced(tenants: list[UUID]) -> dict[UUID, dict[bytes, list[Lies]]]:
    """Tenant → namespace's digest → what of it lies where it may not be; nothing that a legal hold covers."""
    lies = _lying(tenants)
    spaces = namespace_places({one.digest for one in lies})
    rules, where = class_rules(tenants_of(spaces.values())), places()
    found: dict[UUID, dict[bytes, list[Lies]]] = {}
    barred: dict[tuple[bytes, UUID], dict[str, str]] = {}
    for one in lies:
        at = one.digest, one.place.node
        if one.digest not in spaces or one.place.node not in where:
            continue
        if at not in barred:
            barred[at] = bars(spaces[one.digest], where[one.place.node], rules)
        if one.place.tier in barred[at]:
            found.setdefault(one.tenant, {}).setdefault(one.digest, []).append(one)
    held = {ns for _, some in holds_on({one.namespace for one in lies}) for ns in some} if found else set()
    return {
        tenant: kept
        for tenant, by_digest in found.items()
        if (kept := {digest: some for digest, some in by_digest.items() if some[0].namespace not in held})
    }


def _lying(tenants: list[UUID]) -> list[Lies]:
    at = {place.owner: place for place in owners.places()}
    queries, shared = named("catalog", "rules.sql"), groups_namespaces(tenants) if tenants else {}
    rows = fetch(queries["held_where"], (tenants,), using=FLEET_PLANE) if tenants else []
    groups = fetch(queries["shared_where"], (list(shared),), using=FLEET_PLANE) if shared else []
    found = []
    for tenant, namespace, digest, node, name, rank, tier, blocks in [*rows, *((shared[g[0]], *g) for g in groups)]:
        place = at.get(owners.place_number(str(node), name, rank, tier))
        if place is not None:
            found.append(Lies(tenant, namespace, bytes(digest), place, blocks))
    return found


def residency_input(*, selector: Selector, options: Options, requester: Requester) -> PlanInput:
    """What of the tenant lies in these places and may not be in any of them."""
    wanted = set(options.places)
    rows = namespaces_selected(tenant=selector.tenant)
    found = misplaced([rows[0].owner]).get(rows[0].owner, {}) if rows else {}
    believed = owners.held([(row.digest, upto(row)) for row in rows if row.digest in found])
    targets = []
    for row in rows:
        here = [one for one in found.get(row.digest, ()) if one.place.owner in wanted]
        if here:
            there = believed.get(row.digest, {})
            cells = (cell_of(one.place, there.get((one.place.source_id, one.place.tier))) for one in here)
            targets.append(
                Target(
                    ns=row.digest.hex(), gen_upto=str(upto(row)), tenant=row.tenant, namespace=str(row.id),
                    label=row.label, data_class=row.data_class, shared_with=row.members,
                    share_group=str(row.share_group or ""), cells=tuple(cells),
                )
            )  # fmt: skip
    return PlanInput(
        kind=KIND, selector=selector, targets=tuple(targets), requester=requester, options=options,
        totals=owners.totals(),
    )  # fmt: skip
