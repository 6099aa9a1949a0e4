"""REST of operations: plans, deletions, epochs that are over, what became of them, receipts and certificates."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.urls import URLPattern
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from audit import certifying
from audit.downloads import AsItIs
from catalog import operation_bodies as forms
from catalog import operation_views as views
from catalog.models import Operation, Plan
from catalog.operation_orders import operation_change
from catalog.operation_requests import DESTROY, deletion_request, plan_create
from catalog.operations.certificate import certificate_text, certificate_verdict
from kvconsole.infra.access import PUBLIC, Principal, audited, counted, route
from kvconsole.infra.calls import PROOF, call, caller, page_of
from kvconsole.infra.rest import Problem, etag, require_match, validate_only
from kvconsole.infra.statements import Rows
from kvcore import plans

READERS = ("viewer", "operator", "destructive-operator", "approver", "auditor", "tenant-admin", "tenant-member")
PLANNERS = ("operator", "destructive-operator", "approver", "tenant-admin")
DESTROYERS = ("destructive-operator", "tenant-admin")
SELECTING = ("not-separable", "selector-empty", "collateral-needed", "catalog-behind")
STARTING = (
    *("plan-expired", "plan-mismatch", "plan-started", "plan-drifted", "confirm-phrase-wrong", "reason-needed"),
    *("person-needed", "nothing-selected", "deletions-quota-exceeded", "audit-unavailable", "deny-window", *PROOF),
)
STATE = OpenApiParameter("state", str, enum=["open", *forms.ENDS], description="Only open ones, or of one end")
SAID = (
    OpenApiParameter("confirm_phrase", str, description="The phrase of the plan: from R2 on it has to be said"),
    OpenApiParameter("reason", str, description="Why; needed with the phrase"),
)
LISTED = Rows(views.operations, key=("id",), columns=("id",), newest=True)


class Plans(APIView):
    """Plans of deletions."""

    @call(
        "deletion_plans_create", body=forms.PlanIn, answer=forms.PlanOut, status=201, refusals=SELECTING
    )  # fmt: skip
    def post(self, request: Request, fields: dict[str, Any]) -> Response:
        """What the selector reaches now, frozen for 15 minutes."""
        row = plan_create(
            selector=selector_said(fields["selector"]), options=_options(fields), actor=caller(), now=datetime.now(UTC)
        )
        return Response(views.plan_view(row), status=201)


class PlanDetail(APIView):
    """One plan."""

    @call("deletion_plans_get", answer=forms.PlanOut)
    def get(self, request: Request, plan_id: UUID) -> Response:
        """The plan as it was frozen."""
        row = Plan.objects.filter(id=plan_id).first()
        if row is None:
            raise Problem("not-found")
        return Response(views.plan_view(row))


class Deletions(APIView):
    """Deletions."""

    @call(
        "deletions_create", body=forms.DeletionIn, answer=forms.OperationOut, status=202, operation=True,
        refusals=(*STARTING, *SELECTING),
    )  # fmt: skip
    def post(self, request: Request, fields: dict[str, Any]) -> Response:
        """The plan is carried out: fenced with this answer, or waiting for a second person."""
        return accepted(request, deletion_request(**fields, actor=caller(), now=datetime.now(UTC)))


class Subject(APIView):
    """What is cached of one subject of a tenant."""

    @call(
        "subjects_remove", answer=forms.OperationOut, status=202, query=SAID,
        refusals=(*STARTING, *SELECTING, "plan-needed"),
    )  # fmt: skip
    def delete(self, request: Request, slug: str, digest: str) -> Response:
        """Plan and deletion in one call, where the risk allows it; `digest` is the subject's keyed digest in hex."""
        return accepted(request, at_once({"tenant": slug, "subject": digest}, caller(), request.query_params))


class EpochRetire(APIView):
    """The end of a model's epoch."""

    @call(
        "epochs_retire", body=forms.RetireIn, answer=forms.OperationOut, status=202, operation=True,
        refusals=(*STARTING, *SELECTING, "conflict"),
    )  # fmt: skip
    def post(self, request: Request, fields: dict[str, Any], model: str, epoch: int) -> Response:
        """No request is resolved for the epoch any more, and what is cached of it goes: at once, or once drained."""
        drain = {"drain": True, "drain_seconds": float(fields["drain_seconds"])}
        actor, now = caller(), datetime.now(UTC)
        plan = plan_create(
            selector={"epoch": f"{model}/{epoch}"}, options=drain if fields["policy"] == "drain" else {}, actor=actor,
            now=now, kind="epoch",
        )  # fmt: skip
        found = deletion_request(
            plan_id=plan.id, plan_hash=bytes(plan.plan_hash).hex(), reason=fields["reason"], trigger="epoch",
            throttle=fields["throttle"], actor=actor, now=now,
        )  # fmt: skip
        return accepted(request, found)


