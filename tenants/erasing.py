"""Reads for deletions: which namespaces a selector means, whether they can be told apart, and who still has their keys.

Called by `catalog` (plans and operations). Namespaces are read on the connection of the current plane, so a tenant's
people reach their own and no others; leases and acknowledgements are the fleet's.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from django.db import connections
from django.db.models import Count, Max, Q, QuerySet

from kvconsole.infra.access import FLEET_PLANE
from kvconsole.infra.rest import Problem, add_codes
from kvconsole.infra.sql import PLATFORM, named
from tenants.constants import ERASURE_SCOPES, epoch_named
from tenants.models import Epoch, KeyLease, Model, Namespace, ShareGroup, ShareMember, Tenant

add_codes({"not-separable": (422, "This cannot be told apart from the rest")})
SEPARATES = {"class": "data_class", "label": "label", "subject": "subject", "session": "session"}
"""Part of a selector → the column of a namespace that says it."""


class ErasableTenant(msgspec.Struct, frozen=True):
    """What a deletion needs of a tenant."""

    id: UUID
    slug: str
    erasure_scope: str
    state: str


class Erasable(msgspec.Struct, frozen=True):
    """A namespace that a selector means. `members` are the other tenants of its share group, by slug.

    `tenant` and `owner` are whose it is: a share group's is its owner's, in a row of the platform's (`tenant_id`).
    """

    id: UUID
    tenant_id: UUID
    tenant: str
    digest: bytes
    generation: int
    min_gen: int
    label: str
    data_class: str
    share_group: UUID | None
    scope: str
    """The erasure scope under which it was made; "" = it is a share group's."""
    members: tuple[str, ...] = ()
    group_owner: UUID | None = None

    @property
    def owner(self) -> UUID:
        """The tenant whose it is."""
        return self.group_owner or self.tenant_id


def erasable_tenant(slug: str) -> ErasableTenant | None:
    """The tenant of this slug, where the current plane shows it."""
    row = Tenant.objects.filter(slug=slug).values_list("id", "slug", "erasure_scope", "state").first()
    return ErasableTenant(*row) if row else None


def namespaces_selected(
    *,
    tenant: str = "",
    namespace: str = "",
    epoch: str = "",
    subject: str = "",
    session: str = "",
    label: str = "",
    data_class: str = "",
    shared: bool = True,
) -> list[Erasable]:
    """The namespaces of which all of this is true, with those of share groups that the tenant owns.

    Args:
        tenant: its slug.
        namespace: id or digest (hex).
        epoch: `model/epoch`.
        subject: its keyed digest, in hex.
        session, label, data_class: as requests name them.
        shared: also those of the tenant's share groups.

    Raises:
        Problem: not-found (no such tenant, model or namespace), or not-separable: part of them is kept together with
            what is not meant; the detail says what would go instead.
    """
    rows = Namespace.objects.all()
    if tenant:
        rows = _of_tenant(rows, tenant, shared)
    if namespace:
        rows = rows.filter(_named(namespace))
        if not rows.exists():
            raise selected_missing("namespace")
    if epoch:
        rows = rows.filter(_of_epoch(epoch))
    parts = {"class": data_class, "label": label, "subject": subject, "session": session}
    for part in (p for p, value in parts.items() if value):
        _require_separable(rows, part, tenant)
        rows = rows.filter(**{SEPARATES[part]: parts[part]})
    return _read(rows.order_by("digest"))


def selected_missing(part: str) -> Problem:
    """The refusal of a selector of which this part names nothing, or what is not the caller's: both look the same."""
    detail = f"The selector names no {part} that you may see."
    error = {"pointer": f"/selector/{part}", "code": "not-found", "detail": "There is none of this name."}
    return Problem("not-found", detail, errors=[error])


def _of_tenant(rows: QuerySet[Namespace], slug: str, shared: bool) -> QuerySet[Namespace]:
    found = Tenant.objects.filter(slug=slug).values_list("id", flat=True).first()
    if found is None:
        raise selected_missing("tenant")
    mine = Q(tenant_id=found)
    return rows.filter(
        mine | Q(share_group__in=ShareGroup.objects.filter(tenant_id=found).values("id")) if shared else mine
    )


