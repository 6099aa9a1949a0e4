"""Writes of the fleet: nodes, their enrolment, orders to them, tickets. Each is one transaction, one event."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils.module_loading import import_string

from audit import signing
from audit.services import record
from catalog import agents
from catalog.models import NODE_ROLES, Node, NodeCommand, NodeTier
from kvconsole.infra import nudge
from kvconsole.infra.access import Principal, plane
from kvconsole.infra.keystore import keystore, node_name
from kvconsole.infra.rest import Problem, add_codes
from kvconsole.infra.sql import uuid7
from kvcore.blocks import TIERS
from kvcore.messages import Ticket, fingerprint, ticket_issue
from kvcore.tickets import Scope
from tenants.services import token_good, token_issue, token_redeem, tokens_retire
from tenants.services.key_lease import ticket_day, ticket_key

add_codes(
    {
        "node-name-taken": (409, "Another node has this name"),
        "agent-url-refused": (422, "The agent's address is not one the console will dial"),
        "agent-url-mismatch": (409, "The agent listens elsewhere than the operator said"),
        "node-name-mismatch": (409, "The enrolment token was made for a node of another name"),
        "enrolment-token-invalid": (401, "The enrolment token is unknown, used or expired"),
        "public-key-invalid": (422, "Not an Ed25519 public key"),
        "signer-unavailable": (503, "The process that holds the command key does not answer"),
    }
)
ENROLMENT_MINUTES = 15
NODE_TOKEN_DAYS = 365
TICKET_SECONDS = 30
COMMAND_SECONDS = 300
COMMAND_KINDS = ("inventory", "digest", "ping")


def node_create(
    *,
    name: str,
    region: str,
    zone: str = "",
    rack: str = "",
    role: str = "mixed",
    agent_url: str = "",
    actor: Principal | None = None,
    now: datetime | None = None,
) -> tuple[Node, str]:
    """The node is known and joining; with the token, within 15 minutes and once, its agent can enrol.

    Args:
        agent_url: where its agent will listen; "" = where it says at enrolment.

    Returns:
        The node and the enrolment token, whose part behind the dot names the console's key.

    Raises:
        Problem: validation-failed, agent-url-refused, node-name-taken or signer-unavailable.
    """
    if not name or len(name) > 63 or not all(c.isascii() and (c.isalnum() or c in "._-") for c in name):
        raise _invalid("/name", "1 to 63 characters of letters, digits, dot, hyphen and underscore.")
    if role not in NODE_ROLES:
        raise _invalid("/role", f"One of {', '.join(NODE_ROLES)}.")
    if agent_url:
        _dialable(agent_url)
    at = now or datetime.now(UTC)
    node = Node(
        name=name,
        region=region,
        zone=zone,
        rack=rack,
        role=role,
        agent_url=agent_url,
        state_since=at,
        created_at=at,
    )
    body = {field: getattr(node, field) for field in ("name", "region", "zone", "rack", "role", "agent_url")}
    with transaction.atomic(using=plane()):
        try:
            with transaction.atomic(using=plane()):
                node.save(force_insert=True)
        except IntegrityError as e:
            raise Problem("node-name-taken") from e
        _record("node.created", actor, node, body)
        token = enrolment_token(node=node, actor=actor, now=at)
        nudge.on_commit(nudge.NODES, using=plane())
    return node, token


def node_ensure(
    *, name: str, agent_url: str = "", again: bool = False, actor: Principal | None = None, now: datetime, **place: str
) -> tuple[Node, str]:
    """`node_create`, or a new token for a node that is known: not enrolled yet, or (`again`) to be enrolled anew.

    A known node keeps its place; a new address is taken.

    Raises:
        Problem: as `node_create`.
    """
    known = Node.objects.filter(name=name).first()
    if known is None:
        return node_create(name=name, agent_url=agent_url, actor=actor, now=now, **place)
    if known.enrolled_at is not None and not again:
        raise Problem("node-name-taken")
    with transaction.atomic(using=plane()):
        if agent_url and agent_url != known.agent_url:
            _dialable(agent_url)
            known.agent_url = agent_url
            known.save(update_fields=["agent_url"])
            _record("node.changed", actor, known, {"name": name, "changed": ["agent_url"]})
        return known, enrolment_token(node=known, actor=actor, now=now)


def enrolment_token(*, node: Node, actor: Principal | None = None, now: datetime) -> str:
    """A new token with which the node's agent can enrol once, within 15 minutes; earlier ones stay as they are.

    Raises:
        Problem: signer-unavailable: the console's key is not known.
    """
    key = signing.command_key()
    if key is None:
        raise Problem("signer-unavailable", retry_after_seconds=5)
    until = now + timedelta(minutes=ENROLMENT_MINUTES)
    _, plaintext = token_issue("enrol", holder=str(node.id), name=node.name, expires_at=until, actor=actor, now=now)
    return f"{plaintext}.{fingerprint(key)}"


def node_enrol(
    *,
    token: str,
    public_key: bytes,
    agent_url: str,
    agent_version: str,
    tiers: Sequence[Mapping[str, Any]],
    engine: Mapping[str, Any],
    name: str = "",
    profile: str = "",
    now: datetime | None = None,
) -> dict[str, Any]:
    """The node is enrolled with this key and address; the answer has its own token, which is shown once.

    Who has no good token learns nothing and makes the console look up nothing. From commit on the node's other tokens
    are of no use: those of earlier lives, and enrolment tokens that were not used.

    Args:
        name: what the agent takes itself for; "" = it takes the name that the token was made for.

    Raises:
        Problem: enrolment-token-invalid, public-key-invalid, agent-url-refused, agent-url-mismatch, node-name-mismatch,
            validation-failed or signer-unavailable; the token can still be used.
    """
    at, plaintext = now or datetime.now(UTC), token.partition(".")[0]
    if not token_good(kind="enrol", plaintext=plaintext, now=at):
        raise Problem("enrolment-token-invalid")
    _dialable(agent_url)
    _check_tiers(tiers)
    key = signing.command_key()
    if key is None:
        raise Problem("signer-unavailable", retry_after_seconds=5)
    try:
        Ed25519PublicKey.from_public_bytes(public_key)
    except ValueError as e:
        raise Problem("public-key-invalid") from e
    with transaction.atomic(using=plane()):
        used = token_redeem(kind="enrol", plaintext=plaintext, now=at)
        node = Node.objects.select_for_update().filter(id=used.holder).first() if used else None
        if node is None:
            raise Problem("enrolment-token-invalid")
        if name and name != node.name:
            raise Problem("node-name-mismatch")
        said_by_operator = node.agent_url if node.enrolled_at is None else ""
        if said_by_operator and said_by_operator.rstrip("/") != agent_url.rstrip("/"):
            raise Problem("agent-url-mismatch")
        node.public_key, node.agent_url, node.agent_version = public_key, agent_url.rstrip("/"), agent_version
        node.engine, node.profile, node.enrolled_at, node.last_heard_at = dict(engine), profile, at, None
        node.state, node.wanted, node.state_since = "joining", "ready", at
        node.save()
        node.tiers.all().delete()
        NodeTier.objects.bulk_create(NodeTier(node=node, **tier) for tier in tiers)
        keystore().ensure(node_name(node.id))
        actor = Principal(kind="node", id=str(node.id), holder=str(node.id), roles=frozenset({"node"}), name=node.name)
        tokens_retire(holder=str(node.id), kinds=("enrol", "node"), reason="enrolled-anew", actor=actor, now=at)
        _, node_token = token_issue(
            "node",
            holder=str(node.id),
            name=node.name,
            roles=["node"],
            scopes=[f"region:{node.region}"],
            expires_at=at + timedelta(days=NODE_TOKEN_DAYS),
            actor=actor,
            now=at,
        )
        _record("node.enrolled", actor, node, _enrolled_body(node, tiers))
        nudge.on_commit(nudge.NODES, using=plane())
    return {
        "node": str(node.id),
        "name": node.name,
        "role": node.role,
        "node_token": node_token,
        "console_public_key": key.hex(),
        "shards": 1,
        "ingest": [{"shard": 0, "url": url} for url in settings.INGEST_URLS],
    }


def node_retire(*, node: Node, reason: str, actor: Principal | None, now: datetime) -> int:
    """The node is fenced and its tokens are of no use: it is not heard, gets no keys, and nothing of it is routable.

    Leases that it has end within five minutes. What lies on it is not erased. It returns only by enrolling anew.

    Returns:
        How many tokens were revoked.
    """
    with transaction.atomic(using=plane()):
        known = Node.objects.select_for_update().get(id=node.id)
        if known.state != "fenced" or known.wanted != "fenced":
            body = {"name": known.name, "before": known.state, "after": "fenced", "reason": reason}
            known.state, known.wanted, known.state_since = "fenced", "fenced", now
            known.save(update_fields=["state", "wanted", "state_since"])
            _record("node.state_changed", actor, known, body)
            nudge.on_commit(nudge.NODES, using=plane())
        return tokens_retire(holder=str(node.id), kinds=("enrol", "node"), reason="retired", actor=actor, now=now)


def _enrolled_body(node: Node, tiers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "name": node.name,
        "key": fingerprint(bytes(node.public_key or b"")),
        "agent_version": node.agent_version,
        "agent_url": node.agent_url,
        "tiers": {tier["tier"]: tier["capacity_bytes"] for tier in tiers},
        "engine": {"kind": str(node.engine.get("kind", "")), "version": str(node.engine.get("version", ""))},
    }


def _check_tiers(tiers: Sequence[Mapping[str, Any]]) -> None:
    names = [tier["tier"] for tier in tiers]
    if not names or len(set(names)) != len(names) or not set(names) <= set(TIERS):
        raise _invalid("/tiers", f"Each at most once, of {', '.join(TIERS)}.")
    if any(not 0 <= tier["low"] <= tier["high"] <= 1 or not 0 < tier["capacity_bytes"] < 2**62 for tier in tiers):
        raise _invalid("/tiers", "Needs 0 <= low <= high <= 1 and a positive capacity.")


def inventory_request(
    *, node: Node | UUID, source: str = "", actor: Principal | None = None, now: datetime | None = None
) -> NodeCommand:
    """The node has been ordered to list a source ("" = all) to the writer; an order that waits is not doubled."""
    return command_order(node=node, kind="inventory", args={"source": source} if source else {}, actor=actor, now=now)


def command_order(
    *, node: Node | UUID, kind: str, args: Mapping[str, Any], actor: Principal | None, now: datetime | None = None
) -> NodeCommand:
    """The order is written and logged, and somebody was woken to send it; whoever is lost, a sweep finds it.

    Raises:
        ValueError: a kind that is not sent from here.
    """
    if kind not in COMMAND_KINDS:
        raise ValueError(f"not a kind that is ordered so: {kind!r}")
    at, node_id = now or datetime.now(UTC), node if isinstance(node, UUID) else node.id
    waiting = NodeCommand.objects.filter(
        node_id=node_id, kind=kind, state="waiting", body=dict(args), expires_at__gt=at
    )
    if (found := waiting.first()) is not None:
        return found
    step = uuid7()
    with transaction.atomic(using=plane()):
        event = record(
            event_type="command.ordered",
            outcome="success",
            actor=actor,
            tenant_id=None,
            object_kind="node",
            object_id=str(node_id),
            body={"step": str(step), "kind": kind, "node": str(node_id), "args": dict(args)},
        )
        command = NodeCommand.objects.create(
            step=step,
            node_id=node_id,
            kind=kind,
            body=dict(args),
            order_hash=event.body_hash,
            issued_at=at,
            expires_at=at + timedelta(seconds=COMMAND_SECONDS),
            due_at=at,
        )
        transaction.on_commit(lambda: _wake_sender(str(step)), using=plane(), robust=True)
    return command


def _wake_sender(step: str) -> None:
    """A hint to a worker. Without a broker nothing is lost: `commands_due` finds the row."""
    import_string(settings.TASK_SENDER)("catalog.command_send", step)


class OfGeneration(Protocol):
    """A namespace as of one generation: a row of `tenants.selectors`, or what `namespace_resolve` answers."""

    @property
    def digest(self) -> "bytes | memoryview[int]":
        """Its 32 bytes."""

    @property
    def generation(self) -> int:
        """The generation that requests now carry."""


def node_ticket(*, node: Node, namespace: OfGeneration, now: datetime, scope: Scope | None = None) -> Ticket:
    """Leave to use this node for the namespace's generation, for 30 s; the node checks it without asking anybody.

    Args:
        scope: the decision it belongs to, what of the chain may be read, and who else takes part.
    """
    holder = str(node.id)
    return ticket_issue(
        ticket_key(holder, ticket_day(holder, now)),
        node=holder,
        ns=bytes(namespace.digest),
        gen=namespace.generation,
        expires_at=now.timestamp() + TICKET_SECONDS,
        scope=scope,
    )


def _dialable(agent_url: str) -> None:
    target = agents.check_address(agent_url)
    if isinstance(target, signing.NotAnswered):
        errors = [{"pointer": "/agent_url", "code": target.code, "detail": target.detail}]
        raise Problem("agent-url-refused", target.detail, errors=errors)


def _invalid(pointer: str, detail: str) -> Problem:
    return Problem("validation-failed", errors=[{"pointer": pointer, "code": "invalid", "detail": detail}])


def _record(event_type: str, actor: Principal | None, node: Node, body: Mapping[str, Any]) -> None:
    record(
        event_type=event_type,
        outcome="success",
        actor=actor,
        tenant_id=None,
        object_kind="node",
        object_id=str(node.id),
        body=msgspec.to_builtins(body),
    )
