"""Decides how a replayed request reaches a reference agent: which namespace, which ticket, which HTTP call.

Called by `manage.py replay`; the far side is `POST /v1/requests` of an agent with a reference engine.
"""

import contextlib
import time
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime

import httpx
import msgspec
from asgiref.sync import sync_to_async
from django.db import DatabaseError, close_old_connections

from catalog.models import Node
from catalog.placing import open_nodes
from catalog.replay import NodeUnreachable, Outcome
from catalog.services import OfGeneration, node_ticket
from catalog.trace import HASH_TOKENS, TraceRequest
from kvconsole.infra.rest import Problem
from kvcore.refusals import AGENT
from tenants.services import namespace_resolve

NODES_SECONDS = 2.0
TICKET_SECONDS = 20.0


class ReferenceFleet:
    """The enrolled reference agents; nodes and tickets are read again when they are old."""

    def __init__(self, *, tenant: str, model: str, only: Sequence[str] = (), client: httpx.AsyncClient) -> None:
        self.tenant, self.model, self.only, self.client = tenant, model, frozenset(only), client
        self._nodes: dict[str, Node] = {}
        self._read = -NODES_SECONDS
        self._namespaces: dict[tuple[str, str], OfGeneration] = {}
        self._open: dict[tuple[str, str], tuple[float, set[str]]] = {}
        self._tickets: dict[tuple[str, str, str], tuple[float, dict[str, object]]] = {}

    async def nodes(self, request: TraceRequest) -> Sequence[str]:
        """Names of the nodes that are ready and may hold the request's blocks; none = it fails and is counted."""
        if time.monotonic() - self._read > NODES_SECONDS:
            with contextlib.suppress(DatabaseError):  # what was known is used until the database is back
                self._nodes = await sync_to_async(self._ready)()
                self._read = time.monotonic()
        names = await self._placed(request.tenant or self.tenant, request.label or "")
        return sorted(self._nodes.keys() & names)

    async def _placed(self, tenant: str, label: str) -> set[str]:
        """Names of the nodes where the namespace of such requests may be."""
        at, names = self._open.get((tenant, label), (-NODES_SECONDS, set[str]()))
        if time.monotonic() - at > NODES_SECONDS:
            with contextlib.suppress(DatabaseError, Problem):  # a tenant that is gone has no node
                names = await sync_to_async(self._allowed)(tenant, label)
                self._open[tenant, label] = time.monotonic(), names
        return names

    def _allowed(self, tenant: str, label: str) -> set[str]:
        close_old_connections()
        digest = bytes(self._namespace(tenant, label).digest)
        by_id = {node.id: node.name for node in self._nodes.values()}
        return {by_id[node] for node in open_nodes(digest, by_id)}

    def _namespace(self, tenant: str, label: str) -> OfGeneration:
        if (tenant, label) not in self._namespaces:
            self._namespaces[tenant, label] = namespace_resolve(tenant=tenant, model=self.model, label=label)
        return self._namespaces[tenant, label]

    def _ready(self) -> dict[str, Node]:
        close_old_connections()  # a replay outlives restarts of PostgreSQL
        ready = Node.objects.filter(state__in=("ready", "degraded"), enrolled_at__isnull=False).order_by("name")
        return {n.name: n for n in ready if not self.only or n.name in self.only}

    async def submit(self, node: str, request: TraceRequest) -> Outcome:
        """The reference engine of the node has computed or found every block of the request."""
        where = self._nodes.get(node)
        if where is None:
            raise NodeUnreachable(f"{node}: it is not ready any more")
        tenant, label = request.tenant or self.tenant, request.label or ""
        try:
            ticket = await self._ticket(where, tenant, label)
        except DatabaseError as e:
            raise NodeUnreachable(f"{node}: the database gave no ticket for it ({type(e).__name__})") from e
        except Problem as e:
            raise NodeUnreachable(f"{node}: no ticket for it: {e.text} ({e.code})") from e
        body = {
            "ticket": ticket,
            "requests": [
                {
                    "request": str(uuid.uuid4()),
                    "ns": ticket["ns"],
                    "gen": ticket["gen"],
                    "hash_ids": request.hash_ids,
                    "hash_tokens": HASH_TOKENS,
                    "input_length": request.input_length,
                    "output_length": request.output_length,
                    "session": request.session,
                }
            ],
        }
        try:
            answer = await self.client.post(f"{where.agent_url}/v1/requests", content=msgspec.msgpack.encode(body))
            if answer.status_code in (401, 403, 409):  # the generation moved on, or the node's keys are not here yet
                self._tickets.clear()
                self._namespaces.clear()
            answer.raise_for_status()
            got = msgspec.msgpack.decode(answer.content)["results"][0]
            # What is zero is left out of the answer.
            prompt, hit = got.get("prompt_tokens", 0), got.get("hit_tokens", 0)
            code = got.get("code", "")
        except httpx.HTTPStatusError as e:
            raise NodeUnreachable(f"{node}: {_refused(e.response)}") from e
        except httpx.HTTPError as e:
            raise NodeUnreachable(f"{node}: it could not be reached ({type(e).__name__})") from e
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError, TypeError, AttributeError) as e:
            raise NodeUnreachable(f"{node}: it answered with something that is no result ({type(e).__name__})") from e
        if code:
            raise NodeUnreachable(f"{node}: {meaning(str(code))}")
        return Outcome(prompt_tokens=prompt, hit_tokens=hit, saved_ms=got.get("saved_ms", 0.0))

    async def _ticket(self, node: Node, tenant: str, label: str) -> dict[str, object]:
        key = (node.name, tenant, label)
        made, ticket = self._tickets.get(key, (-TICKET_SECONDS, {}))
        if time.monotonic() - made > TICKET_SECONDS:
            ticket = await sync_to_async(self._mint)(node, tenant, label)
            self._tickets[key] = (time.monotonic(), ticket)
        return ticket

    def _mint(self, node: Node, tenant: str, label: str) -> dict[str, object]:
        close_old_connections()
        made = node_ticket(node=node, namespace=self._namespace(tenant, label), now=datetime.now(UTC))
        return {name: getattr(made, name) for name in made.__struct_fields__}


def meaning(code: str) -> str:
    """A sentence about what an agent answered, with its code and, where there is one, the page that says more."""
    if code in AGENT:
        return f"{AGENT[code]} ({code}, docs/problems/{code}.md)"
    return f"it did not take the request ({code[:63]})"


def _refused(answer: httpx.Response) -> str:
    try:
        code = msgspec.json.decode(answer.content)["code"]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError, TypeError):
        code = None
    return meaning(code) if isinstance(code, str) and code else f"it answered with status {answer.status_code}"
