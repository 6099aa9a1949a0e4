"""Forms of moves and pins over REST. Only shapes."""

from typing import Any

from rest_framework import serializers

from catalog.operation_bodies import HEX32, HEX_KEY, SelectorIn
from catalog.pins import MOST_KEYS
from kvconsole.infra.rest import Strict
from kvcore.blocks import TIERS

THROTTLE = 2**50


def _throttle() -> serializers.IntegerField:
    return serializers.IntegerField(
        min_value=1, max_value=THROTTLE, allow_null=True, default=None, help_text="Bytes a second, of a tier and a link"
    )


def _reason() -> serializers.CharField:
    return serializers.CharField(max_length=500, required=False, allow_blank=True, default="")


class MigrationIn(Strict):
    """Body of POST /migrations."""

    selector = SelectorIn()
    from_tier = serializers.ChoiceField(list(TIERS))
    to_tier = serializers.ChoiceField(list(TIERS))
    to_node = serializers.CharField(
        max_length=63, required=False, default="", help_text="Name or id; else each its own"
    )
    throttle = _throttle()
    deadline = serializers.DateTimeField(allow_null=True, default=None, help_text="Within 30 days; else within an hour")
    reason = _reason()


class PrefetchIn(Strict):
    """Body of POST /prefetches: a copy of these blocks is there before it is needed, or nothing is begun."""

    namespace = serializers.CharField(max_length=64, help_text="Id or digest")
    prefix = serializers.ListField(
        child=serializers.RegexField(HEX_KEY),
        min_length=1,
        max_length=MOST_KEYS,
        help_text="Block keys, or the first 16 bytes of them",
    )
    to_node = serializers.CharField(max_length=63, help_text="Name or id")
    to_tier = serializers.ChoiceField(list(TIERS))
    need_at = serializers.DateTimeField(help_text="Within 30 days")
    throttle = _throttle()


class DrainIn(Strict):
    """Body of POST /nodes/{id}:drain."""

    recompute = serializers.BooleanField(
        default=False,
        help_text="What no other node has room for is let go, but for what a legal hold keeps; for"
        " destructive-operator, with fresh proof or the scope deletions:destroy, a reason and the phrase",
    )
    confirm_phrase = serializers.CharField(
        max_length=100, required=False, allow_blank=True, default="", help_text="With recompute: recompute NODE'S-NAME"
    )
    throttle = _throttle()
    deadline = serializers.DateTimeField(allow_null=True, default=None, help_text="Within 30 days; else within an hour")
    reason = _reason()


class CordonIn(Strict):
    """Body of POST /nodes/{id}:cordon and :uncordon."""

    reason = _reason()


class PinIn(Strict):
    """Body of POST /pins."""

    namespace = serializers.CharField(max_length=64, help_text="Id or digest")
    prefix = serializers.ListField(
        child=serializers.RegexField(HEX32), min_length=1, max_length=MOST_KEYS, allow_null=True, default=None,
        help_text="Block keys; null = the whole namespace",
    )  # fmt: skip
    until = serializers.DateTimeField()
    reason = _reason()


class PinOut(serializers.Serializer[Any]):
    """A pin: these blocks stay where they lie until then. `blocks`: how many keys it names, 0 where it is `whole`."""

    id = serializers.UUIDField()
    namespace = serializers.UUIDField()
    digest = serializers.CharField()
    whole = serializers.BooleanField()
    blocks = serializers.IntegerField()
    until = serializers.DateTimeField()
    reason = serializers.CharField(allow_blank=True)
    requested_by = serializers.CharField()
    created_at = serializers.DateTimeField()
