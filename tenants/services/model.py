"""Decides how models, their epochs and adapters are registered."""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import rfc8785
from django.db import IntegrityError, connections, transaction
from django.db.models import Max

from audit.services import portable, record
from kvconsole.infra.access import Principal, plane
from kvconsole.infra.rest import Problem, add_codes
from kvcore.sizes import ConfigError, kv_sizes
from tenants.constants import PLATFORM_TENANT
from tenants.models import Adapter, Epoch, Model
from tenants.services.identity import invalid

add_codes(
    {"model-taken": (409, "Another model has this name"), "config-unusable": (422, "The model's config cannot be used")}
)
MOST_CONFIG_BYTES = 256 * 1024
BLOCK_TOKENS = (1, 1024)


def model_register(
    *,
    name: str,
    config: Mapping[str, Any],
    kv_dtype: str = "auto",
    block_tokens: int = 16,
    tensor_parallel: int = 1,
    tenant_id: UUID = PLATFORM_TENANT,
    actor: Principal | None = None,
    now: datetime | None = None,
) -> Model:
    """The model is known, with the bytes that a token of its KV takes on one rank.

    Args:
        config: its Hugging Face `config.json`.
        kv_dtype: dtype of the cache; "auto" = the model's.
        block_tokens: tokens in a block, 1 to 1,024.
        tenant_id: whose it is; the platform's are for all.

    Raises:
        Problem: validation-failed, config-unusable or model-taken.
    """
    if not 1 <= len(name) <= 200 or not name.isprintable():
        raise invalid("/name", "1 to 200 printable characters.")
    if not BLOCK_TOKENS[0] <= block_tokens <= BLOCK_TOKENS[1]:
        raise invalid("/block_tokens", "1 to 1,024.")
    raw = rfc8785.dumps(portable(config))
    if len(raw) > MOST_CONFIG_BYTES:
        raise invalid("/config", "At most 256 KiB.")
    try:
        sizes = kv_sizes(config, kv_dtype=kv_dtype, tensor_parallel=tensor_parallel)
    except ConfigError as e:
        raise Problem(
            "config-unusable", e.detail, errors=[{"pointer": "/config", "code": e.code, "detail": e.detail}]
        ) from e
    model = Model(
        tenant_id=tenant_id,
        name=name,
        config=dict(config),
        kv_dtype=kv_dtype,
        block_tokens=block_tokens,
        tensor_parallel=tensor_parallel,
        bytes_per_token=sizes.bytes_per_token,
        per_group=[{"group": i, **msgspec.to_builtins(g)} for i, g in enumerate(sizes.per_group)],
        created_at=now or datetime.now(UTC),
    )
    fields = ("name", "kv_dtype", "block_tokens", "tensor_parallel", "bytes_per_token")
    body = {f: getattr(model, f) for f in fields} | {"config_hash": hashlib.sha256(raw).hexdigest()}
    with transaction.atomic(using=plane()):
        _insert(model, "model-taken")
        _record("model.registered", tenant_id, "model", str(model.id), actor, body)
    return model


def epoch_create(
    *, model: Model, weights_digest: str, note: str = "", actor: Principal | None = None, now: datetime | None = None
) -> Epoch:
    """The model's next epoch exists, and new namespaces are of it. The same weights get a new number too."""
    if not 1 <= len(weights_digest) <= 128 or not weights_digest.isascii():
        raise invalid("/weights_digest", "1 to 128 ASCII characters.")
    with transaction.atomic(using=plane()):
        _lock(f"epoch {model.id}")
        last = Epoch.objects.filter(model=model).aggregate(last=Max("epoch"))["last"] or 0
        epoch = Epoch.objects.create(
            tenant_id=model.tenant_id,
            model=model,
            epoch=last + 1,
            weights_digest=weights_digest,
            note=note,
            created_at=now or datetime.now(UTC),
        )
        body = {"model": model.name, "epoch": epoch.epoch, "weights_digest": weights_digest}
        _record("epoch.created", model.tenant_id, "epoch", str(epoch.id), actor, body)
    return epoch


def adapter_register(
    *,
    model: Model,
    name: str,
    digest: str,
    tenant_id: UUID = PLATFORM_TENANT,
    actor: Principal | None = None,
    now: datetime | None = None,
) -> Adapter:
    """The adapter of this content is known: the same one if it was before; a known name gets a new epoch."""
    with transaction.atomic(using=plane()):
        _lock(f"adapter {model.id}")
        known = Adapter.objects.filter(tenant_id=tenant_id, model=model, digest=digest).first()
        if known:
            return known
        named = Adapter.objects.filter(tenant_id=tenant_id, model=model, name=name)
        last = named.aggregate(last=Max("epoch"))["last"] or 0
        adapter = Adapter.objects.create(
            tenant_id=tenant_id,
            model=model,
            name=name,
            digest=digest,
            epoch=last + 1,
            created_at=now or datetime.now(UTC),
        )
        body = {"model": model.name, "name": name, "digest": digest, "epoch": adapter.epoch}
        _record("adapter.registered", tenant_id, "adapter", str(adapter.id), actor, body)
    return adapter


def _lock(what: str) -> None:
    """Others who number the same thing wait until this transaction ends."""
    with connections[plane()].cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (what,))


def _insert(model: Model, taken: str) -> None:
    try:
        with transaction.atomic(using=plane()):
            model.save(force_insert=True)
    except IntegrityError as e:
        raise Problem(taken) from e


def _record(
    event_type: str, tenant_id: UUID, object_kind: str, object_id: str, actor: Principal | None, body: dict[str, Any]
) -> None:
    record(
        event_type=event_type,
        outcome="success",
        actor=actor,
        tenant_id=tenant_id,
        object_kind=object_kind,
        object_id=object_id,
        body=body,
    )
