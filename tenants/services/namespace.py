"""Decides which namespace a request belongs to, and raises its generation.

The namespace is the unit of sharing and of erasure: what the tenant's `erasure_scope` says must be separable is in its
digest, what is coarser is not. For a namespace that is there a request costs two statements.
"""

import hmac
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
from django.db import IntegrityError, connections, transaction

from audit.services import record
from kvconsole.infra import nudge
from kvconsole.infra.access import Principal, plane
from kvconsole.infra.keystore import keystore, namespace_name, tenant_name
from kvconsole.infra.rest import Problem, add_codes
from kvconsole.infra.sql import PLATFORM, named
from kvcore.keys import NamespaceSpec, namespace_digest, subkey
from kvcore.rollout import WHOLE, choose, point, request_key
from tenants.constants import ERASURE_SCOPES
from tenants.models import Adapter, Model, Namespace, Tenant
from tenants.services import resolved
from tenants.services.identity import invalid
from tenants.services.replaying import fences_mark
from tenants.services.use import epoch_used
from tenants.whole import need_fences

add_codes(
    {
        "unknown-tenant": (404, "There is no such tenant"),
        "unknown-model": (404, "There is no such model"),
        "no-epoch": (409, "The model has no open epoch"),
        "namespace-closed": (409, "The namespace is closed"),
        "tenant-closed": (409, "The tenant is closed"),
        "share-group-inactive": (409, "The share group is not in force"),
        "share-group-not-separable": (422, "What must be erasable apart cannot go into a shared namespace"),
    }
)
_FOUND = (
    *("id", "tenant_id", "digest", "model_id", "model_epoch", "label", "generation", "min_gen", "key_scheme"),
    *("share_group", "state"),
)
"""Columns of the query `namespace_by_digest`, in the order of the model's fields."""


class Context(msgspec.Struct, frozen=True):
    """What the database says of a request: its tenant, model, epochs and shares, adapter."""

    tenant_id: UUID
    erasure_scope: str
    classes: list[str]
    tenant_state: str
    model_id: UUID | None
    model_tenant: UUID
    model: str
    family: str
    block_tokens: int
    layout: dict[str, str]
    epochs: list[tuple[int, str]] | None
    shares: dict[str, int] | None
    adapter_id: UUID | None
    adapter_tenant: UUID | None


def namespace_resolve(
    *,
    tenant: Tenant | str,
    model: Model | str,
    adapter: Adapter | str | None = None,
    data_class: str = "",
    share_group: str | None = None,
    label: str = "",
    subject: str = "",
    session: str = "",
    request: str = "",
    key_scheme: str = "content",
    actor: Principal | None = None,
    now: datetime | None = None,
) -> Namespace:
    """The namespace that such requests share, made now if this is the first; its generation has a key.

    Args:
        tenant: or its slug.
        model: or its name: the tenant's own, else the platform's.
        adapter: or the digest of its bytes.
        share_group: id, name or owner/name of a group that the tenant is in: its namespace instead of the tenant's.
        subject: whose request it is; only a keyed digest is kept.
        request: what keeps a request without session and subject at its epoch while a roll-out lasts.

    Raises:
        Problem: not-found, tenant-closed, unknown-model, no-epoch, validation-failed, share-group-inactive or
            share-group-not-separable.
    """
    found, new, of = _look(
        tenant, model, adapter, data_class, share_group, label, subject, session, request, key_scheme, actor, now
    )
    return found or _create(new, of, actor)


def namespace_find(
    *,
    tenant: str,
    model: str,
    adapter: str = "",
    data_class: str = "",
    label: str = "",
    session: str = "",
    request: str = "",
    actor: Principal,
) -> Namespace | None:
    """What `namespace_resolve` answers where nothing has to be made; else None.

    Raises:
        Problem: as `namespace_resolve`.
    """
    return _look(tenant, model, adapter, data_class, None, label, "", session, request, "content", actor, None)[0]


def _look(
    tenant: Tenant | str,
    model: Model | str,
    adapter: Adapter | str | None,
    data_class: str,
    share_group: str | None,
    label: str,
    subject: str,
    session: str,
    request: str,
    key_scheme: str,
    actor: Principal | None,
    now: datetime | None,
) -> tuple[Namespace | None, Namespace, Context]:
    """The namespace if it is there, and as it would be made."""
    now, asked = now or datetime.now(UTC), resolved.clock()
    lora = adapter.digest if isinstance(adapter, Adapter) else adapter or ""
    of = _context(tenant, model, lora)
    _refuse(of, lora, data_class)
    kept = _separable(of, data_class=data_class, label=label, subject=subject, session=session)
    group = _granted(of, share_group, data_class, kept, now) if share_group else None
    key = request_key(session=session, subject=subject, request=request, label=label)
    spec = _spec(of, lora, kept, key, group, key_scheme)
    digest, epoch, owner = namespace_digest(spec), spec.weights_epoch, PLATFORM if group else of.tenant_id
    model_id = _there(of)
    epoch_used(tenant_id=of.tenant_id, model_id=model_id, epoch=epoch, adapter_digest=lora, now=now)
    found = _by_digest(owner, digest)
    if found is not None and actor is not None and not (group or subject) and key_scheme == "content":
        resolved.contexts.keep((actor.tenant_id, tenant, model, lora), of, asked=asked)
        resolved.answers.keep((actor.tenant_id, of.tenant_id, digest), found, asked=asked)
    new = Namespace(
        tenant_id=owner,
        digest=digest,
        spec=msgspec.to_builtins(spec),
        model_id=model_id,
        model_epoch=epoch,
        adapter_id=of.adapter_id,
        key_scheme=key_scheme,
        share_group=group,
        created_at=now,
        **{**kept, "label": "" if group else label},
    )
    return found, new, of


