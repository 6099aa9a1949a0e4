"""Wake-ups of routing: each reads its rows and ignores what is not due. Imported by `kvconsole.celery` only."""

from datetime import UTC, datetime

from celery import shared_task  # type: ignore[import-untyped]

from routing import hint_watch, hints, lost_hits


@shared_task(name="routing.lost_hits_tally")  # type: ignore[untyped-decorator]
def lost_hits_tally() -> None:
    """Outcomes of decisions are in the ledger of lost hits."""
    lost_hits.lost_hits_tally(now=datetime.now(UTC))


@shared_task(name="routing.announcements_judge")  # type: ignore[untyped-decorator]
def announcements_judge() -> None:
    """What was announced and is over came, was missed, or was not watched."""
    hint_watch.announcements_judge(now=datetime.now(UTC))


@shared_task(name="routing.wishes_serve")  # type: ignore[untyped-decorator]
def wishes_serve() -> None:
    """Prefixes that tenants announced are being copied."""
    hints.wishes_serve(now=datetime.now(UTC))
