"""Wake-ups of the audit app: each reads its rows and ignores what is not due. Imported by `kvconsole.celery` only."""

import os
import socket
import threading
from datetime import UTC, datetime
from uuid import UUID

from celery import shared_task  # type: ignore[import-untyped]

from audit import idempotency, jobs, retention, spool, webhooks, work

HOLDER = f"{socket.gethostname()}/{os.getpid()}"


@shared_task(name="audit.idempotency_sweep")  # type: ignore[untyped-decorator]
def idempotency_sweep() -> None:
    """Answers that no repetition may have any more are gone."""
    idempotency.sweep(now=datetime.now(UTC))


@shared_task(name="audit.spool_take_in")  # type: ignore[untyped-decorator]
def spool_take_in() -> None:
    """What waited on disk while PostgreSQL was away is in the trail."""
    spool.take_in()


@shared_task(name="audit.retention_decided")  # type: ignore[untyped-decorator]
def retention_decided(object_id: str) -> None:
    """Bodies go whose going was approved."""
    retention.retentions_due()


@shared_task(name="audit.retentions_due")  # type: ignore[untyped-decorator]
def retentions_due() -> None:
    """Bodies go whose going was approved, also where nobody was woken."""
    retention.retentions_due()


@shared_task(name="audit.job_run")  # type: ignore[untyped-decorator]
def job_run(job: str) -> None:
    """An export or verification goes on, if nobody else is at it."""
    work.job_run(UUID(job), holder=f"{HOLDER}/{threading.get_ident()}", now=datetime.now(UTC))


@shared_task(name="audit.jobs_due")  # type: ignore[untyped-decorator]
def jobs_due() -> None:
    """Jobs that nobody was woken for, or that somebody left, go on."""
    for job in jobs.jobs_due(now=datetime.now(UTC)):
        job_run.delay(str(job))


@shared_task(name="audit.jobs_sweep")  # type: ignore[untyped-decorator]
def jobs_sweep() -> None:
    """Exports that are too old are gone."""
    jobs.jobs_sweep(now=datetime.now(UTC))


@shared_task(name="audit.webhooks_sweep")  # type: ignore[untyped-decorator]
def webhooks_sweep() -> None:
    """What the log records is on its way to webhooks, and what is due is sent."""
    webhooks.sweep(now=datetime.now(UTC))