class Operations(APIView):
    """Operations."""

    @call("operations_list", answer=forms.OperationOut, page=True, query=[STATE], refusals=("validation-failed",))
    def get(self, request: Request) -> Response:
        """A page of them, newest first."""
        state, now = request.query_params.get("state", ""), datetime.now(UTC)
        if state not in ("", "open", *forms.ENDS):
            raise Problem("validation-failed", errors=[{"pointer": "/state", "code": "invalid", "detail": state[:63]}])

        def whole(rows: list[Any]) -> list[dict[str, Any]]:
            found = Operation.objects.in_bulk([row.id for row in rows])
            return views.operations_shown([found[row.id] for row in rows if row.id in found], now=now)

        return page_of(
            LISTED, request, name=f"operations.{state}", views=whole, item=dict,
            filters={"open_": state == "open", "outcome": "" if state == "open" else state},
        )  # fmt: skip


class OperationDetail(APIView):
    """One operation."""

    @call("operations_get", answer=forms.OperationOut)
    def get(self, request: Request, operation_id: UUID) -> Response:
        """Where it stands. Its ETag is of what a PATCH replaces."""
        return _shown(_operation(operation_id))

    @call("operations_change", body=forms.ThrottleIn, answer=forms.OperationOut, refusals=("operation-over",))
    def patch(self, request: Request, fields: dict[str, Any], operation_id: UUID) -> Response:
        """Its throttle, in bytes a second and node; null = none."""
        operation = _operation(operation_id)
        require_match(request, _tag(operation))
        return _shown(_changed(operation, "throttled", throttle=fields["throttle"]))


class Pause(APIView):
    """A pause."""

    @call("operations_pause", answer=forms.OperationOut, refusals=("operation-over",))
    def post(self, request: Request, operation_id: UUID) -> Response:
        """Nothing more is sent; what is under way on nodes ends within seconds. The fence stays."""
        return _shown(_changed(_operation(operation_id), "paused"))


class Resume(APIView):
    """The end of a pause."""

    @call("operations_resume", answer=forms.OperationOut, refusals=("operation-over",))
    def post(self, request: Request, operation_id: UUID) -> Response:
        """It goes on."""
        return _shown(_changed(_operation(operation_id), "resumed"))


class Stop(APIView):
    """The end of an operation before it is done."""

    @call("operations_stop", answer=forms.OperationOut, refusals=("operation-over", *PROOF))
    def post(self, request: Request, operation_id: UUID) -> Response:
        """The erasing ends where it is. What was fenced stays unreachable; the namespaces are open as they are now."""
        return _shown(_changed(_operation(operation_id), "stopped"))


class Receipt(APIView):
    """One receipt."""

    @call("receipts_get", answer=forms.ReceiptOut)
    def get(self, request: Request, step_id: UUID) -> Response:
        """What a node answered to a step, as it signed it."""
        found = views.receipt_view(step_id)
        if found is None:
            raise Problem("not-found")
        return Response(found)


class Certificate(APIView):
    """One certificate."""

    content_negotiation_class = AsItIs

    @call("certificates_get", answer=forms.CertificateFileOut)
    def get(self, request: Request, certificate_id: UUID) -> HttpResponseBase:
        """The certificate as a file that can be checked without this console (`kvc-verify certificate`)."""
        found = certifying.certificate_of(certificate_id)
        if found is None:
            raise Problem("not-found")
        name = f'attachment; filename="kvc-certificate-{found.operation}.json"'
        headers = {"Content-Disposition": name, "ETag": f'"{found.body_hash.hex()}"'}
        return HttpResponse(certificate_text(found), content_type="application/json", headers=headers)


class CertificateVerify(APIView):
    """A look at a certificate."""

    @call(
        "certificates_verify", body=forms.CertificateIn, answer=forms.VerdictOut, public=True
    )  # fmt: skip
    def post(self, request: Request, fields: dict[str, Any]) -> Response:
        """Whether this console issued it and it is whole."""
        return Response(certificate_verdict(fields["certificate"]))


# --- shared ---------------------------------------------------------------------------------


