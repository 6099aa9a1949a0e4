"""REST of exports and verifications: asked for, looked at, cancelled, taken away."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from django.urls import URLPattern
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from audit import jobs, selectors, wishes
from audit.bodies import ExportIn, JobOut, job_answer
from audit.downloads import AsItIs, file_answer
from audit.models import Job
from kvconsole.infra.access import audited, counted, route
from kvconsole.infra.calls import PROOF, call, caller, page_of
from kvconsole.infra.rest import Problem, validate_only
from kvconsole.infra.statements import Rows

MAKERS = ("auditor", "tenant-admin")
JOB_REFUSALS = ("not-signed", "too-many-jobs", "exports-unconfigured")
KIND = OpenApiParameter("kind", str, enum=list(jobs.KINDS), description="Only those of this kind")
LISTED = Rows(
    selectors.jobs, key=("id",), newest=True,
    columns=("id", "kind", "state", "cancel_asked", "params", "done", "total", "problem", "result", "created_at",
             "started_at", "done_at", "expires_at"),
)  # fmt: skip
RANGE = OpenApiParameter("Range", str, OpenApiParameter.HEADER, description="One range of bytes (RFC 9110)")


class Exports(APIView):
    """Exports."""

    @call(
        "audit_exports_create", body=ExportIn, answer=JobOut, status=202, operation=True,
        refusals=(*JOB_REFUSALS, "audit-unavailable", "format-unavailable", "person-needed", *PROOF),
    )  # fmt: skip
    def post(self, request: Request, fields: dict[str, Any]) -> Response:
        """A signed bundle of events will be made; of a tenant's people: of the tenant's own events."""
        job = wishes.export_request(fields, actor=caller(), now=datetime.now(UTC))
        return _accepted(job, rehearsal=validate_only(request))


class Verify(APIView):
    """Verifications."""

    @call("audit_verify", answer=JobOut, status=202, operation=True, refusals=JOB_REFUSALS)
    def post(self, request: Request) -> Response:
        """All of the log will be hashed again; the first divergence is named."""
        job = wishes.verification_request(actor=caller(), now=datetime.now(UTC))
        return _accepted(job, rehearsal=validate_only(request))


class Jobs(APIView):
    """Exports and verifications."""

    @call("audit_jobs_list", answer=JobOut, page=True, query=[KIND], refusals=("validation-failed",))
    def get(self, request: Request) -> Response:
        """A page of them, newest first."""
        kind = request.query_params.get("kind", "")
        if kind not in ("", *jobs.KINDS):
            errors = [{"pointer": "/kind", "code": "invalid", "detail": f"One of {', '.join(jobs.KINDS)}."}]
            raise Problem("validation-failed", errors=errors)
        return page_of(LISTED, request, name=f"audit.jobs.{kind}", item=job_answer, filters={"kind": kind})


class JobDetail(APIView):
    """One export or verification."""

    @call("audit_jobs_get", answer=JobOut)
    def get(self, request: Request, job_id: UUID) -> Response:
        """How far it is, and what came of it."""
        return Response(job_answer(_job(job_id)))


class JobCancel(APIView):
    """The end of work that nobody wants any more."""

    @call("audit_jobs_cancel", answer=JobOut, refusals=("job-over",))
    def post(self, request: Request, job_id: UUID) -> Response:
        """It ends at its next step; what was made of it goes."""
        return Response(job_answer(jobs.job_cancel(job_id=job_id, actor=caller())))


class Download(APIView):
    """The file of an export."""

    content_negotiation_class = AsItIs

    @call(
        "audit_jobs_download", answer=OpenApiTypes.BINARY, media="application/zip", query=[RANGE],
        refusals=("job-open", "export-gone", "range-not-satisfiable"),
        also={(206, "application/zip"): OpenApiResponse(OpenApiTypes.BINARY, description="That range")},
    )  # fmt: skip
    def get(self, request: Request, job_id: UUID) -> HttpResponseBase:
        """The bundle; each time somebody takes it is an event."""
        taken = wishes.export_take(_job(job_id), request.headers.get("Range", ""), actor=caller())
        return file_answer(request, taken.path, taken.part, name=taken.name, sha256=taken.sha256)


def _accepted(job: Job, *, rehearsal: bool) -> Response:
    headers = {"Location": f"/api/v1/audit/jobs/{job.id}", "Retry-After": "1"}
    return Response(job_answer(job), status=202, headers={} if rehearsal else headers)


def _job(job_id: UUID) -> Job:
    found = selectors.jobs().filter(id=job_id).first()
    if found is None:
        raise Problem("not-found")
    return found


urlpatterns: list[URLPattern] = [
    route("audit/exports", Exports.as_view(), "audit-exports", POST=audited(*MAKERS, scope="audit:export")),
    route("audit:verify", Verify.as_view(), "audit-verify", POST=audited(*MAKERS, scope="audit:verify")),
    route("audit/jobs", Jobs.as_view(), "audit-jobs", GET=counted(*MAKERS)),
    route("audit/jobs/<uuid:job_id>", JobDetail.as_view(), "audit-job", GET=counted(*MAKERS)),
    route(
        "audit/jobs/<uuid:job_id>:cancel", JobCancel.as_view(), "audit-job-cancel",
        POST=audited(*MAKERS, scope="audit:export"),
    ),
    route("audit/jobs/<uuid:job_id>/download", Download.as_view(), "audit-job-download", GET=audited(*MAKERS)),
]  # fmt: skip
