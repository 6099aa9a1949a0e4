"""Wake-ups of the audit app: each reads its rows and ignores what is not due. Imported by `kvconsole.celery` only."""

from datetime import UTC, datetime

from celery import shared_task  # type: ignore[import-untyped]

from audit import idempotency


@shared_task(name="audit.idempotency_sweep")  # type: ignore[untyped-decorator]
def idempotency_sweep() -> None:
    """Answers that no repetition may have any more are gone."""
    idempotency.sweep(now=datetime.now(UTC))
