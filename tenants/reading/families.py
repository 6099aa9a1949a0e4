"""Reads models with their families, epochs, adapters, and who used which of them when."""

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

import msgspec
from django.db.models import Max, Min, QuerySet

from tenants.models import Adapter, Epoch, EpochUse, Model, Namespace
from tenants.selectors import tenant_slugs


class EpochView(msgspec.Struct, frozen=True):
    """One set of weights. `same_weights`: earlier epochs with the same digest; then this one is a roll-back."""

    epoch: int
    weights_digest: str
    note: str
    state: str
    created_at: datetime
    same_weights: list[int]


class AdapterView(msgspec.Struct, frozen=True):
    """One adapter, by its content; `epoch` counts the contents that had its name."""

    name: str
    digest: str
    epoch: int
    own: bool
    created_at: datetime


class OwnAdapterView(msgspec.Struct, frozen=True):
    """An adapter of a tenant, with its model."""

    model: str
    name: str
    digest: str
    epoch: int
    created_at: datetime


class UseView(msgspec.Struct, frozen=True):
    """A tenant's use of an epoch and adapter, known to ten minutes."""

    tenant: str
    epoch: int
    adapter: str
    first_at: datetime
    last_at: datetime
    days: int


class ModelView(msgspec.Struct, frozen=True):
    """A model with its place in its family."""

    id: UUID
    name: str
    base: str
    family: str
    kv_dtype: str
    quantisation: str
    block_tokens: int
    bytes_per_token: int
    layout: dict[str, str]
    epochs: int
    created_at: datetime


class Lineage(msgspec.Struct, frozen=True):
    """Where a model comes from, what was made of it, and who used what."""

    model: ModelView
    bases: list[ModelView]
    variants: list[ModelView]
    epochs: list[EpochView]
    adapters: list[AdapterView]
    uses: list[UseView]


def models(*, limit: int = 500, after: str = "", before: str = "", search: str = "") -> list[ModelView]:
    """Models by name, behind `after` or the last ones before `before`, whose name contains `search`."""
    found = Model.objects.filter(name__gt=after, name__icontains=search)
    if before:
        return _model_views(list(_light(found.filter(name__lt=before).order_by("-name", "-id"))[:limit])[::-1])
    return _model_views(list(_light(found.order_by("name", "id"))[:limit]))


def adapter_known(model: Model, *, digest: str, tenant_id: UUID) -> bool:
    """Whether the tenant has registered this content for the model."""
    return Adapter.objects.filter(tenant_id=tenant_id, model=model, digest=digest).exists()


def adapters_of(tenant_id: UUID, *, limit: int = 100) -> list[OwnAdapterView]:
    """The tenant's own adapters, newest first."""
    rows = Adapter.objects.filter(tenant_id=tenant_id).order_by("-created_at", "-id")
    return [
        OwnAdapterView(*row) for row in rows.values_list("model__name", "name", "digest", "epoch", "created_at")[:limit]
    ]


def epochs_of(model: Model) -> list[EpochView]:
    """All epochs of a model, oldest first."""
    rows = list(Epoch.objects.filter(tenant_id=model.tenant_id, model=model).order_by("epoch"))
    seen: dict[str, list[int]] = {}
    out = []
    for e in rows:
        before = seen.setdefault(e.weights_digest, [])
        out.append(EpochView(e.epoch, e.weights_digest, e.note, e.state, e.created_at, list(before)))
        before.append(e.epoch)
    return out


def lineage(model: Model, *, most: int = 200) -> Lineage:
    """The model's bases up to the first, its variants, epochs, adapters and uses, each at most `most` newest."""
    family = list(_light(Model.objects.filter(family=model.family).order_by("created_at", "id"))[:most])
    views = {v.name: v for v in _model_views([m for m in family if m.id != model.id])}
    bases, at = [], model.base
    while at in views and views[at] not in bases:
        bases.append(views[at])
        at = views[at].base
    adapters = Adapter.objects.filter(model=model).order_by("-created_at", "-id")[:most]
    return Lineage(
        model=_model_views([model])[0],
        bases=bases,
        variants=[v for v in views.values() if v not in bases],
        epochs=epochs_of(model)[-most:],
        adapters=[
            AdapterView(a.name, a.digest, a.epoch, a.tenant_id != model.tenant_id, a.created_at) for a in adapters
        ],
        uses=uses_of(model)[:most],
    )


def uses_of(model: Model) -> list[UseView]:
    """Who used which epoch and adapter from when to when, last use first."""
    rows = (
        EpochUse.objects.filter(model_id=model.id)
        .values("tenant_id", "epoch", "adapter_digest")
        .annotate(first=Min("first_at"), last=Max("last_at"))
        .order_by("-last", "tenant_id", "epoch", "adapter_digest")
    )
    found = list(rows[:1000])
    slugs = tenant_slugs({r["tenant_id"] for r in found})
    return [
        UseView(
            slugs.get(r["tenant_id"], ""), r["epoch"], r["adapter_digest"], r["first"], r["last"],
            (r["last"].date() - r["first"].date()).days + 1,
        )
        for r in found
    ]  # fmt: skip


def _light(rows: QuerySet[Model]) -> QuerySet[Model]:
    return rows.defer("config", "per_group")


def _model_views(rows: list[Model]) -> list[ModelView]:
    ids = [m.id for m in rows]
    newest = dict(Epoch.objects.filter(model_id__in=ids).values_list("model_id").annotate(last=Max("epoch")))
    return [
        ModelView(
            m.id, m.name, m.base, m.family, m.layout.get("kv_dtype", m.kv_dtype), m.layout.get("quantisation", ""),
            m.block_tokens, m.bytes_per_token, m.layout, newest.get(m.id, 0), m.created_at,
        )
        for m in rows
    ]  # fmt: skip


def namespace_epochs(ids: Collection[UUID]) -> dict[UUID, tuple[UUID, UUID, int]]:
    """Namespace → (tenant of its model, its model, epoch)."""
    rows = Namespace.objects.filter(id__in=list(ids)).values_list("id", "model__tenant_id", "model_id", "model_epoch")
    return {id_: (tenant, model, epoch) for id_, tenant, model, epoch in rows}
