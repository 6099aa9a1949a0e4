"""Decides how models, their epochs and adapters are registered.

A model registered with a `base` is a variant of it: the same line of weights in another layout (quantised, longer
context, other block size). Variants are of one family, and differ in a namespace by what differs, not by their names.
"""

import hashlib
import re
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
from kvcore.layout import Layout, layout_of
from kvcore.sizes import ConfigError, Sizes, kv_sizes
from tenants import selectors
from tenants.constants import PLATFORM_TENANT
from tenants.lookalikes import normal, skeleton
from tenants.models import Adapter, Epoch, Model
from tenants.services.identity import invalid

add_codes(
    {
        "model-taken": (409, "Another model has this name"),
        "model-name-alike": (409, "Another model's name looks like this one"),
        "model-unknown-base": (422, "There is no model that this could be a variant of"),
        "config-unusable": (422, "The model's config cannot be used"),
        "epoch-twin": (409, "A variant of the model already has this epoch with the same weights and layout"),
    }
)
MOST_CONFIG_BYTES = 256 * 1024
BLOCK_TOKENS = (1, 1024)
_DIGEST = re.compile(r"[\x21-\x7e]{1,128}")
_ENDS = re.compile(r"^/|(^|/)(\.*|epochs|lineage|uses|rollout)?$")
"""Names that end so would be the addresses of other things."""


def model_register(
    *,
    name: str,
    config: Mapping[str, Any],
    kv_dtype: str = "auto",
    block_tokens: int = 16,
    tensor_parallel: int = 1,
    base: str = "",
    kv_scales: str = "",
    tokenizer_digest: str = "",
    modality_digest: str = "",
    tenant_id: UUID = PLATFORM_TENANT,
    actor: Principal | None = None,
    now: datetime | None = None,
) -> Model:
    """The model is known, with the bytes that a token of its KV takes on one rank and the layout of its cache.

    Args:
        config: its Hugging Face `config.json`.
        kv_dtype: dtype of the cache; "auto" = the model's.
        block_tokens: tokens in a block, 1 to 1,024.
        base: name of the model that it is a variant of; "" = of none.
        kv_scales, tokenizer_digest, modality_digest: see `kvcore.layout.layout_of`.
        tenant_id: whose it is; the platform's are for all.

    Raises:
        Problem: validation-failed, config-unusable, model-unknown-base, model-taken or model-name-alike.
    """
    if not 1 <= len(name) <= 200 or not name.isprintable() or normal(name) != name or _ENDS.search(name):
        raise invalid("/name", "1 to 200 printable characters in their plain form, not ending as an address does.")
    if not BLOCK_TOKENS[0] <= block_tokens <= BLOCK_TOKENS[1]:
        raise invalid("/block_tokens", "1 to 1,024.")
    raw = rfc8785.dumps(portable(config))
    if len(raw) > MOST_CONFIG_BYTES:
        raise invalid("/config", "At most 256 KiB.")
    said = {"kv_scales": kv_scales, "tokenizer_digest": tokenizer_digest, "modality_digest": modality_digest}
    for field, value in said.items():
        if value and not _DIGEST.fullmatch(value):
            raise invalid(f"/{field}", "1 to 128 visible ASCII characters.")
    sizes, layout = _understood(config, kv_dtype=kv_dtype, tensor_parallel=tensor_parallel, said=said)
    parent = selectors.model_by_name(base, tenant_id=tenant_id) if base else None
    if base and parent is None:
        raise Problem("model-unknown-base")
    model = Model(
        tenant_id=tenant_id,
        name=name,
        config=dict(config),
        kv_dtype=kv_dtype,
        block_tokens=block_tokens,
        tensor_parallel=tensor_parallel,
        bytes_per_token=sizes.bytes_per_token,
        per_group=[{"group": i, **msgspec.to_builtins(g)} for i, g in enumerate(sizes.per_group)],
        base=base,
        family=parent.family if parent else name,
        layout=msgspec.to_builtins(layout),
        lookalike=skeleton(name)[:400],
        created_at=now or datetime.now(UTC),
    )
    fields = ("name", "kv_dtype", "block_tokens", "tensor_parallel", "bytes_per_token", "base", "layout")
    body = {f: getattr(model, f) for f in fields} | {"config_hash": hashlib.sha256(raw).hexdigest()}
    with transaction.atomic(using=plane()):
        _insert(model)
        _record("model.registered", tenant_id, "model", str(model.id), actor, body)
    return model