def namespace_remembered(
    *,
    tenant: str,
    model: str,
    adapter: str = "",
    data_class: str = "",
    label: str = "",
    session: str = "",
    request: str = "",
    actor: Principal,
    now: float,
) -> Namespace | None:
    """What `namespace_resolve` answers, if this process found it out a moment ago; else None.

    Args:
        now: of `resolved.clock`.
    """
    of: Context | None = resolved.contexts.get((actor.tenant_id, tenant, model, adapter), now=now)
    if of is None or (data_class and data_class not in of.classes):
        return None
    kept = _separable(of, data_class=data_class, label=label, subject="", session=session)
    spec = _spec(of, adapter, kept, request_key(session=session, request=request, label=label), None, "content")
    found: Namespace | None = resolved.answers.get((actor.tenant_id, of.tenant_id, namespace_digest(spec)), now=now)
    return found


def _spec(
    of: Context, adapter: str, kept: dict[str, str], key: str, group: UUID | None, key_scheme: str
) -> NamespaceSpec:
    epoch, weights = _epoch(of, point(of.family, str(group or of.tenant_id), key))
    return NamespaceSpec(
        model=of.family,
        weights_epoch=epoch,
        weights_digest=weights,
        adapter_digest=adapter,
        **{f: of.layout[f] for f in ("position", "modality", "kv_dtype", "kv_scales", "tokenizer") if f in of.layout},
        block_tokens=of.block_tokens,
        key_scheme=key_scheme,
        scope_kind="share_group" if group else "tenant",
        scope=str(group or of.tenant_id),
        erasure_scope="" if group else of.erasure_scope,
        **kept,
    )


def _context(tenant: Tenant | str, model: Model | str, adapter: str) -> Context:
    values: dict[str, Any] = {
        "tenant": tenant.slug if isinstance(tenant, Tenant) else tenant,
        "model": model.name if isinstance(model, Model) else model,
        "adapter": adapter,
        "platform": PLATFORM,
    }
    with connections[plane()].cursor() as cursor:
        cursor.execute(named("tenants")["namespace_context"], values)
        row = cursor.fetchone()
    if row is None:
        raise Problem("not-found")
    if row[4] is None:
        raise Problem("unknown-model")
    decoded = [msgspec.json.decode(v) if isinstance(v, str) and i in (9, 10, 11) else v for i, v in enumerate(row)]
    return Context(*decoded)


def _refuse(of: Context, adapter: str, data_class: str) -> None:
    if of.tenant_state != "active":
        raise Problem("tenant-closed")
    if adapter and of.adapter_id is None:
        raise Problem("not-found")
    if data_class and data_class not in of.classes:
        raise invalid("/data_class", "Not a data class of the tenant.")
    if not of.epochs:
        raise Problem("no-epoch")


def _there(of: Context) -> UUID:
    if of.model_id is None:
        raise Problem("unknown-model")
    return of.model_id


def _epoch(of: Context, at: int) -> tuple[int, str]:
    """The open epoch of the requests at this point of the model's traffic, and the digest of its weights."""
    weights = dict(of.epochs or [])
    said = {int(e): share for e, share in (of.shares or {}).items() if int(e) in weights}
    epoch = choose(said or {max(weights): WHOLE}, at)
    if epoch is None:
        raise Problem("no-epoch")
    return epoch, weights[epoch]


def _separable(of: Context, *, data_class: str, label: str, subject: str, session: str) -> dict[str, str]:
    """What of the request is in the digest: all that is as coarse as the tenant's erasure scope, or coarser."""
    depth = ERASURE_SCOPES.index(of.erasure_scope)
    if subject and depth > 2:
        secret = keystore().ensure(tenant_name(of.tenant_id))
        text = b"kvconsole/subject/v1\0" + subject.encode()
        subject = hmac.digest(subkey(secret, "ref"), text, "sha256").hex()
    fine = {"data_class": data_class, "label": label, "subject": subject, "session": session}
    return {name: value if depth > i else "" for i, (name, value) in enumerate(fine.items())}


