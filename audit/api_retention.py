"""REST of retention: which bodies went, and asking that some go."""

from datetime import UTC, datetime
from typing import Any

from django.urls import URLPattern
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from audit import retention
from audit.api_v1 import READERS, ApprovalOut, approval_answer
from audit.services import portable
from kvconsole.infra.access import audited, counted, route
from kvconsole.infra.calls import PROOF, call, caller
from kvconsole.infra.rest import Strict


class RetentionIn(Strict):
    """Body of POST /audit/retentions: class = the high byte of the types, month in UTC like 2025-01."""

    month = serializers.CharField(max_length=7)

    def get_fields(self) -> dict[str, Any]:
        """`class` is a word that Python keeps for itself."""
        return {"class": serializers.IntegerField(min_value=1, max_value=255), **super().get_fields()}


class _Retired(serializers.Serializer[Any]):
    month = serializers.CharField()
    events = serializers.IntegerField()
    first_index = serializers.IntegerField(allow_null=True)
    last_index = serializers.IntegerField(allow_null=True)
    digest = serializers.CharField()
    at = serializers.DateTimeField()
    approval = serializers.UUIDField()

    def get_fields(self) -> dict[str, Any]:
        return {"class": serializers.IntegerField(), **super().get_fields()}


class RetentionsOut(serializers.Serializer[Any]):
    """What went, newest first; `digest` is over the hashes of the bodies, which their leaves still have."""

    items = _Retired(many=True)


class Retentions(APIView):
    """Bodies of old events."""

    @call("audit_retentions_list", answer=RetentionsOut)
    def get(self, request: Request) -> Response:
        """Which classes and months have no bodies any more."""
        rows = [{("class" if k == "class_" else k): v for k, v in r._asdict().items()} for r in retention.retired()]
        return Response({"items": portable(rows)})

    @call(
        "audit_retentions_create", body=RetentionIn, answer=ApprovalOut, status=202,
        refusals=("retention-too-young", "retention-done", "audit-unavailable", *PROOF),
    )  # fmt: skip
    def post(self, request: Request, fields: dict[str, Any]) -> Response:
        """It waits for a second person; approved, the bodies and sealed data go, and the leaves stay."""
        made = retention.retention_request(
            class_=fields["class"], month=fields["month"], actor=caller(), now=datetime.now(UTC)
        )
        return Response(approval_answer(made), status=202)


urlpatterns: list[URLPattern] = [
    route(
        "audit/retentions", Retentions.as_view(), "audit-retentions",
        GET=counted(*READERS), POST=audited("operator", step_up=True, scope="audit:destroy"),
    ),
]  # fmt: skip
