"""Wake-ups of the tenants app: each reads its rows and ignores what is not due. Imported by `kvconsole.celery` only."""

from datetime import UTC, datetime
from uuid import UUID

from celery import shared_task  # type: ignore[import-untyped]

from tenants import authentication, services


@shared_task(name="tenants.approval_decided")  # type: ignore[untyped-decorator]
def approval_decided(group: str) -> None:
    """What was decided on the share group is in force."""
    services.decision_apply(group_id=UUID(group), now=datetime.now(UTC))


@shared_task(name="tenants.share_groups_sweep")  # type: ignore[untyped-decorator]
def share_groups_sweep() -> None:
    """Share groups that are over have ended."""
    services.share_groups_sweep(now=datetime.now(UTC))


@shared_task(name="tenants.shred_epoch_turn")  # type: ignore[untyped-decorator]
def shred_epoch_turn() -> None:
    """A shred epoch of the key store that has lasted its time is over."""
    services.shred_epoch_turn(now=datetime.now(UTC))


@shared_task(name="tenants.sessions_sweep")  # type: ignore[untyped-decorator]
def sessions_sweep() -> None:
    """Of sessions that are over nothing is kept."""
    authentication.sessions_sweep(now=datetime.now(UTC))