def _understood(
    config: Mapping[str, Any], *, kv_dtype: str, tensor_parallel: int, said: Mapping[str, str]
) -> tuple[Sizes, Layout]:
    try:
        sizes = kv_sizes(config, kv_dtype=kv_dtype, tensor_parallel=tensor_parallel)
        return sizes, layout_of(config, kv_dtype=kv_dtype, **said)
    except ConfigError as e:
        raise Problem(
            "config-unusable", e.detail, errors=[{"pointer": "/config", "code": e.code, "detail": e.detail}]
        ) from e


def epoch_create(
    *, model: Model, weights_digest: str, note: str = "", actor: Principal | None = None, now: datetime | None = None
) -> Epoch:
    """The model's next epoch exists. Weights that are rolled back get a new number too.

    New requests are of it at once, unless the model has a roll-out: then when its shares say so.

    Raises:
        Problem: validation-failed, or epoch-twin: a variant would be the same in every respect.
    """
    if not 1 <= len(weights_digest) <= 128 or not weights_digest.isascii() or not weights_digest.isprintable():
        raise invalid("/weights_digest", "1 to 128 visible ASCII characters.")
    with transaction.atomic(using=plane()):
        _lock(f"epoch {model.family}")
        last = Epoch.objects.filter(model=model).aggregate(last=Max("epoch"))["last"] or 0
        _no_twin(model, last + 1, weights_digest)
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


def _no_twin(model: Model, number: int, weights_digest: str) -> None:
    """Two models of a family never stand for one namespace: closing an epoch of one would close the other's."""
    same = Model.objects.filter(
        tenant_id__in={model.tenant_id, PLATFORM_TENANT},
        family=model.family,
        layout=model.layout,
        block_tokens=model.block_tokens,
        epochs__epoch=number,
        epochs__weights_digest=weights_digest,
    ).exclude(id=model.id)
    if twin := same.values_list("name", flat=True).first():
        raise Problem("epoch-twin", f"Epoch {number} of {twin} has the same weights and layout; use that model.")


def adapter_register(
    *,
    model: Model,
    name: str,
    digest: str,
    tenant_id: UUID = PLATFORM_TENANT,
    actor: Principal | None = None,
    now: datetime | None = None,
) -> Adapter:
    """The adapter of this content is known: the same one if it was before; a known name gets a new epoch.

    Raises:
        Problem: validation-failed.
    """
    if not 1 <= len(name) <= 200 or not name.isprintable():
        raise invalid("/name", "1 to 200 printable characters.")
    if not _DIGEST.fullmatch(digest):
        raise invalid("/digest", "1 to 128 visible ASCII characters: the digest of the adapter's bytes.")
    with transaction.atomic(using=plane()):
        _lock(f"adapter {model.id}")
        known = Adapter.objects.filter(tenant_id=tenant_id, model=model, digest=digest).first()
        named = Adapter.objects.filter(tenant_id=tenant_id, model=model, name=name)
        last = named.aggregate(last=Max("epoch"))["last"] or 0
        adapter = known or Adapter.objects.create(
            tenant_id=tenant_id,
            model=model,
            name=name,
            digest=digest,
            epoch=last + 1,
            created_at=now or datetime.now(UTC),
        )
        body = {"model": model.name, "name": adapter.name, "digest": digest, "epoch": adapter.epoch}
        _record("adapter.registered", tenant_id, "adapter", str(adapter.id), actor, body)
    return adapter


def _lock(what: str) -> None:
    """Others who number the same thing wait until this transaction ends."""
    with connections[plane()].cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (what,))


def _insert(model: Model) -> None:
    alike = Model.objects.filter(tenant_id=model.tenant_id, lookalike=model.lookalike)
    if known := alike.values_list("name", flat=True).first():
        detail = f"{known!r} is registered, and people take one for the other."
        raise Problem("model-taken") if known == model.name else Problem("model-name-alike", detail)
    try:
        with transaction.atomic(using=plane()):
            model.save(force_insert=True)
    except IntegrityError as e:
        raise Problem("model-taken") from e


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
