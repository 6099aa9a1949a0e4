"""Reads of the tenants app, for all rooms above it: who is behind a token, namespaces, fences.

All run on the connection of the current plane; the ingest and router processes call them too.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from django.db import connections

from kvconsole.infra.access import FLEET_PLANE, Principal, plane
from kvconsole.infra.sql import PLATFORM, named
from kvconsole.infra.statements import fetch
from kvcore.messages import Fence
from tenants import tokens
from tenants.models import FenceEntry, Model, Tenant


class Known(msgspec.Struct, frozen=True, array_like=True):
    """One answer of the look-up, which gives its fields in this order."""

    token_id: str
    token_kind: str
    holder: str
    user_id: UUID | None
    username: str
    password: str
    email: str
    tenant_id: UUID | None
    tenant_slug: str
    roles: list[str]
    scopes: list[str]
    cidr: str
    expires_at: datetime | None
    language: str
    theme: str
    password_initial: bool
    second_factor: bool


class NamespaceRow(msgspec.Struct, frozen=True):
    """What the other rooms need of a namespace.

    `group_bytes`: bytes of a token on one rank in the model's only cache group; 0 = it has several, which engines
    number as they like, or is not known to have one.
    """

    id: UUID
    tenant_id: UUID
    digest: bytes
    generation: int
    min_gen: int
    label: str
    model: str
    model_epoch: int
    tenant_slug: str
    block_tokens: int
    bytes_per_token: int
    state: str = "active"
    key_scheme: str = "content"
    group_bytes: int = 0


def known_token(plaintext: str) -> Known | None:
    """Who is behind a token that is good now, else None: malformed, unknown, expired, used up or revoked."""
    parsed = tokens.parse(plaintext)
    return _lookup("token", parsed.id, parsed.secret_hash) if parsed else None


def known_user(user_id: str) -> Known | None:
    """An active person, by id; only on the operator's connection."""
    return _lookup("user", user_id, None)


def known_username(username: str) -> Known | None:
    """An active person, by log-in name; only on the operator's connection."""
    return _lookup("username", username, None)


def token_principal(plaintext: str) -> Principal | None:
    """Who acts with this token, or None. For a node's token `holder` is the node's id."""
    known = known_token(plaintext)
    return as_principal(known) if known else None


def as_principal(
    known: Known, *, proved_at: float = 0.0, methods: frozenset[str] = frozenset(), owes: str = ""
) -> Principal:
    """The principal behind a look-up; the platform's own are over all tenants.

    Args:
        known: the answer.
        proved_at: when the person last gave a password or a second factor in this session.
        methods: how the person did so.
        owes: what the person has to do before anything else.
    """
    tenant_id = None if known.tenant_id == PLATFORM else known.tenant_id
    standing_for = known.token_kind if known.token_kind in ("node", "gateway") else "token"
    return Principal(
        kind=standing_for if known.token_id else "user",
        id=known.token_id or str(known.user_id),
        roles=frozenset(known.roles),
        tenant_id=tenant_id,
        tenant_slug=known.tenant_slug if tenant_id else "",
        name=known.username or known.holder or known.token_id,
        holder=known.holder,
        user_id=str(known.user_id) if known.user_id else "",
        scopes=frozenset(known.scopes),
        proved_at=proved_at,
        methods=methods,
        owes=owes,
    )


def fence_times(after: int) -> list[tuple[bytes, int, datetime]]:
    """Digest, `min_gen` and time of every fence behind a position of the log."""
    rows = FenceEntry.objects.filter(seq__gt=after).order_by("seq").values_list("digest", "min_gen", "at")
    return [(bytes(digest), min_gen, at) for digest, min_gen, at in rows]


def fences_after(seq: int) -> tuple[int, list[Fence]]:
    """The newest position of the fence log, and for each namespace fenced since `seq` how high; both of one moment.

    A position that was never given (of a database that was restored) counts as the beginning.
    """
    with connections[plane()].cursor() as cursor:
        cursor.execute(named("tenants")["fences_after"], (seq,))
        rows = cursor.fetchall()
    latest = int(rows[0][0])
    if seq > latest:
        return fences_after(0)
    return latest, [Fence(ns=bytes(digest), min_gen=min_gen) for _, digest, min_gen in rows if digest is not None]


def namespaces_by_digest(digests: Sequence[bytes]) -> dict[bytes, NamespaceRow]:
    """The registered ones among these digests."""
    return {row.digest: row for row in _namespaces("WHERE n.digest = ANY(%s)", [list(digests)])} if digests else {}


def namespaces_active(*, resolved: bool = False) -> list[NamespaceRow]:
    """The active namespaces that the current plane shows; `resolved`: only those to which requests may be sent.

    An epoch that is being drained is read to its end, and nobody is sent to it any more.
    """
    draining = (
        " AND NOT EXISTS (SELECT FROM tenants_epoch e WHERE e.model_id = n.model_id AND e.epoch = n.model_epoch"
        " AND e.state = 'retired')"
    )
    where = "WHERE n.state = 'active' AND coalesce(t.state, 'active') = 'active'" + (draining if resolved else "")
    return _namespaces(f"{where} ORDER BY n.id", [])


def tenant_by_slug(slug: str) -> Tenant | None:
    """The tenant, where the current plane shows it."""
    return Tenant.objects.filter(slug=slug).first()


def tenant_id_of(slug: str) -> UUID | None:
    """The id of the tenant, where the current plane shows it."""
    found = fetch("SELECT id FROM tenants_tenant WHERE slug = %s", [slug])
    return found[0][0] if found else None


def tenant_slugs(ids: Collection[UUID]) -> dict[UUID, str]:
    """The slugs of these tenants, where the current plane shows them."""
    return dict(Tenant.objects.filter(id__in=ids).values_list("id", "slug"))


def model_by_name(name: str, *, tenant_id: UUID | None = None) -> Model | None:
    """The tenant's own model of this name, else the platform's."""
    found = {m.tenant_id: m for m in Model.objects.filter(name=name, tenant_id__in=[tenant_id or PLATFORM, PLATFORM])}
    return found.get(tenant_id or PLATFORM) or found.get(PLATFORM)


def _lookup(kind: str, key: str, proof: bytes | None) -> Known | None:
    """One round trip of one statement, prepared once a connection: this is asked for with every request."""
    ((found,),) = fetch(named("tenants")["lookup"], (kind, key, proof), using=FLEET_PLANE)
    return None if found is None else _known.decode(found)


_known = msgspec.json.Decoder(Known)


def _namespaces(where: str, values: list[Any]) -> list[NamespaceRow]:
    with connections[plane()].cursor() as cursor:
        cursor.execute(f"{named('tenants')['namespaces']} {where}", values)
        names = NamespaceRow.__struct_fields__
        return [NamespaceRow(**dict(zip(names, (*row[:2], bytes(row[2]), *row[3:]), strict=True))) for row in cursor]
