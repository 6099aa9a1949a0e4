"""Decides what nodes take: all that comes, nothing new (cordoned), or less and less, while a drain empties them.

Requests and moves go to no node that is cordoned or draining; what lies there is read as ever. A drain that ends leaves
its node cordoned, one that is stopped leaves it as it was. Called by REST, and where drains begin and end.
"""

from datetime import datetime
from uuid import UUID

from django.db import transaction

from audit.services import record
from catalog.models import Node, Operation
from kvconsole.infra import nudge
from kvconsole.infra.access import Principal, plane
from kvconsole.infra.rest import Problem, add_codes

add_codes({"node-draining": (409, "The node is being drained"), "node-fenced": (409, "The node is fenced")})
READY, CORDONED, DRAINING, FENCED = "ready", "cordoned", "draining", "fenced"
HEARD = (READY, "degraded", CORDONED, DRAINING)
"""States of nodes that are heard: they are what is wanted of them at once, others once they are heard again."""


def node_want(*, node: UUID, wanted: str, reason: str, actor: Principal, now: datetime) -> str:
    """The node is what is wanted of it from commit on; in the caller's transaction, with its event.

    Returns:
        What was wanted of it before.

    Raises:
        Problem: not-found or node-fenced.
    """
    row = Node.objects.select_for_update().filter(id=node).first()
    if row is None:
        raise Problem("not-found")
    if FENCED in (row.state, row.wanted):
        raise Problem("node-fenced")
    before, state = str(row.wanted), row.state
    if before == wanted:
        return before
    row.wanted = wanted
    if state in HEARD:
        row.state, row.state_since = wanted, now
    row.save(update_fields=["wanted", "state", "state_since"])
    told = {"before": state, "after": wanted, "reason": reason} if state in HEARD else {"changed": ["wanted"]}
    record(
        event_type="node.state_changed" if state in HEARD else "node.changed",
        outcome="success",
        actor=actor,
        tenant_id=None,
        object_kind="node",
        object_id=str(row.id),
        body={"name": row.name, **told},
    )
    nudge.on_commit(nudge.NODES, using=plane())
    return before


def drain_begin(*, node: UUID, actor: Principal, now: datetime) -> str:
    """The node is draining from commit on, in the caller's transaction; what was wanted of it before.

    Raises:
        Problem: not-found, node-fenced or node-draining, which says by which operation.
    """
    before = node_want(node=node, wanted=DRAINING, reason="drain", actor=actor, now=now)
    if before == DRAINING:
        mine = Operation.objects.filter(kind="drain", concluded_at=None, options__node=str(node))
        if running := mine.values_list("id", flat=True).first():
            raise Problem("node-draining", f"By the operation {running}.")
    return before


def drain_end(operation: Operation, outcome: str, actor: Principal, now: datetime) -> None:
    """A drain is over, in the caller's transaction: its node stays empty, or is what it was if the drain was not done.

    A node that was meanwhile fenced, enrolled anew or cordoned by somebody is left alone.
    """
    node = UUID(operation.options["node"])
    if not Node.objects.filter(id=node, wanted=DRAINING).exists():
        return
    done = outcome.startswith("completed")
    was = str(operation.options.get("wanted") or READY)
    wanted = CORDONED if done or was == DRAINING else was
    with transaction.atomic(using=plane()):
        node_want(node=node, wanted=wanted, reason="drained" if done else f"drain-{outcome}", actor=actor, now=now)
