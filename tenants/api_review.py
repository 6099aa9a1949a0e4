"""REST of the access review: who can delete what today."""

from datetime import UTC, datetime
from typing import Any

from django.urls import URLPattern
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from audit.bodies import EventOut, event_answer
from audit.services import portable
from kvconsole.infra.access import counted, route
from kvconsole.infra.calls import call
from tenants.reading.access import access_review

READERS = ("auditor", "operator", "approver", "tenant-admin")


class PowerOut(serializers.Serializer[Any]):
    """Something that cannot be taken back, the calls that do it, and who may by role."""

    scope = serializers.CharField()
    calls = serializers.ListField(child=serializers.CharField())
    roles = serializers.ListField(child=serializers.CharField())
    person = serializers.BooleanField()


class HolderOut(serializers.Serializer[Any]):
    """Somebody whose roles are enough for one of them."""

    id = serializers.UUIDField()
    username = serializers.CharField()
    tenant = serializers.CharField(allow_blank=True)
    roles = serializers.ListField(child=serializers.CharField())
    suspended = serializers.BooleanField()
    last_login = serializers.DateTimeField(allow_null=True)


class KeyOut(serializers.Serializer[Any]):
    """A token that is good now, without its secret."""

    id = serializers.CharField()
    name = serializers.CharField(allow_blank=True)
    owner = serializers.CharField(allow_blank=True)
    tenant = serializers.CharField()
    roles = serializers.ListField(child=serializers.CharField())
    scopes = serializers.ListField(child=serializers.CharField())
    last_used_at = serializers.DateTimeField(allow_null=True)
    expires_at = serializers.DateTimeField()


class AccessReviewOut(serializers.Serializer[Any]):
    """Who can delete what today, tokens unused for 90 days, and attempts to approve one's own wishes in 90 days."""

    powers = PowerOut(many=True)
    people = HolderOut(many=True)
    tokens = KeyOut(many=True)
    unused_tokens = KeyOut(many=True)
    own_approvals = EventOut(many=True)
    complete = serializers.BooleanField()
    as_of = serializers.DateTimeField()


class Review(APIView):
    """The access review."""

    @call("audit_access_get", answer=AccessReviewOut)
    def get(self, request: Request) -> Response:
        """As of now; of a tenant's people: of the tenant's own."""
        now = datetime.now(UTC)
        found = access_review(now=now)
        lists = {
            name: [{field: getattr(one, field) for field in one.__struct_fields__} for one in getattr(found, name)]
            for name in ("powers", "people", "tokens", "unused_tokens")
        }
        events = [event_answer(view) for view in found.own_approvals]
        answer = dict(portable(lists | {"complete": found.complete, "as_of": now}))
        return Response(answer | {"own_approvals": events})


urlpatterns: list[URLPattern] = [
    route("audit/access-review", Review.as_view(), "audit-access-review", GET=counted(*READERS)),
]
