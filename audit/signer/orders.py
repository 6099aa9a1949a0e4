"""Decides whether a destructive command may be signed: only what an approved order in the log asks for.

Pure. The order is the event `order.approved`; it stands in the log that this signer signed, under its latest head, and
names the kind and the node. What needs a second person also needs that person's `approval.decided`; what needs one is
decided by the kinds of commands in the order as much as by what it says of its own risk. What a command reaches is
bound too: its targets are of those whose root the order has, and the order says whether and when leases are broken and
fences raised. That an event is in the log says that it was recorded, in front of everybody who reads the log, not that
it is true.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from audit.asked import Evidence, canonical
from audit.signer.heads import Head
from kvcore.leaf import LATE, NOBODY, OUTCOMES, Leaf, LeafError, body_hash, parse_leaf
from kvcore.messages import Command
from kvcore.proofs import leaf_hash, verify_inclusion
from kvcore.targets import MOST_TARGETS, ArgsBound, part_root

ORDER, DECISION = 0x0501, 0x0230
"""Numbers of `order.approved` and `approval.decided`."""
RISKS = ("R0", "R1", "R2", "R3")
SECOND_PERSON = "R3"
LEAST = {
    **dict.fromkeys(("fence", "verify", "probe", "purge", "evict", "move", "offer", "take", "release", "erase"), "R0"),
    "shred": "R1",
    **dict.fromkeys(("reset", "overwrite"), "R2"),
}
"""Least risk of an order with commands of this kind, whatever it says of itself: that of the smallest plan that has it
(`kvcore.risk`). What is erased can be one's own session; a node's keys go with whole namespaces that were erased. What
is not here (what destroys media or other keys, or is unknown to this signer) needs a second person."""
BOUND = frozenset({"erase", "shred", "fence"})
"""Kinds that are signed only for an order that names its targets; of one that does, every kind has to name them."""
CONSOLE_PRODUCERS = 64
"""Events with a smaller producer id are the console's own; others come from a tenant's session, which may lie."""
PERIOD_SECONDS = 90 * 86_400
"""How long an actor keeps its name in the log; across two periods nobody can tell one person from two."""
SKEW_SECONDS = 60.0


class _Actor(msgspec.Struct, frozen=True):
    kind: str


class _Object(msgspec.Struct, frozen=True):
    id: str
    kind: str


class _Order(msgspec.Struct, frozen=True):
    operation: str
    kinds: list[str]
    nodes: list[str]
    plan_hash: str
    risk: str
    not_after: str
    approval: str | None = None
    targets_root: str | None = None
    targets: int | None = None
    force_after: str | None = None
    fencing: bool = False


class _OrderBody(msgspec.Struct, frozen=True):
    action: str
    actor: _Actor
    data: _Order
    object: _Object
    outcome: str


class _Decision(msgspec.Struct, frozen=True):
    object: str
    decision: str
    risk: str


class _DecisionBody(msgspec.Struct, frozen=True):
    action: str
    actor: _Actor
    data: _Decision
    object: _Object
    outcome: str


class Ordered(NamedTuple):
    """An order that the log proves. `unapproved`: why no command that needs a second person goes by it, None if so."""

    leaf: Leaf
    data: _Order
    not_after: float
    unapproved: str | None


def refusal(command: Command, order: Evidence, approval: Evidence | None, *, head: Head, now: float) -> str | None:
    """None where the log proves that this command was ordered and approved, else the code of why not.

    Args:
        command: one that destroys.
        order, approval: events with their proofs.
        head: what was signed last; the proofs must hold under it.
        now: seconds since 1970.
    """
    found = ordered(order, approval, head=head, now=now)
    return found if isinstance(found, str) else beyond(found, command)


def ordered(order: Evidence, approval: Evidence | None, *, head: Head, now: float) -> Ordered | str:
    """What the log proves was ordered, with its approval; else the code of why that is no order."""
    found = _proved(order, "order", ORDER, head, now)
    if isinstance(found, str):
        return found
    leaf, raw = found
    try:
        body = msgspec.convert(raw, _OrderBody)
        not_after = _time(body.data.not_after)
    except (msgspec.ValidationError, ValueError):
        return "order-malformed"
    if (body.action, body.outcome) != ("order.approved", "success") or body.data.risk not in RISKS:
        return "order-malformed"
    alone = risk_of(body.data.risk, body.data.kinds) != SECOND_PERSON and not body.data.approval
    return Ordered(leaf, body.data, not_after, None if alone else _approval_refusal(leaf, body, approval, head, now))


def beyond(order: Ordered, command: Command) -> str | None:
    """Why the command is not one of the order's, None if it is and the order is approved."""
    if command.order_hash != order.leaf.body_hash.hex():
        return "order-of-another-command"
    if command.kind not in order.data.kinds:
        return "order-of-another-kind"
    if command.node not in order.data.nodes:
        return "order-of-another-node"
    if command.expires_at > order.not_after:
        return "order-expired"
    return _reach_refusal(command, order.data) or order.unapproved


