"""REST of how the log goes on: what was found amiss in it, and the end of one log for the next."""

from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.urls import URLPattern
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from audit import epochs, explaining, selectors
from audit.api_events import STATE_READERS
from audit.api_v1 import READERS, ApprovalOut, approval_answer
from audit.bodies import Facts
from audit.services import portable
from kvconsole.infra.access import audited, counted, route
from kvconsole.infra.calls import PROOF, call, caller, page_of
from kvconsole.infra.rest import Problem, Strict
from kvconsole.infra.statements import Rows

STATES = ("open", "closed")
STATE = OpenApiParameter("state", str, enum=list(STATES), description="Only those of this state")
COLUMNS = ("id", "at", "kind", "subject", "first_index", "detail", "seen_at", "resolved_at")
LISTED = {
    state: Rows(partial(selectors.findings, state), key=("id",), newest=True, columns=COLUMNS)
    for state in ("", *STATES)
}


class FindingOut(serializers.Serializer[Any]):
    """Something that is not as it must be. `closed_at` null: it still is so. `index`: of the first leaf it concerns.
    `acknowledged`: the event by which an auditor said last that it was looked into; what it says is in that event."""

    id = serializers.CharField()
    kind = serializers.CharField()
    about = serializers.CharField()
    index = serializers.IntegerField(allow_null=True)
    detail = serializers.CharField()
    first_seen = serializers.DateTimeField()
    last_seen = serializers.DateTimeField()
    closed_at = serializers.DateTimeField(allow_null=True)
    acknowledged = serializers.UUIDField(allow_null=True)


class NoteIn(Strict):
    """Body of POST /audit/findings/{id}:acknowledge. `note`: in one's own words; it is sealed in the event."""

    note = serializers.CharField(max_length=500)


class LogEndIn(Strict):
    """Body of POST /audit/epochs. `note`: in one's own words; it is sealed in the event."""

    reason = serializers.ChoiceField(epochs.REASONS)
    note = serializers.CharField(max_length=500, required=False, allow_blank=True, default="")


class LogOut(serializers.Serializer[Any]):
    """One log."""

    number = serializers.IntegerField()
    origin = serializers.CharField(allow_blank=True)
    size = serializers.IntegerField()
    root = serializers.CharField()  # type: ignore[assignment]
    ended = serializers.BooleanField()
    began_at = serializers.DateTimeField(allow_null=True)
    reason = serializers.CharField(allow_blank=True)
    approval = serializers.UUIDField(allow_null=True)
    lost = serializers.IntegerField()
    record = serializers.CharField(allow_blank=True)


class LogsOut(serializers.Serializer[Any]):
    """Logs that went on after each other, the present one last. `size` of one that ended: what was kept of it; `lost`:
    leaves of the one before that were signed and are not there under its name; `record`: what the keys of both signed.
    `asked`: requests that the present one ends, newest first."""

    items = LogOut(many=True)
    asked = ApprovalOut(many=True)


class OrderOut(serializers.Serializer[Any]):
    """What is brought to the signer's host in a file: `manage.py signer --new-epoch FILE`."""

    v = serializers.IntegerField()
    origin = serializers.CharField()
    reason = serializers.ChoiceField(epochs.REASONS)
    approval = serializers.UUIDField()
    approvers = serializers.ListField(child=serializers.CharField())
    kept = Facts()


class Findings(APIView):
    """What was found amiss in the log."""

    @call("audit_findings_list", answer=FindingOut, page=True, query=[STATE], refusals=("validation-failed",))
    def get(self, request: Request) -> Response:
        """A page of findings, newest first; one that was explained later is closed, and stays readable."""
        state = request.query_params.get("state", "")
        if state not in ("", *STATES):
            errors = [{"pointer": "/state", "code": "invalid", "detail": f"One of {', '.join(STATES)}."}]
            raise Problem("validation-failed", errors=errors)
        return page_of(
            LISTED[state], request, name=f"audit.findings.{state}", item=finding_answer, views=explaining.explained
        )


class FindingDetail(APIView):
    """One finding."""

    @call("audit_findings_get", answer=FindingOut)
    def get(self, request: Request, finding_id: int) -> Response:
        """The finding."""
        return Response(finding_answer(explaining.finding(finding_id)))


class FindingAcknowledge(APIView):
    """Somebody looked into it."""

    @call(
        "audit_findings_acknowledge", body=NoteIn, answer=FindingOut,
        refusals=("finding-closed", "person-needed", "unstorable-text"),
    )  # fmt: skip
    def post(self, request: Request, fields: dict[str, Any], finding_id: int) -> Response:
        """That an auditor looked into it is an event; it stays open for as long as it is so."""
        event = explaining.finding_acknowledge(finding_id=finding_id, note=fields["note"], actor=caller())
        found = explaining.finding(finding_id)
        return Response(finding_answer(found._replace(acknowledged=event)))


class Epochs(APIView):
    """Logs that went on after each other."""

    @call("audit_epochs_list", answer=LogsOut)
    def get(self, request: Request) -> Response:
        """All logs, the present one last, and who asked that it ends."""
        items = [log._asdict() for log in epochs.logs()]
        hidden = [{name: value for name, value in one.items() if name != "key"} for one in items]
        asked = [approval_answer(one) for one in epochs.epochs_asked()]
        return Response({"items": portable(hidden), "asked": asked})

    @call(
        "audit_epochs_create", body=LogEndIn, answer=ApprovalOut, status=202, operation=True,
        refusals=("not-signed", "epoch-asked", *PROOF),
    )  # fmt: skip
    def post(self, request: Request, fields: dict[str, Any]) -> Response:
        """It waits for a second person that the present log ends and another one goes on after it."""
        made = epochs.epoch_request(
            reason=fields["reason"], note=fields["note"], actor=caller(), now=datetime.now(UTC)
        )  # fmt: skip
        return Response(approval_answer(made), status=202)


class EpochOrder(APIView):
    """The order of a new log."""

    @call("audit_epochs_order_get", answer=OrderOut, refusals=("epoch-not-approved",))
    def get(self, request: Request, approval_id: UUID) -> Response:
        """The order, once it was approved; nothing in it is secret."""
        return Response(epochs.epoch_order(approval_id))


def finding_answer(found: explaining.Explained) -> dict[str, Any]:
    """A finding, as `FindingOut` describes it."""
    row = found.row
    answer = {
        "id": str(row.id), "kind": row.kind, "about": row.subject, "index": row.first_index, "detail": row.detail,
        "first_seen": row.at, "last_seen": row.seen_at, "closed_at": row.resolved_at,
        "acknowledged": found.acknowledged,
    }  # fmt: skip
    return dict(portable(answer))


urlpatterns: list[URLPattern] = [
    route("audit/findings", Findings.as_view(), "audit-findings", GET=counted(*STATE_READERS)),
    route("audit/findings/<int:finding_id>", FindingDetail.as_view(), "audit-finding", GET=counted(*STATE_READERS)),
    route(
        "audit/findings/<int:finding_id>:acknowledge", FindingAcknowledge.as_view(), "audit-finding-acknowledge",
        POST=audited("auditor", person=True),
    ),
    route(
        "audit/epochs", Epochs.as_view(), "audit-epochs",
        GET=counted(*READERS), POST=audited("operator", step_up=True, scope="audit:destroy"),
    ),
    route("audit/epochs/<uuid:approval_id>/order", EpochOrder.as_view(), "audit-epoch-order", GET=counted(*READERS)),
]  # fmt: skip
