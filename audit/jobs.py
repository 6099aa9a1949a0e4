"""Decides the life of long work over the log: who asked, who works on it now, how far it is, and when its file goes.

PostgreSQL holds all of it; a worker that is killed leaves a lease that ends, and the next one goes on from `position`.
REST and pages ask for jobs; `audit.work` does them.
"""

import os
import shutil
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connections, transaction
from django.db.models import F, Q
from django.utils.module_loading import import_string

from audit.models import Job
from audit.services import record
from audit.standing import need_log
from kvconsole.infra import leases
from kvconsole.infra.access import FLEET_PLANE, Principal, plane
from kvconsole.infra.rest import Problem, add_codes
from kvconsole.infra.sql import PLATFORM

KINDS = ("export", "verify")
OPEN = ("queued", "running")
STATES = (*OPEN, "done", "failed", "cancelled", "removed")
TASK = "audit.job_run"
MOST_OPEN = 4
"""Of one tenant (or the platform's) at a time: each reads much of the log."""
LEASE_SECONDS = 120.0
KEPT = timedelta(days=90)
"""How long the row of a job is there after its file."""
add_codes(
    {
        "not-sequenced": (409, "The event is not in the log yet"),
        "not-signed": (409, "No signed checkpoint holds it yet"),
        "too-many-jobs": (409, "As many exports and verifications as may be are at work"),
        "job-open": (409, "The job is still at work"),
        "job-over": (409, "The job has ended"),
        "export-gone": (410, "The export's file was removed"),
        "export-too-large": (422, "The export would be larger than 64 GiB"),
        "log-torn": (409, "Something in the log is missing"),
        "format-unavailable": (422, "The console cannot make this format"),
        "exports-unconfigured": (503, "The console has no place for exports"),
        "range-not-satisfiable": (416, "The file has no such bytes"),
    }
)


def job_request(
    *, kind: str, params: Mapping[str, Any], actor: Principal, now: datetime, event_type: str, body: Mapping[str, Any],
    pii: Mapping[str, Any] | None = None,
) -> Job:  # fmt: skip
    """The work is asked for, the trail says so, and a worker is woken after commit.

    Args:
        kind: of `KINDS`.
        params: everything that it depends on; it does not change.
        actor: who asks; a tenant's sees its own events alone.
        event_type, body, pii: the event of the request.

    Raises:
        Problem: too-many-jobs, exports-unconfigured, or, for an export, audit-unavailable; nothing was asked for.
    """
    if kind == "export":
        need_log()
    directory()
    tenant = actor.tenant_id or PLATFORM
    if Job.objects.filter(tenant_id=tenant, state__in=OPEN).count() >= MOST_OPEN:
        raise Problem("too-many-jobs", retry_after_seconds=30)
    with transaction.atomic(using=plane()):
        job = Job.objects.create(
            tenant_id=tenant,
            kind=kind,
            params=dict(params),
            requester=_requester(actor),
            created_at=now,
            expires_at=now + timedelta(days=settings.EXPORT_DAYS),
        )
        record(
            event_type=event_type,
            outcome="success",
            actor=actor,
            tenant_id=actor.tenant_id,
            object_kind="job",
            object_id=str(job.id),
            body=body,
            pii=pii,
        )
        transaction.on_commit(lambda: wake(job.id), using=plane(), robust=True)
    return job


def job_cancel(*, job_id: UUID, actor: Principal) -> Job:
    """The work ends at its next step, and its files go.

    Raises:
        Problem: not-found or job-over; nothing was done.
    """
    with transaction.atomic(using=plane()):
        job = Job.objects.filter(id=job_id).first()
        if job is None:
            raise Problem("not-found")
        if job.state not in OPEN:
            raise Problem("job-over")
        Job.objects.filter(id=job_id).update(cancel_asked=True)
        record(
            event_type="job.cancelled",
            outcome="success",
            actor=actor,
            tenant_id=actor.tenant_id,
            object_kind="job",
            object_id=str(job.id),
            body={"kind": job.kind},
        )
        transaction.on_commit(lambda: wake(job_id), using=plane(), robust=True)
    job.cancel_asked = True
    return job


def wake(job_id: UUID) -> None:
    """A hint to a worker; `jobs_due` finds the job anyway."""
    import_string(settings.TASK_SENDER)(TASK, str(job_id))


def jobs_due(*, now: datetime) -> list[UUID]:
    """Open jobs that nobody works on. Index: audit_job_state."""
    free = Job.objects.filter(state__in=OPEN).filter(Q(lease_until=None) | Q(lease_until__lte=now))
    return list(free.order_by("created_at").values_list("id", flat=True)[:50])


def job_take(job_id: UUID, *, holder: str, now: datetime) -> tuple[Job, leases.Lease] | None:
    """The job and the lease under which its caller works on it; None: it is over, or somebody else does."""
    with transaction.atomic(using=FLEET_PLANE):
        lease = leases.take("audit_job", job_id, holder=holder, seconds=LEASE_SECONDS, now=now)
        job = Job.objects.filter(id=job_id, state__in=OPEN).first() if lease else None
        if lease is None or job is None:
            if lease is not None:
                leases.release(lease)
            return None
        if job.state == "queued":
            Job.objects.filter(id=job_id).update(state="running", started_at=now)
            job.state, job.started_at = "running", now
    return job, lease


