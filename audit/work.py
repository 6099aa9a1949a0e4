"""Decides how a worker does one job of the log: takes it, goes on where the last one stopped, and ends or leaves it.

Called by `audit.tasks` with the job's id; what is not due is ignored. A job that was left is found by `jobs_due`.
"""

import logging
import shutil
from datetime import UTC, datetime
from uuid import UUID

from audit import jobs, verification
from audit.export import making
from audit.export.parts import TooLarge
from audit.export.records import Missing
from audit.models import Job
from audit.tree import LogTorn
from kvconsole.infra import leases

WAIT_SECONDS = 10.0
"""What a job waits for is asked for again after so long."""
_log = logging.getLogger("kvc.audit")


def job_run(job_id: UUID, *, holder: str, now: datetime) -> str:
    """What became of the job: `done`, `more`, `ended`, `not-due`, or the code of what it waits for."""
    taken = jobs.job_take(job_id, holder=holder, now=now)
    if taken is None:
        return "not-due"
    job, lease = taken
    if job.cancel_asked:
        return _end(job, lease, "cancelled")
    try:
        outcome = (making.Making(job, lease) if job.kind == "export" else verification.Verification(job, lease)).run()
    except (making.Stopped, verification.Stopped):
        return _end(job, lease, "cancelled") if _cancelled(job) else "ended"
    except TooLarge:
        return _end(job, lease, "failed", "export-too-large")
    except (Missing, LogTorn) as e:
        _log.error("job %s: %s", job.id, e)
        return _end(job, lease, "failed", "log-torn")
    except Exception:
        _log.exception("job %s stands still", job.id)
        jobs.job_wait(job, lease, now=datetime.now(UTC), seconds=WAIT_SECONDS, problem="internal")
        return "internal"
    if outcome == "done":
        _clean(job)
    elif outcome == "more":
        leases.release(lease)
        jobs.wake(job.id)
    elif making.seconds_left(job, now) < 0:
        return _end(job, lease, "failed", outcome)
    else:
        jobs.job_wait(job, lease, now=datetime.now(UTC), seconds=WAIT_SECONDS, problem=outcome)
    return outcome


def _cancelled(job: Job) -> bool:
    return Job.objects.filter(id=job.id, cancel_asked=True).exists()


def _end(job: Job, lease: leases.Lease, state: str, problem: str = "") -> str:
    if jobs.job_end(job, lease, now=datetime.now(UTC), state=state, problem=problem):
        _clean(job)
        jobs.file_of(job.id).unlink(missing_ok=True)
    return "ended"


def _clean(job: Job) -> None:
    if job.kind == "export":
        shutil.rmtree(jobs.directory() / str(job.id), ignore_errors=True)