def risk_of(stated: str, kinds: Sequence[str]) -> str:
    """The strictest of what an order says and what its kinds of commands are worth at least."""
    return max([stated, *(LEAST.get(kind, SECOND_PERSON) for kind in kinds)], key=RISKS.index)


def _reach_refusal(command: Command, order: _Order) -> str | None:
    """Why the order does not reach this: other targets, leases broken too early, a fence that was not ordered."""
    if order.targets_root is None:
        return "order-without-targets" if command.kind in BOUND else None
    try:
        args = msgspec.convert(command.args, ArgsBound)
        root = part_root(args.targets, args.part) if len(args.targets) <= MOST_TARGETS else ""
        force_after = _time(order.force_after) if order.force_after else None
    except (msgspec.ValidationError, ValueError):
        return "targets-malformed"
    if args.operation != order.operation:
        return "order-of-another-operation"
    if root != order.targets_root or args.part.count != order.targets:
        return "order-of-other-targets"
    if args.force and (force_after is None or args.deadline < force_after):
        return "force-not-ordered"
    return "fence-not-ordered" if not order.fencing and (args.fencing or command.kind == "fence") else None


def _approval_refusal(order: Leaf, asked: _OrderBody, approval: Evidence | None, head: Head, now: float) -> str | None:
    if approval is None:
        return "approval-missing"
    found = _proved(approval, "approval", DECISION, head, now)
    if isinstance(found, str):
        return found
    leaf, raw = found
    try:
        body = msgspec.convert(raw, _DecisionBody)
    except msgspec.ValidationError:
        return "approval-malformed"
    if (body.action, body.outcome) != ("approval.decided", "success"):
        return "approval-malformed"
    if (body.object.kind, body.object.id, body.data.object) != ("approval", asked.data.approval, asked.data.operation):
        return "approval-of-another-order"
    if body.data.decision != "approved":
        return "approval-denied"
    if body.data.risk != risk_of(asked.data.risk, asked.data.kinds):
        return "approval-of-another-risk"
    if {body.actor.kind, asked.actor.kind} != {"user"} or NOBODY in (leaf.actor_ref, order.actor_ref):
        return "approval-without-persons"
    if leaf.actor_ref == order.actor_ref:
        return "approval-own"
    return None if len(_periods(leaf) | _periods(order)) == 1 else "approval-too-old"


def _proved(given: Evidence, name: str, kind: int, head: Head, now: float) -> tuple[Leaf, dict[str, Any]] | str:
    """The event, if it is in the log and of this kind; else a code that begins with `name`."""
    data, proof = bytes.fromhex(given.leaf), [bytes.fromhex(one) for one in given.proof]
    if not verify_inclusion(leaf_hash(data), given.index, head.size, proof, head.root):
        return f"{name}-not-in-log"
    try:
        leaf, raw = parse_leaf(data), given.body.encode()
        if leaf.index != given.index:
            return f"{name}-malformed"
        if leaf.event_type != kind:
            return f"{name}-of-another-type"
        if OUTCOMES[leaf.outcome] != "success":
            return f"{name}-not-success"
        if leaf.flags & LATE or leaf.producer_id >= CONSOLE_PRODUCERS:
            return f"{name}-not-of-the-console"
        if leaf.time_us / 1e6 > now + SKEW_SECONDS:
            return f"{name}-of-the-future"
        if body_hash(raw) != leaf.body_hash:
            return f"{name}-body"
        return leaf, canonical(raw)
    except (LeafError, ValueError):
        return f"{name}-malformed"


def _time(text: str) -> float:
    """Seconds since 1970 of an RFC 3339 time in UTC."""
    if not text.endswith("Z"):
        raise ValueError("not in UTC")
    found = datetime.fromisoformat(text)
    if found.utcoffset() != timedelta(0):
        raise ValueError("not a time")
    return found.astimezone(UTC).timestamp()


def _periods(leaf: Leaf) -> set[int]:
    """The periods its actor's name may be of; two near the change from one to the next."""
    at = leaf.time_us / 1e6
    return {int((at + skew) // PERIOD_SECONDS) for skew in (-SKEW_SECONDS, SKEW_SECONDS)}
