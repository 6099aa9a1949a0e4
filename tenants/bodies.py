"""Decides the JSON of tenants, models, epochs, namespaces and key leases: what calls take, and what they answer.

Answers are plain dictionaries; the serializers of answers only describe them (a serializer costs twenty times as much).
"""

from datetime import UTC, datetime
from typing import Any

from rest_framework import serializers

from kvconsole.infra.rest import Strict
from kvcore.residency import PLACE
from tenants.models import Epoch, Model, Namespace, Tenant


class TenantIn(Strict):
    """Body of POST /tenants."""

    slug = serializers.CharField(max_length=63)
    name = serializers.CharField(max_length=200)
    residency = serializers.RegexField(PLACE, max_length=63, required=False, allow_blank=True, default="")
    isolation = serializers.ChoiceField(["shared", "arena", "node"], default="shared")
    classes = serializers.ListField(child=serializers.CharField(max_length=63), required=False, max_length=64)
    erasure_scope = serializers.ChoiceField(["tenant", "class", "label", "subject", "session"], default="label")
    retention = serializers.DictField(child=serializers.IntegerField(min_value=1, max_value=2**31 - 1), required=False)


class TenantOut(serializers.Serializer[Any]):
    """A tenant."""

    id = serializers.UUIDField()
    slug = serializers.CharField()
    name = serializers.CharField()
    residency = serializers.CharField()
    isolation = serializers.CharField()
    classes = serializers.ListField(child=serializers.CharField())
    erasure_scope = serializers.CharField()
    retention = serializers.DictField(child=serializers.IntegerField())
    state = serializers.CharField()
    created_at = serializers.DateTimeField()


class TenantPatch(Strict):
    """Body of PATCH /tenants/{slug}: what is not named stays. The slug stays for good."""

    name = serializers.CharField(max_length=200, required=False)
    residency = serializers.RegexField(PLACE, max_length=63, required=False, allow_blank=True)
    isolation = serializers.ChoiceField(["shared", "arena", "node"], required=False)
    classes = serializers.ListField(child=serializers.CharField(max_length=63), required=False, max_length=64)
    erasure_scope = serializers.ChoiceField(["tenant", "class", "label", "subject", "session"], required=False)
    retention = serializers.DictField(child=serializers.IntegerField(min_value=1, max_value=2**31 - 1), required=False)


class ModelIn(Strict):
    """Body of POST /models."""

    name = serializers.CharField(max_length=200)
    config = serializers.DictField()
    kv_dtype = serializers.CharField(max_length=32, default="auto")
    block_tokens = serializers.IntegerField(min_value=1, max_value=1024, default=16)
    tensor_parallel = serializers.IntegerField(min_value=1, max_value=1024, default=1)
    base = serializers.CharField(max_length=200, required=False, allow_blank=True, default="")
    kv_scales = serializers.CharField(max_length=128, required=False, allow_blank=True, default="")
    tokenizer_digest = serializers.CharField(max_length=128, required=False, allow_blank=True, default="")
    modality_digest = serializers.CharField(max_length=128, required=False, allow_blank=True, default="")


