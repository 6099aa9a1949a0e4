"""Decides what somebody asks of the log, by REST or on a page: events, an export, a verification, an export's file.

Each leaves its event. What is asked for is checked already; what may not be is refused here.
"""

import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from audit import jobs
from audit.bodies import said_of
from audit.downloads import Range
from audit.epochs import Log, log_at
from audit.export import bundle, parquet
from audit.export.making import told
from audit.models import Job
from audit.proving import checkpoint_now
from audit.selectors import actor_said
from audit.services import record
from kvconsole.infra.access import Principal
from kvconsole.infra.rest import Problem
from kvconsole.infra.sql import PLATFORM


class Taken(NamedTuple):
    """A part of an export's file that somebody takes away."""

    path: Path
    part: Range
    name: str
    sha256: str


def searched(asked: Mapping[str, Any], count: int, *, actor: Principal) -> UUID:
    """The search is an event, and this is its id; what somebody typed is sealed in it, and of a person who was named
    only who that is.

    It is sealed for who searched: a name would outlive the keys of the person who has it.

    Args:
        asked: the filter, as it was asked for.
        count: so many events came.
        actor: who reads them.
    """
    span = {name: asked[name] for name in ("from", "to") if asked.get(name)}
    named = {name: asked[name] for name in ("actor", "object", "request_id") if asked.get(name)}
    if "actor" in named:
        named["actor"] = actor_said(named["actor"])
    event = record(
        event_type="log.searched",
        outcome="success",
        actor=actor,
        tenant_id=actor.tenant_id,
        object_kind="log",
        object_id="",
        body={"range": span, "filters": told({k: v for k, v in asked.items() if k not in span}), "records": count},
        pii={"filters": named} if named else None,
    )
    return event.event_id


def export_request(fields: Mapping[str, Any], *, actor: Principal, now: datetime) -> Job:
    """A signed bundle of events will be made; of a tenant's people: of the tenant's own events.

    Args:
        fields: as `bodies.ExportIn` validates them.
        actor: who asks.
        now: aware.

    Raises:
        Problem: format-unavailable, person-needed, step-up-required, validation-failed, not-signed, too-many-jobs or
            exports-unconfigured; nothing was asked for.
    """
    filters = dict(fields.get("filters") or {})
    if fields["format"] == "parquet" and not parquet.available():
        raise Problem("format-unavailable", "pyarrow is not installed: the extra kv-console[parquet].")
    _may_disclose(actor, fields["personal_data"])
    filters["actor"] = actor_said(filters.get("actor", ""))
    said, log = said_of(dict(fields), filters), log_at(fields.get("epoch"))
    size = _size(fields.get("size"), log)
    params = {name: fields[name] for name in ("format", "proofs", "personal_data")}
    params |= {"filters": said, "size": size, "epoch": log.number, "previous": _previous(actor, size, log)}
    span = {name: said[name] for name in ("from", "to") if name in said}
    words = {name: value for name, value in said.items() if name not in span}
    body = {"range": span, "filters": told(words), "formats": [fields["format"]], "size": size}
    body |= {name: fields[name] for name in ("proofs", "personal_data")}
    return jobs.job_request(
        kind="export", params=params, actor=actor, now=now, event_type="export.requested", body=body
    )  # fmt: skip


def verification_request(*, actor: Principal, now: datetime) -> Job:
    """All of the log will be hashed again; the first divergence is named.

    Raises:
        Problem: not-signed, too-many-jobs or exports-unconfigured; nothing was asked for.
    """
    size = {"size": checkpoint_now().size}
    return jobs.job_request(
        kind="verify", params=size, actor=actor, now=now, event_type="verification.requested", body=size
    )  # fmt: skip


def export_take(job: Job, asked: str, *, actor: Principal) -> Taken:
    """The file of an export, or the range that was asked for; that it is taken away is an event.

    Raises:
        Problem: not-found, job-open, export-gone or range-not-satisfiable; nobody took anything.
    """
    if job.kind != "export":
        raise Problem("not-found")
    if job.state in jobs.OPEN:
        raise Problem("job-open", retry_after_seconds=2)
    path = jobs.file_of(job.id)
    if job.state != "done" or not path.exists():
        raise Problem("export-gone")
    part = Range.of(asked, path.stat().st_size)
    record(
        event_type="export.downloaded",
        outcome="success",
        actor=actor,
        tenant_id=actor.tenant_id,
        object_kind="job",
        object_id=str(job.id),
        body={"export": str(job.id), "format": job.params["format"], "bytes": part.length},
    )
    return Taken(path, part, export_name(job), job.result["sha256"])


def export_name(job: Job) -> str:
    """What the file of an export is called where it is taken to."""
    return f"kvc-audit-{job.params['size']}-{str(job.id)[-12:]}.zip"


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
