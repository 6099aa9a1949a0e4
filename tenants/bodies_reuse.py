"""Decides the JSON of adapters, lineage, roll-outs, explanations and share groups; answers are only described."""

from typing import Any

from rest_framework import serializers

from kvconsole.infra.rest import Strict
from kvcore.rollout import DEFAULT_HORIZON_SECONDS, HORIZON_SECONDS


class AdapterIn(Strict):
    """Body of POST /adapters."""

    model = serializers.CharField(max_length=200)
    name = serializers.CharField(max_length=200)
    digest = serializers.RegexField(r"^[\x21-\x7e]{1,128}$")


class AdapterNumber(serializers.Serializer[Any]):
    """The number of an adapter's content among those that had its name; the content is what counts."""

    adapter_epoch = serializers.IntegerField()
    name = serializers.CharField()
    digest = serializers.CharField()


class AdapterOut(serializers.Serializer[Any]):
    """An adapter. `shared`: it is the platform's."""

    model = serializers.CharField()
    name = serializers.CharField()
    digest = serializers.CharField()
    adapter_epoch = serializers.IntegerField()
    shared = serializers.BooleanField()
    created_at = serializers.DateTimeField()


class UseOut(serializers.Serializer[Any]):
    """On this day the tenant's requests were of this epoch and adapter (known to ten minutes)."""

    tenant = serializers.CharField()
    epoch = serializers.IntegerField()
    adapter = serializers.CharField(allow_blank=True)
    day = serializers.DateField()
    first_at = serializers.DateTimeField()
    last_at = serializers.DateTimeField()


class FamilyOut(serializers.Serializer[Any]):
    """A model of a family."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    base = serializers.CharField(allow_blank=True)
    family = serializers.CharField()
    kv_dtype = serializers.CharField()
    quantisation = serializers.CharField(allow_blank=True)
    block_tokens = serializers.IntegerField()
    bytes_per_token = serializers.IntegerField()
    layout = serializers.DictField(child=serializers.CharField(allow_blank=True))
    epochs = serializers.IntegerField()
    created_at = serializers.DateTimeField()


class LineageEpochOut(serializers.Serializer[Any]):
    """An epoch; `same_weights` = earlier epochs with the same weights: this one is a roll-back."""

    epoch = serializers.IntegerField()
    weights_digest = serializers.CharField()
    note = serializers.CharField(allow_blank=True)
    state = serializers.CharField()
    created_at = serializers.DateTimeField()
    same_weights = serializers.ListField(child=serializers.IntegerField())


class LineageAdapterOut(serializers.Serializer[Any]):
    """An adapter of the model; `own` = of a tenant, not of the platform."""

    name = serializers.CharField()
    digest = serializers.CharField()
    epoch = serializers.IntegerField()
    own = serializers.BooleanField()
    created_at = serializers.DateTimeField()


class LineageUseOut(serializers.Serializer[Any]):
    """A tenant's use of an epoch and adapter, from when to when."""

    tenant = serializers.CharField(allow_blank=True)
    epoch = serializers.IntegerField()
    adapter = serializers.CharField(allow_blank=True)
    first_at = serializers.DateTimeField()
    last_at = serializers.DateTimeField()
    days = serializers.IntegerField()


class LineageOut(serializers.Serializer[Any]):
    """Base → adapter → quantisation, and who used which epoch when."""

    model = FamilyOut()
    bases = FamilyOut(many=True)
    variants = FamilyOut(many=True)
    epochs = LineageEpochOut(many=True)
    adapters = LineageAdapterOut(many=True)
    uses = LineageUseOut(many=True)


class RolloutIn(Strict):
    """Body of PUT /models/{name}/rollout: epoch → whole per cent of new requests, together 100."""

    shares = serializers.DictField(child=serializers.IntegerField())
    horizon_seconds = serializers.IntegerField(
        min_value=HORIZON_SECONDS[0], max_value=HORIZON_SECONDS[1], default=DEFAULT_HORIZON_SECONDS
    )


class RolloutEpochOut(serializers.Serializer[Any]):
    """An epoch; null = the catalog has not told yet. `stale_hit_tokens` is 0 unless something is wrong."""

    epoch = serializers.IntegerField()
    state = serializers.CharField()
    share = serializers.IntegerField()
    size_bytes = serializers.IntegerField(allow_null=True)
    blocks = serializers.IntegerField(allow_null=True)
    stale_hit_tokens = serializers.IntegerField(allow_null=True)
    as_of = serializers.DateTimeField(allow_null=True)


class PointOut(serializers.Serializer[Any]):
    """Bytes at one moment: of epochs that lose traffic, and of all."""

    at = serializers.DateTimeField()
    old_bytes = serializers.IntegerField()
    all_bytes = serializers.IntegerField()


class RolloutOut(serializers.Serializer[Any]):
    """Shares of new requests by epoch, bytes by epoch, and what was expected. The ETag is over what PUT sets."""

    model = serializers.CharField()
    version = serializers.IntegerField()
    shares = serializers.DictField(child=serializers.IntegerField())
    before = serializers.DictField(child=serializers.IntegerField())
    changed_at = serializers.DateTimeField(allow_null=True)
    horizon_seconds = serializers.IntegerField()
    epochs = RolloutEpochOut(many=True)
    forecast = PointOut(many=True)
    peak_bytes = serializers.IntegerField(allow_null=True)
    measured = PointOut(many=True)
    measured_peak_bytes = serializers.IntegerField(allow_null=True)


class ComparedOut(serializers.Serializer[Any]):
    """One of the two namespaces."""

    namespace = serializers.UUIDField()
    digest = serializers.CharField()
    tenant = serializers.CharField(allow_blank=True)
    model = serializers.CharField()
    model_epoch = serializers.IntegerField()
    state = serializers.CharField()


class DifferenceOut(serializers.Serializer[Any]):
    """One reason: its code, the two values ("" = none, or not shown), and words."""

    code = serializers.CharField()
    a = serializers.CharField(allow_blank=True)
    b = serializers.CharField(allow_blank=True)
    words = serializers.CharField()


class ExplanationOut(serializers.Serializer[Any]):
    """Every field that keeps the two apart; none = they are one namespace."""

    a = ComparedOut()
    b = ComparedOut()
    same = serializers.BooleanField()
    fields = DifferenceOut(many=True)  # type: ignore[assignment]
    words = serializers.CharField()


class ShareGroupIn(Strict):
    """Body of POST /share-groups."""

    owner_tenant = serializers.CharField(max_length=63)
    name = serializers.CharField(max_length=63)
    audience = serializers.ListField(child=serializers.CharField(max_length=63), min_length=1, max_length=101)
    expires_at = serializers.DateTimeField()
    reason = serializers.CharField(max_length=500)


class ReasonIn(Strict):
    """Why a share group ends."""

    reason = serializers.CharField(max_length=500)


class ShareGroupOut(serializers.Serializer[Any]):
    """A share group. Who else is in it, who asked and who decided is shown to the fleet (members also to the owner)."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    owner = serializers.CharField()
    audience = serializers.ListField(child=serializers.CharField())
    state = serializers.CharField()
    reason = serializers.CharField()
    residency = serializers.CharField(allow_blank=True)
    requested_by = serializers.CharField(allow_blank=True)
    requested_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    decided_by = serializers.CharField(allow_blank=True)
    decided_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    approval = serializers.UUIDField(allow_null=True)
    approval_state = serializers.CharField(allow_blank=True)