def _named(text: str) -> Q:
    try:
        return Q(id=UUID(text)) if len(text) == 36 else Q(digest=bytes.fromhex(text))
    except ValueError:
        raise selected_missing("namespace") from None


def _of_epoch(text: str) -> Q:
    name, number = epoch_named(text)
    models = Model.objects.filter(name=name)
    if number is None or not Epoch.objects.filter(model__in=models, epoch=number).exists():
        raise selected_missing("epoch")
    return Q(model__in=models, model_epoch=number)


def _require_separable(rows: QuerySet[Namespace], part: str, tenant: str) -> None:
    """Every namespace that could hold some of it holds nothing else.

    A namespace keeps apart what the scope under which it was made says, whatever the tenant's scope is now.
    """
    coarser = ERASURE_SCOPES[: ERASURE_SCOPES.index(part)]
    mixed = rows.filter(spec__erasure_scope__in=coarser, share_group=None)
    some = list(mixed.values_list("spec__erasure_scope", flat=True)[:1])
    if some:
        whose = f" of {tenant}" if tenant else ""
        raise Problem(
            "not-separable",
            f"Some namespaces{whose} were made with erasure_scope {some[0]}: a {part} is not apart from the rest in"
            f" them, so {mixed.count()} whole namespaces would go instead. Select by {some[0]}.",
        )


def _read(rows: QuerySet[Namespace]) -> list[Erasable]:
    columns = (
        *("id", "tenant_id", "tenant__slug", "digest", "generation", "min_gen", "label", "data_class", "share_group"),
        "spec__erasure_scope",
    )
    found = [
        Erasable(r[0], r[1], r[2], bytes(r[3]), r[4], r[5], r[6], r[7], r[8], r[9] or "")
        for r in rows.values_list(*columns)
    ]
    groups = {row.share_group for row in found if row.share_group}
    if not groups:
        return found
    members: dict[UUID, list[str]] = {}
    named_ = ShareMember.objects.using(FLEET_PLANE).filter(group__in=groups).order_by("slug")
    for group, slug in named_.values_list("group_id", "slug"):
        members.setdefault(group, []).append(slug)
    owners = {
        group: (slug, owner)
        for group, slug, owner in ShareGroup.objects.using(FLEET_PLANE)
        .filter(id__in=groups)
        .values_list("id", "owner_slug", "tenant_id")
    }
    return [_of_group(row, members, owners) for row in found]


def _of_group(row: Erasable, members: dict[UUID, list[str]], owners: dict[UUID, tuple[str, UUID]]) -> Erasable:
    if row.share_group not in owners:
        return row
    slug, owner = owners[row.share_group]
    others = tuple(one for one in members.get(row.share_group, ()) if one != slug)
    return msgspec.structs.replace(row, tenant=slug, members=others, group_owner=owner)


class Retained(msgspec.Struct, frozen=True):
    """A namespace whose blocks are kept for a time only. `class_named`: "" = it may hold blocks of any class."""

    namespace: UUID
    digest: bytes
    min_gen: int
    tenant_id: UUID
    tenant: str
    class_named: str
    seconds: int


def namespaces_retained() -> list[Retained]:
    """The namespaces for which a tenant said how long blocks of their data class are kept.

    One that may hold blocks of any class keeps them as long as the shortest-lived of them.
    """
    rows = Namespace.objects.using(FLEET_PLANE).filter(share_group=None, state="active").exclude(tenant__retention={})
    columns = ("id", "digest", "min_gen", "tenant_id", "tenant__slug", "data_class", "spec__erasure_scope",
               "tenant__retention", "tenant__erasure_scope")  # fmt: skip
    found = []
    for id_, digest, min_gen, tenant, slug, data_class, made, kept, scope in rows.values_list(*columns):
        apart = (made or scope) != ERASURE_SCOPES[0]
        seconds = kept.get(data_class) if apart else min(kept.values())
        if seconds is not None:
            name = data_class if apart else ""
            found.append(Retained(id_, bytes(digest), min_gen, tenant, slug, name, int(seconds)))
    return found


