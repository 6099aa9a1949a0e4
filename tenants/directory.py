"""Reads of tenants and their namespaces for pages: plain values, a page at a time.

What is listed is what the current plane shows; a tenant's own people get no row of another tenant.
"""

from datetime import datetime
from uuid import UUID

import msgspec
from django.db.models import Q, QuerySet

from tenants.constants import PLATFORM_TENANT
from tenants.models import Namespace, Tenant

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


class NamespacePage(msgspec.Struct, frozen=True):
    """Some namespaces of a tenant, the newest first; `after` asks for older ones, "" = there are none."""

    items: list[NamespaceView]
    after: str


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


def namespaces_page(*, tenant_id: UUID, after: str = "", limit: int = PAGE) -> NamespacePage:
    """A page of the tenant's own namespaces, the newest first.

    Args:
        after: id of the last one of the page before; anything else than an id is the first page.
    """
    found = Namespace.objects.filter(tenant_id=tenant_id).select_related("model", "adapter")
    if at := _uuid(after):
        found = found.filter(id__lt=at)
    rows = list(found.order_by("-id")[: limit + 1])
    more, rows = len(rows) > limit, rows[:limit]
    return NamespacePage([_namespace(n) for n in rows], str(rows[-1].id) if more else "")


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
