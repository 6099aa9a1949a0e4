"""Wake-ups of the catalog: each reads its rows and ignores what is not due. Imported by `kvconsole.celery` only."""

import os
import socket
from datetime import UTC, datetime
from uuid import UUID

from celery import shared_task  # type: ignore[import-untyped]

from catalog import epochs, fleet, refused

HOLDER = f"{socket.gethostname()}/{os.getpid()}"


@shared_task(name="catalog.command_send")  # type: ignore[untyped-decorator]
def command_send(step: str) -> None:
    """The order of this step is sent if it is due."""
    fleet.command_send(step=UUID(step), holder=HOLDER, now=datetime.now(UTC))


@shared_task(name="catalog.commands_due")  # type: ignore[untyped-decorator]
def commands_due() -> None:
    """Orders that nobody was woken for are sent."""
    for step in fleet.commands_due(now=datetime.now(UTC)):
        command_send.delay(str(step))


@shared_task(name="catalog.nodes_reconcile")  # type: ignore[untyped-decorator]
def nodes_reconcile() -> None:
    """Nodes are as they were heard."""
    fleet.nodes_reconcile(now=datetime.now(UTC))


@shared_task(name="catalog.attempts_tell")  # type: ignore[untyped-decorator]
def attempts_tell() -> None:
    """What nodes did not take is in the trail."""
    refused.attempts_tell(now=datetime.now(UTC))


@shared_task(name="catalog.epoch_bytes_tell")  # type: ignore[untyped-decorator]
def epoch_bytes_tell() -> None:
    """What the fleet holds of each model epoch is known."""
    epochs.epoch_bytes_tell(now=datetime.now(UTC))
