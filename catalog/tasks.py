"""Wake-ups of the catalog: each reads its rows and ignores what is not due. Imported by `kvconsole.celery` only."""

import os
import socket
import threading
from datetime import UTC, datetime
from uuid import UUID

from celery import shared_task  # type: ignore[import-untyped]

from catalog import epochs, fleet, holds, operation_starting, refused
from catalog.operations import engine, supplements
from catalog.rules import due

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


@shared_task(name="catalog.reconcile")  # type: ignore[untyped-decorator]
def reconcile(operation: str) -> None:
    """The operation is as far as it can be now."""
    engine.reconcile(operation_id=UUID(operation), holder=f"{HOLDER}/{threading.get_ident()}")


@shared_task(name="catalog.reconcile_due")  # type: ignore[untyped-decorator]
def reconcile_due() -> None:
    """Operations that nobody was woken for go on."""
    for operation in engine.operations_due(now=datetime.now(UTC)):
        reconcile.delay(str(operation))


@shared_task(name="catalog.operation_decided")  # type: ignore[untyped-decorator]
def operation_decided(operation: str) -> None:
    """What was decided on the operation is in force."""
    if operation_starting.decision_apply(operation_id=UUID(operation), now=datetime.now(UTC)):
        reconcile.delay(operation)


@shared_task(name="catalog.hold_decided")  # type: ignore[untyped-decorator]
def hold_decided(hold: str) -> None:
    """What was decided on the hold, or on its release, is in force."""
    holds.decision_apply(hold_id=UUID(hold.partition("/")[0]), now=datetime.now(UTC))


@shared_task(name="catalog.rules_due")  # type: ignore[untyped-decorator]
def rules_due() -> None:
    """What rules ask for is under way."""
    due.rules_due(now=datetime.now(UTC))


@shared_task(name="catalog.operations_sweep")  # type: ignore[untyped-decorator]
def operations_sweep() -> None:
    """What came back is erased again; decisions on holds are in force."""
    supplements.supplements_due(now=datetime.now(UTC))
    holds.holds_sweep(now=datetime.now(UTC))
