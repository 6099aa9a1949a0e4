"""REST of exports and verifications: asked for, looked at, cancelled, taken away."""

import time
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

from audit import jobs, selectors
from audit.bodies import ExportIn, JobOut, job_answer, said_of
from audit.downloads import AsItIs, Range, file_answer
from audit.epochs import Log, log_at
from audit.export import bundle, parquet
from audit.export.making import told
from audit.models import Job
from audit.proving import checkpoint_now
from audit.services import record
from kvconsole.infra.access import Principal, audited, counted, route
from kvconsole.infra.calls import PROOF, call, caller, page_of
from kvconsole.infra.rest import Problem, validate_only
from kvconsole.infra.sql import PLATFORM
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
        actor, filters = caller(), dict(fields.get("filters") or {})
        if fields["format"] == "parquet" and not parquet.available():
            raise Problem("format-unavailable", "pyarrow is not installed: the extra kv-console[parquet].")
        _may_disclose(actor, fields["personal_data"])
        filters["actor"] = selectors.actor_said(filters.get("actor", ""))
        said, log = said_of(fields, filters), log_at(fields.get("epoch"))
        size = _size(fields.get("size"), log)
        params = {name: fields[name] for name in ("format", "proofs", "personal_data")}
        params |= {"filters": said, "size": size, "epoch": log.number, "previous": _previous(actor, size, log)}
        span = {name: said[name] for name in ("from", "to") if name in said}
        words = {name: value for name, value in said.items() if name not in span}
        body = {"range": span, "filters": told(words), "formats": [fields["format"]], "size": size}
        body |= {name: fields[name] for name in ("proofs", "personal_data")}
        return _accepted("export", params, "export.requested", body, rehearsal=validate_only(request))


class Verify(APIView):
    """Verifications."""

    @call("audit_verify", answer=JobOut, status=202, operation=True, refusals=JOB_REFUSALS)
    def post(self, request: Request) -> Response:
        """All of the log will be hashed again; the first divergence is named."""
        size = checkpoint_now().size
        return _accepted(
            "verify", {"size": size}, "verification.requested", {"size": size}, rehearsal=validate_only(request)
        )


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
        actor, job = caller(), _job(job_id)
        if job.kind != "export":
            raise Problem("not-found")
        if job.state in jobs.OPEN:
            raise Problem("job-open", retry_after_seconds=2)
        path = jobs.file_of(job.id)
        if job.state != "done" or not path.exists():
            raise Problem("export-gone")
        part = Range.of(request.headers.get("Range", ""), path.stat().st_size)
        record(
            event_type="export.downloaded",
            outcome="success",
            actor=actor,
            tenant_id=actor.tenant_id,
            object_kind="job",
            object_id=str(job.id),
            body={"export": str(job.id), "format": job.params["format"], "bytes": part.length},
        )
        name = f"kvc-audit-{job.params['size']}-{str(job.id)[-12:]}.zip"
        return file_answer(request, path, part, name=name, sha256=job.result["sha256"])


def _accepted(kind: str, params: dict[str, Any], event_type: str, body: dict[str, Any], *, rehearsal: bool) -> Response:
    job = jobs.job_request(
        kind=kind, params=params, actor=caller(), now=datetime.now(UTC), event_type=event_type, body=body
    )  # fmt: skip
    headers = {"Location": f"/api/v1/audit/jobs/{job.id}", "Retry-After": "1"}
    return Response(job_answer(job), status=202, headers={} if rehearsal else headers)


def _size(wanted: int | None, log: Log) -> int:
    """Size of the checkpoint of the log that an export is made under."""
    if wanted is None:
        return checkpoint_now(log).size
    if bundle.checkpoint_note(wanted, log) is None:
        errors = [{"pointer": "/size", "code": "invalid", "detail": "No checkpoint of this size was signed."}]
        raise Problem("validation-failed", errors=errors)
    return wanted


def _previous(actor: Principal, size: int, log: Log) -> dict[str, Any] | None:
    """The newest bundle of the same place before this size, or of the log before: the next one shows that the log only
    grew since, or what was kept of it."""
    rows = Job.objects.filter(tenant_id=actor.tenant_id or PLATFORM, kind="export", state__in=("done", "removed"))
    rows = rows.filter(params__proofs=True).order_by("-result__size", "id")
    found = rows.filter(result__epoch=log.number, result__size__lt=size).values_list("result", flat=True).first()
    if found is None and log.number > 1:
        found = rows.filter(result__epoch=log.number - 1).values_list("result", flat=True).first()
    return {name: found[name] for name in ("manifest_sha256", "size", "epoch")} if found else None


def _may_disclose(actor: Principal, wanted: bool) -> None:
    """Personal data leaves the console only for a person who has just proved who they are."""
    if wanted and actor.kind != "user":
        raise Problem("person-needed")
    if wanted and not actor.stepped_up(time.time()):
        raise Problem("step-up-required")


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
