"""Decides what nodes are now (silent, lost, back) and sends the orders that are due.

Called by tasks; every function may be called at any time by anybody, twice or never: it looks at rows and acts on what
is due. A node that was not heard for 5 s is silent, after 10 s lost: then none of its owners is routable or drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from django.db import connections, transaction

from audit.services import Outcome, record
from catalog import agents
from catalog.models import Node, NodeCommand
from kvconsole.infra import leases, nudge
from kvconsole.infra.access import plane, system
from kvconsole.infra.rest import add_codes
from kvconsole.infra.sql import named
from kvcore.messages import PROTOCOL, Command

add_codes({"node-fenced": (409, "The node is fenced")})
SILENT_SECONDS, LOST_SECONDS = 5.0, 10.0
LEASE_SECONDS = 20.0
"""Longer than signing and calling may take together."""
BACKOFF_SECONDS = (1, 2, 5, 10, 20, 30)


@dataclass(frozen=True)
class StateChange:
    """A node is something else than it was."""

    node: UUID
    name: str
    before: str
    after: str


def nodes_reconcile(*, now: datetime, writer_lives: bool | None = None) -> list[StateChange]:
    """The state of each node is what `last_heard_at` says at `now`; each change is one event.

    Args:
        now: aware; the clock that `last_heard_at` is written by.
        writer_lives: whether nodes could be heard at all; None = look.
    """
    queries = named("catalog", "fleet.sql")
    with transaction.atomic(using=plane()), connections[plane()].cursor() as cursor:
        if writer_lives is None:
            cursor.execute(queries["writer_lives"])
            writer_lives = bool(cursor.fetchone()[0])
        values: dict[str, Any] = {"now": now, "silent": SILENT_SECONDS, "lost": LOST_SECONDS, "writer": writer_lives}
        cursor.execute(queries["nodes_reconcile"], values)
        changes = [StateChange(*row) for row in cursor.fetchall()]
        for change in changes:
            record(
                event_type="node.state_changed",
                outcome="success",
                actor=system("fleet"),
                tenant_id=None,
                object_kind="node",
                object_id=str(change.node),
                body={"name": change.name, "before": change.before, "after": change.after, "reason": _reason(change)},
            )
        if changes:
            nudge.on_commit(nudge.NODES, using=plane())
    return changes


def _reason(change: StateChange) -> str:
    if change.after in ("silent", "lost"):
        return f"not-heard-{LOST_SECONDS if change.after == 'lost' else SILENT_SECONDS:g}-s"
    return "heard"


def commands_due(*, now: datetime) -> list[UUID]:
    """Steps that somebody should send now, oldest first."""
    with connections[plane()].cursor() as cursor:
        cursor.execute(named("catalog", "fleet.sql")["commands_due"], (now, now))
        return [row[0] for row in cursor.fetchall()]


def command_send(*, step: UUID, holder: str, now: datetime) -> str:
    """The order was sent if it was due and nobody else is at it; its row says what came of it.

    No transaction is open while the node is asked. A holder that was overtaken meanwhile concludes nothing; the node
    answers a repeated step with the same receipt.

    Returns:
        The state of the order afterwards, or "busy".
    """
    command = NodeCommand.objects.select_related("node").filter(step=step).first()
    if command is None or command.state != "waiting":
        return command.state if command else "unknown"
    if command.due_at > now:
        return "waiting"
    table = NodeCommand._meta.db_table
    lease = leases.take(table, step, holder=holder, seconds=LEASE_SECONDS, now=now, column="step", using=plane())
    if lease is None:
        return "busy"
    if now >= command.expires_at:
        return _conclude(command, lease, "expired", code="command-expired", now=now)
    answer = agents.call(command.node, _message(command))
    if isinstance(answer, agents.Answered):
        state = answer.receipt.outcome if answer.receipt.outcome in ("done", "refused") else "failed"
        return _conclude(command, lease, state, code=answer.receipt.code, now=now, answer=answer)
    if answer.final:
        return _conclude(command, lease, "failed", code=answer.code, now=now)
    wait = BACKOFF_SECONDS[min(command.attempts, len(BACKOFF_SECONDS) - 1)]
    NodeCommand.objects.filter(step=step, lease_token=lease.token).update(
        attempts=command.attempts + 1, due_at=now + timedelta(seconds=wait), code=answer.code, lease_until=None
    )
    return "waiting"


def _message(command: NodeCommand) -> Command:
    return Command(
        v=PROTOCOL,
        step=str(command.step),
        kind=command.kind,
        node=str(command.node_id),
        order_hash=bytes(command.order_hash).hex(),
        issued_at=command.issued_at.timestamp(),
        expires_at=command.expires_at.timestamp(),
        args=command.body,
    )


def _conclude(
    command: NodeCommand,
    lease: leases.Lease,
    state: str,
    *,
    code: str,
    now: datetime,
    answer: agents.Answered | None = None,
) -> str:
    """The order ends in `state`, once: only under our lease and only while it waits."""
    with transaction.atomic(using=plane()):
        mine = NodeCommand.objects.filter(step=command.step, state="waiting", lease_token=lease.token)
        changed = mine.update(
            state=state,
            code=code[:63],
            done_at=now,
            lease_until=None,
            receipt=msgspec.to_builtins(answer.envelope) if answer else None,
            receipt_hash=answer.hash if answer else "",
            receipt_prev=answer.receipt.prev if answer else "",
        )
        if not changed:
            return "busy"
        record(
            event_type="command.concluded",
            outcome=_outcome(state),
            actor=system("fleet"),
            tenant_id=None,
            object_kind="node",
            object_id=str(command.node_id),
            body={
                "step": str(command.step),
                "kind": command.kind,
                "node": str(command.node_id),
                "state": state,
                "code": code[:63],
                "receipt_hash": answer.hash if answer else "",
            },
        )
    return state


def _outcome(state: str) -> Outcome:
    if state == "done":
        return "success"
    return "denied" if state == "refused" else "failure"


def holder_refusal(holder: str) -> str | None:
    """None if the node of this id may lease keys, else the code of the refusal. Named in settings (`KEY_HOLDERS`).

    A node that is silent or lost may: asking is how it hears the fences that it must clear before it serves again.
    """
    try:
        node = Node.objects.filter(id=UUID(holder)).only("state", "wanted", "enrolled_at").first()
    except ValueError:
        node = None
    if node is None or node.enrolled_at is None:
        return "token-invalid"
    return "node-fenced" if "fenced" in (node.state, node.wanted) else None


def nodes_named(names: Sequence[str]) -> list[Node]:
    """The nodes that have these names."""
    return list(Node.objects.filter(name__in=names).order_by("name"))


def node_or_none(node_id: UUID) -> Node | None:
    """The node of this id."""
    return Node.objects.filter(id=node_id).prefetch_related("tiers").first()
