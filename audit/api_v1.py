"""REST of the audit app: approvals."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.urls import URLPattern
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from audit import approvals
from audit.models import Approval
from audit.services import portable
from kvconsole.infra.access import audited, counted, route
from kvconsole.infra.calls import PROOF, call, caller, page_of
from kvconsole.infra.rest import Problem, Strict
from kvconsole.infra.statements import Rows

READERS = ("viewer", "operator", "destructive-operator", "approver", "auditor")
STATES = ("open", "approved", "denied", "withdrawn")
FIELDS = (
    *("id", "kind", "object_id", "tenant_id", "what", "risk", "requested_by", "requested_at", "expires_at"),
    *("decided_by", "decided_at", "reason"),
)
LISTED = Rows(approvals.approvals, columns=(*FIELDS, "state"), key=("id",))
REFUSALS = ("approval-own", "approval-decided", "approval-expired", "person-needed", *PROOF)


class DecisionIn(Strict):
    """Body of POST /approvals/{id}:approve and :deny."""

    reason = serializers.CharField(max_length=approvals.MOST_REASON, required=False, allow_blank=True, default="")


class ApprovalOut(serializers.Serializer[Any]):
    """Something that waits for a second person, or waited. `state` expired = nobody decided in time."""

    id = serializers.UUIDField()
    kind = serializers.CharField()
    object_id = serializers.CharField()
    tenant_id = serializers.UUIDField()
    what = serializers.DictField()
    risk = serializers.CharField()
    state = serializers.ChoiceField([*STATES, "expired"])
    requested_by = serializers.CharField()
    requested_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    decided_by = serializers.CharField(allow_blank=True)
    decided_at = serializers.DateTimeField(allow_null=True)
    reason = serializers.CharField(allow_blank=True)


class Approvals(APIView):
    """What waits for a second person."""

    @call(
        "approvals_list",
        answer=ApprovalOut,
        page=True,
        query=[OpenApiParameter("state", str, enum=STATES, description="Only those of this state")],
        refusals=("validation-failed",),
    )
    def get(self, request: Request) -> Response:
        """A page of approvals, oldest first."""
        state = request.query_params.get("state")
        if state not in (None, *STATES):
            errors = [{"pointer": "/state", "code": "invalid", "detail": f"One of {', '.join(STATES)}."}]
            raise Problem("validation-failed", errors=errors)
        return page_of(LISTED, request, name="approvals", item=approval_answer, filters={"state": state})


class ApprovalDetail(APIView):
    """One approval."""

    @call("approvals_get", answer=ApprovalOut)
    def get(self, request: Request, approval_id: UUID) -> Response:
        """The approval."""
        found = approvals.approvals().filter(id=approval_id).first()
        if found is None:
            raise Problem("not-found")
        return Response(approval_answer(found))


class Approve(APIView):
    """The second person agrees."""

    @call("approvals_approve", body=DecisionIn, answer=ApprovalOut, refusals=(*REFUSALS, "audit-unavailable"))
    def post(self, request: Request, fields: dict[str, Any], approval_id: UUID) -> Response:
        """It is approved; its owner goes on by itself."""
        return _decide(approval_id, True, fields["reason"])


class Deny(APIView):
    """The second person refuses."""

    @call("approvals_deny", body=DecisionIn, answer=ApprovalOut, refusals=REFUSALS)
    def post(self, request: Request, fields: dict[str, Any], approval_id: UUID) -> Response:
        """It is denied, for good."""
        return _decide(approval_id, False, fields["reason"])


def _decide(approval_id: UUID, approve: bool, reason: str) -> Response:
    now = datetime.now(UTC)
    found = approvals.approval_decide(approval_id=approval_id, approve=approve, actor=caller(), reason=reason, now=now)
    return Response(approval_answer(found))


def approval_answer(found: Approval) -> dict[str, Any]:
    """The approval as it is shown; an open one may have expired."""
    state = approvals.approval_state(found, datetime.now(UTC))
    return dict(portable({name: getattr(found, name) for name in FIELDS} | {"state": state}))


DECIDE = audited("approver", step_up=True, person=True)
urlpatterns: list[URLPattern] = [
    route("approvals", Approvals.as_view(), "approvals", GET=counted(*READERS)),
    route("approvals/<uuid:approval_id>", ApprovalDetail.as_view(), "approval", GET=counted(*READERS)),
    route("approvals/<uuid:approval_id>:approve", Approve.as_view(), "approval-approve", POST=DECIDE),
    route("approvals/<uuid:approval_id>:deny", Deny.as_view(), "approval-deny", POST=DECIDE),
]
