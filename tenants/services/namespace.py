"""Decides which namespace a request belongs to, and raises its generation.

The namespace is the unit of sharing and of erasure: what the tenant's `erasure_scope` says must be separable is in its
digest, what is coarser is not.
"""

import hmac
from datetime import UTC, datetime
from uuid import UUID

import msgspec
import rfc8785
from django.db import IntegrityError, connections, transaction

from audit.services import record
from kvconsole.infra import nudge
from kvconsole.infra.access import Principal, plane
from kvconsole.infra.keystore import keystore, namespace_name, tenant_name
from kvconsole.infra.rest import Problem, add_codes
from kvconsole.infra.sql import named
from kvcore.keys import NamespaceSpec, namespace_digest, subkey
from tenants import selectors
from tenants.constants import ERASURE_SCOPES
from tenants.models import Adapter, Epoch, Model, Namespace, Tenant
from tenants.services.identity import invalid

add_codes(
    {
        "unknown-tenant": (404, "There is no such tenant"),
        "unknown-model": (404, "There is no such model"),
        "no-epoch": (409, "The model has no open epoch"),
        "namespace-closed": (409, "The namespace is closed"),
        "share-groups-unavailable": (422, "Share groups are not offered yet"),
    }
)


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
    key_scheme: str = "content",
    actor: Principal | None = None,
    now: datetime | None = None,
) -> Namespace:
    """The namespace that such requests share, made now if this is the first; its generation has a key.

    Args:
        tenant: or its slug.
        model: or its name: the tenant's own, else the platform's.
        adapter: or the digest of its bytes.
        subject: whose request it is; only a keyed digest is kept.

    Raises:
        Problem: not-found, unknown-model, no-epoch, validation-failed or share-groups-unavailable.
    """
    owner = selectors.tenant_by_slug(tenant) if isinstance(tenant, str) else tenant
    if owner is None:
        raise Problem("not-found")
    if share_group:
        raise Problem("share-groups-unavailable")
    of = selectors.model_by_name(model, tenant_id=owner.id) if isinstance(model, str) else model
    if of is None:
        raise Problem("unknown-model")
    lora = selectors.adapter_by_digest(of, adapter) if isinstance(adapter, str) else adapter
    if adapter and lora is None:
        raise invalid("/adapter", "There is no adapter of this digest.")
    if data_class and data_class not in owner.classes:
        raise invalid("/data_class", "Not a data class of the tenant.")
    epoch = Epoch.objects.filter(model=of, state="open").order_by("-epoch").first()
    if epoch is None:
        raise Problem("no-epoch")
    kept = _separable(owner, data_class=data_class, label=label, subject=subject, session=session)
    spec = _spec(owner, of, epoch, lora, kept, key_scheme)
    digest = namespace_digest(spec)
    found = Namespace.objects.filter(digest=digest).first()
    if found is not None:
        return found
    new = Namespace(
        tenant=owner,
        digest=digest,
        spec=msgspec.to_builtins(spec),
        model=of,
        model_epoch=epoch.epoch,
        adapter=lora,
        key_scheme=key_scheme,
        created_at=now or datetime.now(UTC),
        **{**kept, "label": label},
    )
    return _create(new, actor)


def _create(new: Namespace, actor: Principal | None) -> Namespace:
    """The namespace as it is now in the table: ours, or that of somebody who was quicker."""
    keystore().ensure(namespace_name(bytes(new.digest), new.generation))
    try:
        with transaction.atomic(using=plane()):
            new.save(force_insert=True)
            record(
                event_type="namespace.created",
                outcome="success",
                actor=actor,
                tenant_id=new.tenant_id,
                object_kind="namespace",
                object_id=str(new.id),
                body={
                    "digest": bytes(new.digest),
                    "model": new.model.name,
                    "model_epoch": new.model_epoch,
                    "generation": new.generation,
                    "key_scheme": new.key_scheme,
                },
            )
    except IntegrityError:
        return Namespace.objects.get(digest=new.digest)
    return new


def _separable(owner: Tenant, *, data_class: str, label: str, subject: str, session: str) -> dict[str, str]:
    """What of the request is in the digest: all that is as coarse as the tenant's erasure scope, or coarser."""
    depth = ERASURE_SCOPES.index(owner.erasure_scope)
    if subject:
        secret = keystore().ensure(tenant_name(owner.id))
        text = b"kvconsole/subject/v1\0" + subject.encode()
        subject = hmac.digest(subkey(secret, "ref"), text, "sha256").hex()
    fine = {"data_class": data_class, "label": label, "subject": subject, "session": session}
    return {name: value if depth > i else "" for i, (name, value) in enumerate(fine.items())}


def _spec(
    owner: Tenant, model: Model, epoch: Epoch, adapter: Adapter | None, kept: dict[str, str], key_scheme: str
) -> NamespaceSpec:
    text = model.config.get("text_config", model.config)
    return NamespaceSpec(
        model=model.name,
        weights_epoch=epoch.epoch,
        weights_digest=epoch.weights_digest,
        adapter_digest=adapter.digest if adapter else "",
        position=rfc8785.dumps(text["rope_scaling"]).decode() if text.get("rope_scaling") else "rope",
        kv_dtype=model.kv_dtype,
        tokenizer=str(model.config.get("tokenizer_digest", "")),
        block_tokens=model.block_tokens,
        key_scheme=key_scheme,
        scope=str(owner.id),
        **kept,
    )


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
            tenant_id=found.tenant_id,
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
    return found