def selector_said(said: dict[str, Any]) -> dict[str, Any]:
    """The selector as the rules have it: times in seconds."""
    found = dict(said)
    if found.get("older_than"):
        found["older_than"] = found["older_than"].timestamp()
    if "and" in found:
        found["and"] = [selector_said(part) for part in found["and"]]
    return found


def _options(fields: dict[str, Any]) -> dict[str, Any]:
    said = dict(fields.get("options") or {})
    said["share_groups"] = [str(group) for group in said.get("share_groups", ())]
    return said


def at_once(selector: dict[str, Any], actor: Principal, asked: Mapping[str, str]) -> Operation:
    """The deletion of what the selector reaches, in one call: up to R1, and with the phrase of its plan R2.

    Raises:
        Problem: plan-needed: its risk asks for more than this call says; and as `deletion_request`.
    """
    now, phrase = datetime.now(UTC), asked.get("confirm_phrase", "")
    plan = plan_create(selector=selector, options={}, actor=actor, now=now)
    if plan.risk not in (("R0", "R1", "R2") if phrase else ("R0", "R1")):
        reasons = ", ".join(plans.plan_from_json(plan.body).reasons)
        raise Problem(
            "plan-needed", f"Its risk is {plan.risk} ({reasons}): POST /api/v1/deletion-plans, then /deletions."
        )
    return deletion_request(
        plan_id=plan.id, plan_hash=bytes(plan.plan_hash).hex(), reason=asked.get("reason", "")[:500],
        confirm_phrase=phrase, actor=actor, now=now,
    )  # fmt: skip


def accepted(request: Request, operation: Operation) -> Response:
    """202, and where the operation is."""
    headers = {"Location": f"/api/v1/operations/{operation.id}", "Retry-After": "1"}
    body = views.operation_view(operation, now=datetime.now(UTC))
    return Response(body, status=202, headers={} if validate_only(request) else headers)


def _operation(operation_id: UUID) -> Operation:
    found = Operation.objects.filter(id=operation_id).first()
    if found is None:
        raise Problem("not-found")
    return found


def _changed(operation: Operation, change: str, throttle: int | None = None) -> Operation:
    return operation_change(
        operation=operation, change=change, actor=caller(), now=datetime.now(UTC), throttle=throttle
    )


def _tag(operation: Operation) -> str:
    return etag({"throttle": operation.throttle, "generation": operation.generation})


def _shown(operation: Operation) -> Response:
    body = views.operation_view(operation, now=datetime.now(UTC))
    return Response(body, headers={"ETag": _tag(operation)})


CHANGE = audited(*DESTROYERS, scope="deletions:write")
urlpatterns: list[URLPattern] = [
    route("deletion-plans", Plans.as_view(), "deletion-plans", POST=counted(*PLANNERS, scope="deletions:write")),
    route("deletion-plans/<uuid:plan_id>", PlanDetail.as_view(), "deletion-plan",
          GET=counted(*PLANNERS, scope="deletions:read")),
    route("deletions", Deletions.as_view(), "deletions", POST=CHANGE),
    route("tenants/<str:slug>/subjects/<str:digest>", Subject.as_view(), "subject", DELETE=CHANGE),
    route("epochs/<str:model>/<int:epoch>:retire", EpochRetire.as_view(), "epoch-retire",
          POST=audited("destructive-operator", step_up=True, scope=DESTROY)),
    route("operations", Operations.as_view(), "operations", GET=counted(*READERS)),
    route("operations/<uuid:operation_id>", OperationDetail.as_view(), "operation",
          GET=counted(*READERS), PATCH=CHANGE),
    route("operations/<uuid:operation_id>:pause", Pause.as_view(), "operation-pause", POST=CHANGE),
    route("operations/<uuid:operation_id>:resume", Resume.as_view(), "operation-resume", POST=CHANGE),
    route("operations/<uuid:operation_id>:stop", Stop.as_view(), "operation-stop",
          POST=audited(*DESTROYERS, step_up=True, scope=DESTROY)),
    route("receipts/<uuid:step_id>", Receipt.as_view(), "receipt", GET=counted(*READERS, scope="operations:read")),
    route("certificates/<uuid:certificate_id>.json", Certificate.as_view(), "certificate",
          GET=counted(*READERS, scope="operations:read")),
    route("certificates:verify", CertificateVerify.as_view(), "certificate-verify", POST=counted(PUBLIC)),
]  # fmt: skip
