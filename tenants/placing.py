"""Reads of what decides where a tenant's blocks may be: its residency, classes, isolation, and those of its namespaces.

Called by `catalog` (leases, dealing, placement, the check of what nodes tell), on the connection of the current plane.
"""

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

import msgspec
from django.db.models import Q

from tenants.constants import ERASURE_SCOPES
from tenants.models import Namespace, ShareGroup, ShareMember, Tenant


class TenantPlace(msgspec.Struct, frozen=True):
    """What rules need of a tenant. `separable`: its data classes are parts of its namespaces.

    `former`: classes that it had; blocks in namespaces that are not separable may still be of them.
    """

    id: UUID
    slug: str
    residency: str
    isolation: str
    classes: tuple[str, ...]
    separable: bool
    state: str
    former: tuple[str, ...] = ()


class NamespacePlace(msgspec.Struct, frozen=True):
    """What rules need of a namespace.

    `separable`: its data class is all that is in it, by the erasure scope under which it was made, whatever the
    tenant's is now. `members`: all that are or were in its share group. `payer`: whose bytes they are; of a share
    group its owner.
    """

    digest: bytes
    data_class: str
    tenant: TenantPlace
    separable: bool
    payer: UUID
    members: tuple[TenantPlace, ...] = ()


_TENANT = ("id", "slug", "residency", "isolation", "classes", "erasure_scope", "state", "former_classes")


def tenant_place(slug: str) -> TenantPlace | None:
    """The tenant of this slug, where the current plane shows it."""
    row = Tenant.objects.filter(slug=slug).values_list(*_TENANT).first()
    return _place(row) if row else None


def tenant_places(ids: Collection[UUID]) -> dict[UUID, TenantPlace]:
    """These tenants, where the current plane shows them."""
    rows = Tenant.objects.filter(id__in=ids).values_list(*_TENANT)
    return {row[0]: _place(row) for row in rows}


def tenants_placed(*, classes: Collection[str], also: Collection[UUID]) -> dict[UUID, TenantPlace]:
    """Tenants that have a residency, are isolated from others, or have one of these classes; and these others."""
    ruled = ~Q(residency="") | Q(isolation="node") | Q(classes__overlap=list(classes)) | Q(id__in=list(also))
    return {row[0]: _place(row) for row in Tenant.objects.filter(ruled).order_by("id").values_list(*_TENANT)}


def tenants_with_arena() -> dict[UUID, TenantPlace]:
    """The tenants that have arenas of their own in the tiers of nodes."""
    return {row[0]: _place(row) for row in Tenant.objects.filter(isolation="arena").values_list(*_TENANT)}


def namespace_places(digests: Collection[bytes]) -> dict[bytes, NamespacePlace]:
    """The registered ones among these namespaces."""
    if not digests:
        return {}
    found = list(
        Namespace.objects.filter(digest__in=list(digests)).values_list(
            "digest", "data_class", "share_group", "spec__erasure_scope", *(f"tenant__{name}" for name in _TENANT)
        )
    )
    groups = _groups({row[2] for row in found if row[2]})
    seen: dict[UUID, TenantPlace] = {}
    out = {}
    for digest, data_class, group, scope, *tenant in found:
        place = seen.setdefault(tenant[0], _place(tuple(tenant)))
        apart = scope != ERASURE_SCOPES[0] if scope else place.separable
        payer, members = place.id, tuple[TenantPlace, ...]()
        if group in groups:  # it is the platform's, but stays where its members must stay
            payer, residency, members = groups[group]
            place = msgspec.structs.replace(place, residency=residency)
        out[bytes(digest)] = NamespacePlace(bytes(digest), data_class, place, apart, payer, members)
    return out


def _groups(ids: Collection[UUID]) -> dict[UUID, tuple[UUID, str, tuple[TenantPlace, ...]]]:
    """Owner, residency and all members of share groups, also of those that are over: their bytes may still lie."""
    if not ids:
        return {}
    members: dict[UUID, list[TenantPlace]] = {}
    rows = ShareMember.objects.filter(group__in=ids).order_by("tenant_id")
    for group, *tenant in rows.values_list("group_id", *(f"tenant__{name}" for name in _TENANT)):
        members.setdefault(group, []).append(_place(tuple(tenant)))
    found = ShareGroup.objects.filter(id__in=ids).values_list("id", "tenant_id", "residency")
    return {id_: (owner, residency, tuple(members.get(id_, ()))) for id_, owner, residency in found}


def group_namespaces(owner: UUID) -> list[UUID]:
    """Ids of the namespaces of all share groups that the tenant owns or owned."""
    groups = ShareGroup.objects.filter(tenant_id=owner).values("id")
    return list(Namespace.objects.filter(share_group__in=groups).values_list("id", flat=True))


def groups_namespaces(owners: Collection[UUID] | None = None) -> dict[UUID, UUID]:
    """Namespace's id → owner of its share group, of these owners or of all, also of groups that are over."""
    groups = ShareGroup.objects.all() if owners is None else ShareGroup.objects.filter(tenant_id__in=list(owners))
    whose = dict(groups.values_list("id", "tenant_id"))
    rows = Namespace.objects.filter(share_group__in=list(whose)).values_list("id", "share_group")
    return {id_: whose[group] for id_, group in rows if group}


def groups_owned(owners: Collection[UUID]) -> dict[UUID, tuple[str, ...]]:
    """Owner → ids of its share groups, also of those that are over."""
    found: dict[UUID, tuple[str, ...]] = {}
    for owner, group in ShareGroup.objects.filter(tenant_id__in=list(owners)).values_list("tenant_id", "id"):
        found[owner] = (*found.get(owner, ()), str(group))
    return found


def owners_ruled(members: Collection[UUID]) -> set[UUID]:
    """Owners of the share groups that have a residency, or one of these members."""
    joined = ShareMember.objects.filter(tenant_id__in=list(members)).values("group")
    return set(ShareGroup.objects.filter(~Q(residency="") | Q(id__in=joined)).values_list("tenant_id", flat=True))


def has_namespaces(tenant: UUID) -> bool:
    """Whether anything of the tenant, or of a share group of its own, could ever be cached."""
    return Namespace.objects.filter(tenant_id=tenant).exists() or bool(group_namespaces(tenant))


def shared_in(*, tenant: UUID, since: datetime, until: datetime) -> bool:
    """Whether a share group that the tenant is or was in was in force at any moment of the time."""
    members = ShareMember.objects.filter(tenant_id=tenant, group__state__in=("approved", "revoked", "expired"))
    lasting = Q(group__ended_at__isnull=True) | Q(group__ended_at__gt=since)
    return members.filter(lasting, group__decided_at__lt=until).exists()


def _place(row: tuple[object, ...]) -> TenantPlace:
    id_, slug, residency, isolation, classes, scope, state, former = row
    separable = scope != ERASURE_SCOPES[0]
    fields = {"id": id_, "slug": slug, "residency": residency, "isolation": isolation, "classes": classes}
    return msgspec.convert({**fields, "separable": separable, "state": state, "former": former}, TenantPlace)
