"""Decides what every answer of the API says of a node, whatever else it says: `GET /nodes` and the map's tiles."""

from typing import Any

from rest_framework import serializers

from catalog.models import NODE_STATES


class NodeFacts(serializers.Serializer[Any]):
    """A node as it is now, without its tiers; null where nothing was reported."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    region = serializers.CharField()
    zone = serializers.CharField()
    rack = serializers.CharField()
    role = serializers.CharField()
    state = serializers.ChoiceField(NODE_STATES)
    source_state = serializers.ChoiceField(["exact", "recovering", "degraded", "lost"], allow_null=True)
    reason = serializers.CharField()
    age_ms = serializers.IntegerField(allow_null=True)
    lag_ms = serializers.IntegerField(allow_null=True)
    blocks = serializers.IntegerField(allow_null=True)
    stale = serializers.BooleanField()
