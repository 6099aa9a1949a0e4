"""Reads of what decides where a tenant's blocks may be: its residency, classes, isolation, and those of its namespaces.

Called by `catalog` (leases, dealing, placement, the check of what nodes tell), on the connection of the current plane.
"""

from collections.abc import Collection
from uuid import UUID

import msgspec

from tenants.constants import ERASURE_SCOPES
from tenants.models import Namespace, ShareGroup, Tenant


class TenantPlace(msgspec.Struct, frozen=True):
    """What rules need of a tenant. `separable`: its data classes are parts of its namespaces."""

    id: UUID
    slug: str
    residency: str
    isolation: str
    classes: tuple[str, ...]
    separable: bool
    state: str


class NamespacePlace(msgspec.Struct, frozen=True):
    """What rules need of a namespace."""

    digest: bytes
    data_class: str
    tenant: TenantPlace


_TENANT = ("id", "slug", "residency", "isolation", "classes", "erasure_scope", "state")


def tenant_place(slug: str) -> TenantPlace | None:
    """The tenant of this slug, where the current plane shows it."""
    row = Tenant.objects.filter(slug=slug).values_list(*_TENANT).first()
    return _place(row) if row else None


def tenant_places(ids: Collection[UUID]) -> dict[UUID, TenantPlace]:
    """These tenants, where the current plane shows them."""
    rows = Tenant.objects.filter(id__in=ids).values_list(*_TENANT)
    return {row[0]: _place(row) for row in rows}


def tenants_with_arena() -> dict[UUID, TenantPlace]:
    """The tenants that have arenas of their own in the tiers of nodes."""
    return {row[0]: _place(row) for row in Tenant.objects.filter(isolation="arena").values_list(*_TENANT)}


def namespace_places(digests: Collection[bytes]) -> dict[bytes, NamespacePlace]:
    """The registered ones among these namespaces."""
    if not digests:
        return {}
    found = list(
        Namespace.objects.filter(digest__in=list(digests)).values_list(
            "digest", "data_class", "share_group", *(f"tenant__{name}" for name in _TENANT)
        )
    )
    groups = {row[2] for row in found if row[2]}
    regions = dict(ShareGroup.objects.filter(id__in=groups).values_list("id", "residency")) if groups else {}
    seen: dict[UUID, TenantPlace] = {}
    out = {}
    for digest, data_class, group, *tenant in found:
        place = seen.setdefault(tenant[0], _place(tuple(tenant)))
        if group:  # it is the platform's, but stays where its members must stay
            place = msgspec.structs.replace(place, residency=regions.get(group, place.residency))
        out[bytes(digest)] = NamespacePlace(bytes(digest), data_class, place)
    return out


def _place(row: tuple[object, ...]) -> TenantPlace:
    id_, slug, residency, isolation, classes, scope, state = row
    separable = scope != ERASURE_SCOPES[0]
    fields = {"id": id_, "slug": slug, "residency": residency, "isolation": isolation, "classes": classes}
    return msgspec.convert({**fields, "separable": separable, "state": state}, TenantPlace)