def _granted(of: Context, group: str, data_class: str, kept: dict[str, str], now: datetime) -> UUID:
    """The id of the group that the tenant may use now. One it is not in does not exist for it.

    What has a data class never goes in, whatever the erasure scope: its rules are the tenant's own.
    """
    with connections[plane()].cursor() as cursor:
        cursor.execute(named("tenants")["grants_of"], {"tenant": of.tenant_id, "group": group, "now": now})
        rows = cursor.fetchall()
    if not rows:
        raise Problem("not-found")
    if not rows[0][2]:
        state = "expired" if rows[0][1] == "approved" else rows[0][1]
        raise Problem("share-group-inactive", f"Its state is {state}: requests must not declare it.")
    if len(rows) > 1 and rows[1][2]:
        raise invalid("/share_group", "Several groups have this name; name it by its id.")
    if of.model_tenant != PLATFORM:
        raise invalid("/model", "A share group's namespaces are of the platform's models.")
    if of.adapter_tenant not in (None, PLATFORM):
        raise invalid("/adapter", "A share group's namespaces are of the platform's adapters.")
    if data_class:
        raise Problem("share-group-not-separable", f"Data of class {data_class} is not shared.")
    if of.classes and of.erasure_scope == ERASURE_SCOPES[0]:
        detail = "The tenant has data classes and cannot tell them apart, as its erasure_scope is tenant."
        raise Problem("share-group-not-separable", detail)
    if apart := [name for name, value in kept.items() if value]:
        raise Problem("share-group-not-separable", f"The tenant erases by {apart[0]}; leave it out or do not share.")
    found: UUID = rows[0][0]
    return found


def _by_digest(tenant_id: UUID, digest: bytes) -> Namespace | None:
    alias = plane()
    with connections[alias].cursor() as cursor:
        cursor.execute(named("tenants")["namespace_by_digest"], (tenant_id, digest))
        row = cursor.fetchone()
    return None if row is None else Namespace.from_db(alias, _FOUND, row)


def _create(new: Namespace, of: Context, actor: Principal | None) -> Namespace:
    """The namespace as it is now in the table: ours, or that of somebody who was quicker."""
    need_fences()
    new.generation = new.min_gen = max(new.generation, _first_open(bytes(new.digest)))
    keystore().ensure(namespace_name(bytes(new.digest), new.generation))
    body: dict[str, Any] = {
        "digest": bytes(new.digest),
        "model": of.model,
        "model_epoch": new.model_epoch,
        "generation": new.generation,
        "key_scheme": new.key_scheme,
    }
    try:
        with transaction.atomic(using=plane()):
            new.save(force_insert=True)
            record(
                event_type="namespace.created",
                outcome="success",
                actor=actor,
                tenant_id=of.tenant_id,
                object_kind="namespace",
                object_id=str(new.id),
                body=body | ({"share_group": str(new.share_group)} if new.share_group else {}),
            )
    except IntegrityError as e:
        found = Namespace.objects.filter(tenant_id=new.tenant_id, digest=new.digest).first()
        if found is None:  # its share group ended a moment ago: the database makes no namespace of it any more
            raise Problem("share-group-inactive") from e
        return found
    return new


def _first_open(digest: bytes) -> int:
    """The first generation that nobody ever fenced: a database that was restored may not know the namespace."""
    store, found = keystore(), 1
    while store.was(namespace_name(digest, found)) or store.exists(namespace_name(digest, found + 1)):
        found += 1
    return found


def generation_bump(
    *, namespace: Namespace | UUID, reason: str, actor: Principal | None, now: datetime | None = None
) -> Namespace:
    """The namespace has its next generation, and everything below it is fenced for good, on its way to all holders.

    Args:
        namespace: or its id.
        reason: a word for the log, not free text.

    Raises:
        Problem: not-found, or namespace-closed; nothing was fenced.
    """
    namespace_id = namespace if isinstance(namespace, UUID) else namespace.id
    queries = named("tenants")
    with transaction.atomic(using=plane()), connections[plane()].cursor() as cursor:
        cursor.execute(queries["generation_bump"], (namespace_id,))
        row = cursor.fetchone()
        found = Namespace.objects.filter(id=namespace_id).first()
        if found is None:
            raise Problem("not-found")
        if row is None:
            raise Problem("namespace-closed")
        digest, generation = bytes(found.digest), row[0]
        keystore().ensure(namespace_name(digest, generation))
        at = now or datetime.now(UTC)
        cursor.execute(queries["fence_raise"], (found.tenant_id, found.id, digest, generation, at))
        seq = cursor.fetchone()[0]
        record(
            event_type="namespace.generation_bumped",
            outcome="success",
            actor=actor,
            tenant_id=actor.tenant_id if actor and actor.tenant_id else found.tenant_id,
            object_kind="namespace",
            object_id=str(found.id),
            body={
                "digest": digest,
                "generation": generation,
                "min_gen": generation,
                "reason": reason,
                "fence_seq": seq,
            },
        )
        nudge.on_commit(nudge.FENCES, seq, using=plane())
        transaction.on_commit(lambda: fences_mark(seq), using=plane(), robust=True)
        transaction.on_commit(lambda: resolved.forget(), using=plane(), robust=True)
    return found