class ModelOut(serializers.Serializer[Any]):
    """What a token of the model's KV takes on one rank."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    kv_dtype = serializers.CharField()
    block_tokens = serializers.IntegerField()
    tensor_parallel = serializers.IntegerField()
    bytes_per_token = serializers.IntegerField()
    per_group = serializers.ListField(child=serializers.DictField())
    base = serializers.CharField(allow_blank=True)
    family = serializers.CharField()
    layout = serializers.DictField(child=serializers.CharField(allow_blank=True))


class EpochIn(Strict):
    """Body of POST /models/{name}/epochs."""

    weights_digest = serializers.CharField(max_length=128)
    note = serializers.CharField(max_length=2000, required=False, allow_blank=True, default="")


class EpochNumber(serializers.Serializer[Any]):
    """The number of a set of weights."""

    epoch = serializers.IntegerField()


class EpochOut(serializers.Serializer[Any]):
    """A set of weights of a model."""

    epoch = serializers.IntegerField()
    weights_digest = serializers.CharField()
    note = serializers.CharField(allow_blank=True)
    state = serializers.CharField()
    created_at = serializers.DateTimeField()


class NamespaceIn(Strict):
    """Body of POST /namespaces:resolve."""

    tenant = serializers.CharField(max_length=63)
    model = serializers.CharField(max_length=200)
    adapter = serializers.CharField(max_length=128, required=False, allow_blank=True)
    data_class = serializers.CharField(max_length=63, required=False, allow_blank=True, default="")
    share_group = serializers.CharField(max_length=63, required=False, allow_blank=True)
    label = serializers.CharField(  # type: ignore[assignment]
        max_length=200, required=False, allow_blank=True, default=""
    )
    subject = serializers.CharField(max_length=200, required=False, allow_blank=True, default="")
    session = serializers.CharField(max_length=200, required=False, allow_blank=True, default="")
    request = serializers.CharField(max_length=200, required=False, allow_blank=True, default="")


class NamespaceOut(serializers.Serializer[Any]):
    """The namespace that such requests share."""

    namespace = serializers.UUIDField()
    digest = serializers.CharField()
    model_epoch = serializers.IntegerField()
    generation = serializers.IntegerField()
    state = serializers.CharField()


class HeldIn(Strict):
    """One namespace generation a holder has keys of."""

    namespace = serializers.RegexField(r"^[0-9a-f]{64}$")
    generation = serializers.IntegerField(min_value=0, max_value=2**63 - 1)


class KeyLeasesIn(Strict):
    """Body of POST /key-leases."""

    held = HeldIn(many=True, required=False)
    fence_seq = serializers.IntegerField(min_value=0, max_value=2**63 - 1, default=0)
    all = serializers.BooleanField(default=False)


class PinnedOut(serializers.Serializer[Any]):
    """What is kept where it lies: these block keys in hex, null = all; `until` in seconds since 1970."""

    until = serializers.FloatField()
    keys = serializers.ListField(child=serializers.CharField(), allow_null=True)


class LeaseOut(serializers.Serializer[Any]):
    """Subkeys of one namespace generation, in hex. For nodes also `salt_tag`, and the tiers that may not hold it."""

    namespace = serializers.CharField()
    generation = serializers.IntegerField()
    block_tokens = serializers.IntegerField()
    subkeys = serializers.DictField(child=serializers.CharField())
    salt_tag = serializers.CharField(required=False)
    tenant = serializers.CharField(required=False)
    barred = serializers.DictField(child=serializers.CharField(), required=False)
    metered = serializers.BooleanField(required=False)
    pins = PinnedOut(many=True, required=False)
    until = serializers.DateTimeField()


class DeniedOut(serializers.Serializer[Any]):
    """A namespace whose blocks may not be on the node, and why; for nodes only."""

    namespace = serializers.CharField()
    tenant = serializers.CharField()
    reason = serializers.CharField()


class FenceOut(serializers.Serializer[Any]):
    """A fence; `min_gen` is a string where it is above 2^53."""

    namespace = serializers.CharField()
    min_gen = serializers.IntegerField()


class KeyLeasesOut(serializers.Serializer[Any]):
    """Answer of POST /key-leases."""

    leases = LeaseOut(many=True)
    ticket_key = serializers.CharField()
    fence_seq = serializers.IntegerField()
    fences_after = FenceOut(many=True)
    denied = DeniedOut(many=True)


def rfc3339(at: datetime) -> str:
    """The time in UTC, ending in Z."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def tenant_answer(tenant: Tenant) -> dict[str, Any]:
    """A tenant, as `TenantOut` describes it."""
    return {
        "id": str(tenant.id),
        "slug": tenant.slug,
        "name": tenant.name,
        "residency": tenant.residency,
        "isolation": tenant.isolation,
        "classes": tenant.classes,
        "erasure_scope": tenant.erasure_scope,
        "retention": tenant.retention,
        "state": tenant.state,
        "created_at": rfc3339(tenant.created_at),
    }


def model_answer(model: Model) -> dict[str, Any]:
    """A model, as `ModelOut` describes it."""
    return {
        "id": str(model.id),
        "name": model.name,
        "kv_dtype": model.kv_dtype,
        "block_tokens": model.block_tokens,
        "tensor_parallel": model.tensor_parallel,
        "bytes_per_token": model.bytes_per_token,
        "per_group": model.per_group,
        "base": model.base,
        "family": model.family,
        "layout": model.layout,
    }


def epoch_answer(epoch: Epoch) -> dict[str, Any]:
    """An epoch, as `EpochOut` describes it."""
    return {
        "epoch": epoch.epoch,
        "weights_digest": epoch.weights_digest,
        "note": epoch.note,
        "state": epoch.state,
        "created_at": rfc3339(epoch.created_at),
    }


def namespace_answer(found: Namespace) -> dict[str, Any]:
    """A namespace, as `NamespaceOut` describes it."""
    return {
        "namespace": str(found.id),
        "digest": bytes(found.digest).hex(),
        "model_epoch": found.model_epoch,
        "generation": found.generation,
        "state": found.state,
    }
