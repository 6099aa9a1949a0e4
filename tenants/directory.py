"""Reads of tenants and their namespaces for pages: plain values, a page at a time.

What is listed is what the current plane shows; a tenant's own people get no row of another tenant.
"""

import re
from datetime import datetime
from uuid import UUID

import msgspec
from django.db.models import Q, QuerySet

from tenants.constants import PLATFORM_TENANT
from tenants.listing import Keys, Listing, listing
from tenants.models import Namespace, ShareMember, Tenant

NEWEST: Keys = (("-id", UUID),)
_DIGEST = re.compile(r"[0-9a-f]{64}")

PAGE = 50


class TenantView(msgspec.Struct, frozen=True):
    """A tenant. `retention` is data class → seconds."""

    id: UUID
    slug: str
    name: str
    residency: str
    isolation: str
    classes: list[str]
    erasure_scope: str
    retention: dict[str, int]
    state: str
    created_at: datetime


class TenantPage(msgspec.Struct, frozen=True):
    """Some tenants by short name; `after` and `before` ask for the neighbouring pages, "" = there is none."""

    items: list[TenantView]
    after: str
    before: str


class NamespaceView(msgspec.Struct, frozen=True):
    """A namespace: what its requests say, and how it is fenced."""

    id: UUID
    digest: str
    model: str
    model_epoch: int
    adapter: str
    data_class: str
    label: str
    subject: str
    session: str
    generation: int
    min_gen: int
    state: str
    share_group: UUID | None
    created_at: datetime


def tenants_page(*, search: str = "", after: str = "", before: str = "", limit: int = PAGE) -> TenantPage:
    """A page of tenants whose short or long name contains `search`; the platform is none of them."""
    found: QuerySet[Tenant] = Tenant.objects.exclude(id=PLATFORM_TENANT)
    if search:
        found = found.filter(Q(slug__icontains=search) | Q(name__icontains=search))
    if before:
        rows = list(found.filter(slug__lt=before).order_by("-slug")[: limit + 1])
        more, rows = len(rows) > limit, rows[:limit][::-1]
        return TenantPage([tenant_seen(t) for t in rows], rows[-1].slug if rows else "", rows[0].slug if more else "")
    if after:
        found = found.filter(slug__gt=after)
    rows = list(found.order_by("slug")[: limit + 1])
    more, rows = len(rows) > limit, rows[:limit]
    return TenantPage(
        [tenant_seen(t) for t in rows], rows[-1].slug if more else "", rows[0].slug if rows and after else ""
    )


def tenant_view(slug: str) -> TenantView | None:
    """One tenant; the platform is none."""
    found = Tenant.objects.filter(slug=slug).exclude(id=PLATFORM_TENANT).first()
    return tenant_seen(found) if found else None


def namespaces_page(
    *, tenant_id: UUID, now: datetime, shared: bool = False, after: str = "", before: str = "", limit: int = PAGE
) -> Listing:
    """A page of namespaces, the newest first.

    Args:
        now: grants that are over by then show nothing.
        shared: those of share groups that the tenant may use now, instead of its own.
        after, before: marks of the page, as of `tenants.listing.listing`.
        limit: namespaces of a page.
    """
    rows = _shared(tenant_id, now) if shared else Namespace.objects.filter(tenant_id=tenant_id)
    rows = rows.select_related("model", "adapter")
    found = listing(rows, keys=NEWEST, after=after, before=before, limit=limit)
    return Listing([_namespace(n) for n in found.items], found.after, found.before)


def namespaces_named(*, tenant_id: UUID, text: str, now: datetime, limit: int = 20) -> list[NamespaceView]:
    """The namespaces that somebody means: the one of this id or digest, else those of the tenant with this label.

    An id or digest may be of any namespace that the current plane shows; labels are those of the tenant's own
    namespaces and of share groups that it may use now, newest first.
    """
    rows = Namespace.objects.select_related("model", "adapter")
    if _DIGEST.fullmatch(text):
        found = list(rows.filter(digest=bytes.fromhex(text))[:1])
    elif at := _uuid(text):
        found = list(rows.filter(id=at)[:1])
    else:
        found = list(rows.filter(tenant_id=tenant_id, label=text).order_by("-id")[:limit])
        shared = _shared(tenant_id, now).select_related("model", "adapter").filter(label=text)
        found += list(shared.order_by("-id")[: limit - len(found)])
    return [_namespace(n) for n in found]


def shared_digests(*, tenant_id: UUID, now: datetime) -> list[bytes]:
    """Digests of the namespaces of groups that the tenant may use now."""
    return [bytes(digest) for digest in _shared(tenant_id, now).values_list("digest", flat=True)]


def _shared(tenant_id: UUID, now: datetime) -> QuerySet[Namespace]:
    """Namespaces of the groups that the tenant may use now."""
    held = ShareMember.objects.filter(tenant_id=tenant_id, state="approved", expires_at__gt=now)
    return Namespace.objects.filter(tenant_id=PLATFORM_TENANT, share_group__in=held.values("group_id"))


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def tenant_seen(row: Tenant) -> TenantView:
    """What a page shows of the row."""
    return TenantView(**{name: getattr(row, name) for name in TenantView.__struct_fields__})


def _namespace(row: Namespace) -> NamespaceView:
    values = {n: getattr(row, n) for n in NamespaceView.__struct_fields__ if n not in ("digest", "model", "adapter")}
    adapter = row.adapter.name if row.adapter else ""
    return NamespaceView(digest=bytes(row.digest).hex(), model=row.model.name, adapter=adapter, **values)