def owned(digests: Collection[bytes], tenant: UUID) -> set[bytes]:
    """Those of these namespaces that are the tenant's, or of a share group that it owns; all, for the platform."""
    rows = Namespace.objects.using(FLEET_PLANE).filter(digest__in=list(digests))
    if tenant != PLATFORM:
        groups = ShareGroup.objects.using(FLEET_PLANE).filter(tenant_id=tenant).values("id")
        rows = rows.filter(Q(tenant_id=tenant) | Q(share_group__in=groups))
    return {bytes(digest) for digest in rows.values_list("digest", flat=True)}


def fences_of(fences: Collection[tuple[UUID, int]]) -> int:
    """The position of the fence log from which on all these fences (namespace, min_gen) are applied; 0 without any."""
    with connections[FLEET_PLANE].cursor() as cursor:
        columns = ([n for n, _ in fences], [g for _, g in fences])
        cursor.execute(named("tenants", "operations.sql")["fences_of"], columns)
        return int(cursor.fetchone()[0])


class KeysOut(msgspec.Struct, frozen=True):
    """Who can still address fenced generations. `until` None: nobody has a lease of their keys."""

    gateways: int
    until: datetime | None


class Fences(NamedTuple):
    """A question about keys: fences (namespace, min_gen), and the entry of the fence log that has all of them."""

    fences: Sequence[tuple[UUID, int]]
    seq: int


def keys_out(*, fences: Sequence[tuple[UUID, int]], seq: int, now: datetime) -> KeysOut:
    """How many gateways have not acknowledged the fences (namespace, min_gen), and when the last lease below ends."""
    return keys_out_each([Fences(fences, seq)], now=now)[0]


def keys_out_each(asked: Sequence[Fences], *, now: datetime) -> list[KeysOut]:
    """The same for several questions, in their order, in one statement."""
    found = {at: KeysOut(gateways, until) for at, gateways, until in _asked_each("keys_out", asked, now=now)}
    return [found.get(at, KeysOut(0, None)) for at in range(len(asked))]


def node_leases_each(asked: Sequence[Fences]) -> list[dict[str, datetime]]:
    """By question: node's id → when its last lease below the fences ends or ended, where it never acknowledged them."""
    found: list[dict[str, datetime]] = [{} for _ in asked]
    for at, node, until in _asked_each("node_leases", asked):
        found[at][node] = until
    return found


def _asked_each(name: str, asked: Sequence[Fences], **more: Any) -> list[tuple[Any, ...]]:
    rows = [(at, namespace, gen, one.seq) for at, one in enumerate(asked) for namespace, gen in one.fences]
    if not rows:
        return []
    columns = dict(zip(("at", "namespaces", "gens", "seqs"), map(list, zip(*rows, strict=True)), strict=True))
    with connections[FLEET_PLANE].cursor() as cursor:
        cursor.execute(named("tenants", "operations.sql")[name], {**columns, **more})
        return list(cursor.fetchall())


def epoch_leased_until(epoch: str, now: datetime) -> datetime | None:
    """When the last lease ends by which a gateway sends requests to the epoch (`model/number`); None: there is none."""
    name, number = epoch_named(epoch)
    if number is None:
        return None
    namespaces = Namespace.objects.using(FLEET_PLANE).filter(
        model__in=Model.objects.using(FLEET_PLANE).filter(name=name), model_epoch=number
    )
    leases = KeyLease.objects.using(FLEET_PLANE).filter(
        holder_kind="gateway", until__gt=now, namespace__in=namespaces.values("id")
    )
    found: datetime | None = leases.aggregate(last=Max("until"))["last"]
    return found


def leases_of(namespaces: Sequence[UUID], now: datetime) -> list[tuple[UUID, str, int, datetime]]:
    """(namespace, kind of holder, how many, until when) of the leases of keys that run."""
    rows = KeyLease.objects.using(FLEET_PLANE).filter(namespace__in=list(namespaces), until__gt=now)
    found = rows.values_list("namespace_id", "holder_kind").annotate(holders=Count("holder", distinct=True))
    return list(found.annotate(last=Max("until")).order_by("namespace_id", "holder_kind"))


def node_fences() -> dict[str, int]:
    """Node's id → up to where it has applied the fences."""
    with connections[FLEET_PLANE].cursor() as cursor:
        cursor.execute(named("tenants", "operations.sql")["fence_acks"])
        return dict(cursor.fetchall())