def job_keep(job: Job, lease: leases.Lease, *, now: datetime, **fields: Any) -> bool:
    """The job is so far, if the lease still holds; it lasts from `now` again.

    Returns:
        Whether to go on: False when somebody else has it, or it is to be cancelled.
    """
    with transaction.atomic(using=FLEET_PLANE):
        until = now + timedelta(seconds=LEASE_SECONDS)
        rows = Job.objects.filter(id=job.id, lease_token=lease.token, state="running")
        if not rows.update(lease_until=until, **fields):
            return False
        asked = Job.objects.filter(id=job.id).values_list("cancel_asked", flat=True).get()
    for name, value in fields.items():
        setattr(job, name, value)
    job.cancel_asked = asked
    return not asked


def job_end(job: Job, lease: leases.Lease, *, now: datetime, state: str, problem: str = "", **fields: Any) -> bool:
    """The job has ended so, if the lease still holds; in the caller's transaction with its event, if any."""
    rows = Job.objects.filter(id=job.id, lease_token=lease.token, state__in=OPEN)
    return bool(rows.update(state=state, done_at=now, problem=problem, lease_until=None, **fields))


def job_wait(job: Job, lease: leases.Lease, *, now: datetime, seconds: float, problem: str) -> None:
    """Nobody works on it for a moment: what it waits for is not there. `problem` says what."""
    rows = Job.objects.filter(id=job.id, lease_token=lease.token)
    rows.update(problem=problem, lease_until=now + timedelta(seconds=seconds), lease_token=F("lease_token") + 1)


def jobs_sweep(*, now: datetime) -> int:
    """Files of exports that are too old are gone, and so are rows that nobody needs; how many jobs that was.

    Files without a job that could want them go too.
    """
    base = directory()
    old = list(Job.objects.filter(state="done", kind="export", expires_at__lte=now)[:500])
    for job in old:
        _remove(base, job.id)
        Job.objects.filter(id=job.id).update(state="removed")
    ended = Job.objects.filter(state__in=("failed", "cancelled"), kind="export")
    for job_id in list(ended.filter(position__has_key="at").values_list("id", flat=True)[:500]):
        _remove(base, job_id)
        Job.objects.filter(id=job_id).update(position={})
    Job.objects.exclude(state__in=(*OPEN, "done")).filter(created_at__lte=now - KEPT).delete()
    _strays(base, now)
    return len(old)


def directory() -> Path:
    """Where exports are made and kept: ours alone.

    Raises:
        Problem: exports-unconfigured.
    """
    if not settings.EXPORT_DIR:
        raise Problem("exports-unconfigured", "KVC_EXPORT_DIR is not set.")
    path = Path(settings.EXPORT_DIR)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = path.stat().st_mode
    except OSError as e:
        raise Problem("exports-unconfigured", f"The directory of exports: {e.strerror}.") from e
    if mode & 0o077:
        raise Problem("exports-unconfigured", "The directory of exports is open to others: it must have mode 0700.")
    return path


def work_directory(job_id: UUID) -> Path:
    """Where the parts of one export are while it is made."""
    path = directory() / str(job_id)
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def file_of(job_id: UUID) -> Path:
    """The finished export."""
    return directory() / f"{job_id}.zip"


def principal_of(job: Job) -> Principal:
    """Who asked, as the actor of what is done for them."""
    who = job.requester
    return Principal(
        kind=who["kind"],
        id=who["id"],
        roles=frozenset(who["roles"]),
        tenant_id=None if job.tenant_id == PLATFORM else job.tenant_id,
        holder=who["holder"],
        user_id=who["user_id"],
    )


def reader_of(job: Job) -> Principal:
    """As whom the log is read for it: the database itself shows a tenant's job the tenant's events only."""
    tenant = None if job.tenant_id == PLATFORM else job.tenant_id
    return Principal(kind="system", id="worker", name="worker", tenant_id=tenant)


def _requester(actor: Principal) -> dict[str, Any]:
    return {
        "kind": actor.kind,
        "id": actor.id,
        "roles": sorted(actor.roles),
        "holder": actor.holder,
        "user_id": actor.user_id,
    }


def _remove(base: Path, job_id: UUID) -> None:
    (base / f"{job_id}.zip").unlink(missing_ok=True)
    shutil.rmtree(base / str(job_id), ignore_errors=True)


def _strays(base: Path, now: datetime) -> None:
    """What a crash left behind: nobody's, and older than any job."""
    limit = (now - timedelta(days=settings.EXPORT_DAYS) - KEPT).timestamp()
    for entry in os.scandir(base):
        if entry.stat(follow_symlinks=False).st_mtime < limit:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)


def closed(using: str = FLEET_PLANE) -> None:
    """The thread's connection is given back between two steps of long work."""
    connections[using].close_if_unusable_or_obsolete()
