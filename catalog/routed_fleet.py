"""Carries requests of a trace out as a gateway does: asks a router, goes where it says, and tells it what came of it.

Decisions, hits and outcomes are real; only the engine's arithmetic is emulated. A node that does not take a request is
left out of the next question; a session that is sent to another node is moved there first. Called by the replay.
"""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import httpx
import msgspec
from asgiref.sync import sync_to_async
from django.db import DatabaseError, close_old_connections

from catalog.models import Node
from catalog.reference_fleet import ReferenceFleet, meaning
from catalog.replay import NodeUnreachable, Outcome
from catalog.services import node_ticket
from catalog.trace import HASH_TOKENS, TraceRequest
from kvconsole.infra.keystore import KeyMissing, KeyStoreUnavailable, keystore, namespace_name
from kvconsole.infra.rest import Problem
from kvcore.keys import subkey
from kvcore.made_tokens import MadeChains
from tenants.selectors import namespaces_by_digest

ROUTER = "the router"
ROUTES_MOST = 4
"""How often one request is decided before it counts as failed."""
ENDS = {
    "router": "arrived", "queue_p": "admitted", "cache_load": "loaded", "prefill": "computed",
    "transfer": "committed", "queue_d": "turn", "first_decode": "first",
}  # fmt: skip
"""The event of a node that ends each term."""
KNOWN_SECONDS = 15.0
"""For so long after its start a replay waits where the router knows of no node yet."""
PACKED = {"Content-Type": "application/msgpack"}
_pack = msgspec.msgpack.Encoder().encode


class RoutedFleet(ReferenceFleet):
    """The enrolled reference agents, behind a router."""

    def __init__(
        self, *, tenant: str, model: str, only: Sequence[str] = (), client: httpx.AsyncClient, router: str,
        token: Callable[[], str],
    ) -> None:  # fmt: skip
        """A fleet that one router decides for.

        Args:
            tenant: of requests that name none.
            model: of all requests.
            only: names of the nodes that may be chosen; () = all.
            client: for router and nodes.
            router: its base URL.
            token: a gateway's token that is good now.
        """
        super().__init__(tenant=tenant, model=model, only=only, client=client)
        self._router, self._token, self._since = router.rstrip("/"), token, time.monotonic()
        self._chains: dict[tuple[str, str], MadeChains] = {}
        self._sessions: dict[str, tuple[str, int]] = {}
        """Where each session was last, and how often it has moved."""
        self.moves = 0

    async def nodes(self, request: TraceRequest) -> Sequence[str]:
        """The router alone: it places the request."""
        if time.monotonic() - self._read > 2.0:
            with contextlib.suppress(DatabaseError):  # what was known is used until the database is back
                self._nodes = await sync_to_async(self._ready)()
                self._read = time.monotonic()
        return (ROUTER,)

    async def submit(self, node: str, request: TraceRequest) -> Outcome:
        """The request has its first token from where the router sent it, and the router knows how long it took."""
        refused: list[str] = []
        why = "no node is ready"
        for _ in range(ROUTES_MOST):
            began = time.perf_counter()
            try:
                answer = await self._route(request, refused)
            except NodeUnreachable as e:
                raise NodeUnreachable(why if refused else str(e)) from e
            try:
                return await self._carry(request, answer, began)
            except NodeUnreachable as e:
                why = str(e)
                refused.append(answer["decode"]["node"])
        raise NodeUnreachable(why)

    async def _route(self, request: TraceRequest, refused: Sequence[str]) -> dict[str, Any]:
        tenant, label = request.tenant or self.tenant, request.label or ""
        body: dict[str, Any] = {
            "tenant": tenant, "model": self.model, "prompt_tokens": request.input_length,
            "block_keys": (await self._made(tenant, label)).keys(request.hash_ids, request.input_length),
        }  # fmt: skip
        body |= {k: v for k, v in (("label", label), ("session", request.session)) if v}
        if refused or self.only:
            body["candidates"] = sorted((self.only or self._nodes.keys()) - set(refused))
        headers = PACKED | {"Authorization": f"Bearer {self._token()}"}
        try:
            answer = await self._post_route(_pack(body), headers)
            while (
                _code_of(answer) == "no-candidates" and not refused and time.monotonic() - self._since < KNOWN_SECONDS
            ):
                await asyncio.sleep(0.3)
                answer = await self._post_route(_pack(body), headers)
            if answer.status_code != 200:
                raise NodeUnreachable(f"{ROUTER}: {_code(answer)}")
            found: dict[str, Any] = msgspec.msgpack.decode(answer.content)
        except (httpx.HTTPError, msgspec.DecodeError) as e:
            raise NodeUnreachable(f"{ROUTER}: it could not be asked ({type(e).__name__})") from e
        if not found.get("ticket"):
            raise NodeUnreachable(f"{ROUTER}: it gave no ticket")
        return found

    async def _post_route(self, body: bytes, headers: dict[str, str]) -> httpx.Response:
        return await self.client.post(f"{self._router}/api/v1/route", content=body, headers=headers)

    async def _made(self, tenant: str, label: str) -> MadeChains:
        if (tenant, label) not in self._chains:
            try:
                self._chains[tenant, label] = await sync_to_async(self._keys)(tenant, label)
            except (Problem, DatabaseError, KeyMissing, KeyStoreUnavailable) as e:
                raise NodeUnreachable(f"{ROUTER}: no keys for it ({type(e).__name__})") from e
        return self._chains[tenant, label]

    def _keys(self, tenant: str, label: str) -> MadeChains:
        close_old_connections()
        place = self._namespace(tenant, label)
        digest = bytes(place.digest)
        tokens = namespaces_by_digest([digest])[digest].block_tokens
        secret = keystore().secret(namespace_name(digest, place.generation))
        return MadeChains(subkey(secret, "blk"), block_tokens=tokens, hash_tokens=HASH_TOKENS)

    async def _carry(self, request: TraceRequest, answer: dict[str, Any], began: float) -> Outcome:
        decode, prefill = (self._nodes.get(answer[part]["node"]) for part in ("decode", "prefill"))
        if decode is None or prefill is None:
            raise NodeUnreachable(f"{answer['decode']['node']}: it is not ready any more")
        version = await self._placed_session(request, decode)
        body = self._order(request, answer, decode, prefill, version)
        events: list[tuple[float, dict[str, Any]]] = []
        try:
            url = f"{decode.agent_url}/v1/serve"
            async with self.client.stream("POST", url, content=_pack(body), headers=PACKED) as got:
                if got.status_code != 200:
                    await got.aread()
                    self._forget(got.status_code)
                    raise NodeUnreachable(f"{decode.name}: {_code(got)}")
                async for line in got.aiter_lines():
                    events.append((time.perf_counter(), msgspec.json.decode(line)))
        except (httpx.HTTPError, msgspec.DecodeError) as e:
            raise NodeUnreachable(f"{decode.name}: it could not be reached ({type(e).__name__})") from e
        found = await self._told(answer, events, began, decode)
        if request.session:
            self._sessions[self._session(request)] = decode.name, version
        return found

    def _session(self, request: TraceRequest) -> str:
        return f"{request.tenant or self.tenant}/{request.session}"

    def _forget(self, status: int) -> None:
        """The generation moved on, or keys are not there yet: what was known of namespaces is asked again."""
        if status in (401, 403, 409):
            self._namespaces.clear()
            self._chains.clear()

    def _order(
        self, request: TraceRequest, answer: dict[str, Any], decode: Node, prefill: Node, version: int
    ) -> dict[str, Any]:
        first, second = answer["ticket"], answer.get("decode_ticket")
        own, others = (second, [first]) if second else (first, [])
        ids = {name: str(node.id) for name, node in self._nodes.items()}
        plan = [{**part, "node": ids.get(part["node"] or "", ""), "tier": part.get("tier") or ""}
                for part in answer["plan"]]  # fmt: skip
        return {
            "ticket": own, "tickets": [*others, *answer.get("grants", ())],
            "prefill": str(prefill.id) if second else "",
            "plan": plan, "version": version,
            "request": {
                "request": str(uuid.uuid4()), "ns": own["ns"], "gen": own["gen"], "hash_ids": request.hash_ids,
                "hash_tokens": HASH_TOKENS, "input_length": request.input_length,
                "output_length": request.output_length, "session": request.session,
            },
        }  # fmt: skip

    async def _told(
        self, answer: dict[str, Any], events: list[tuple[float, dict[str, Any]]], began: float, decode: Node
    ) -> Outcome:
        """What came of it; the router is told, as its gateway."""
        at = {event["at"]: (when, event) for when, event in reversed(events)}
        if "done" not in at or "first" not in at:
            refused = at.get("refused", (0.0, {}))[1].get("code", "")
            raise NodeUnreachable(f"{decode.name}: {meaning(refused) if refused else 'its answer ended early'}")
        outcome = at["done"][1]["outcome"]
        terms = _terms({name: when for name, (when, _) in at.items()}, began)
        body = {
            "ttft_ms": (at["first"][0] - began) * 1000.0, "terms": terms, "hit_tokens": outcome.get("hit_tokens", 0),
            "short": (short := outcome.get("short", [])),
        }  # fmt: skip
        headers = PACKED | {"Authorization": f"Bearer {self._token()}"}
        url = f"{self._router}/api/v1/decisions/{answer['decision_id']}/outcome"
        with contextlib.suppress(httpx.HTTPError):  # the request was carried out, whoever knows of it
            await self.client.post(url, content=_pack(body), headers=headers)
        return Outcome(
            prompt_tokens=outcome["prompt_tokens"], hit_tokens=outcome.get("hit_tokens", 0),
            saved_ms=outcome.get("saved_ms", 0.0), short={one["cause"]: one["tokens"] for one in short},
        )  # fmt: skip

    async def _placed_session(self, request: TraceRequest, decode: Node) -> int:
        """How often the session has moved, once it is where it is sent now: flushed and fenced where it was."""
        if not request.session:
            return 0
        name = self._session(request)
        where, version = self._sessions.get(name, (decode.name, 0))
        if where != decode.name:
            version, self.moves = version + 1, self.moves + 1
            if (old := self._nodes.get(where)) is not None:
                with contextlib.suppress(httpx.HTTPError, Problem, DatabaseError):  # who is dead holds nothing back
                    ticket = await sync_to_async(self._leave)(old, request)
                    body = {"ticket": ticket, "session": request.session, "version": version}
                    await self.client.post(f"{old.agent_url}/v1/sessions", content=_pack(body), headers=PACKED)
        return version

    def _leave(self, node: Node, request: TraceRequest) -> dict[str, object]:
        close_old_connections()
        place = self._namespace(request.tenant or self.tenant, request.label or "")
        made: dict[str, object] = msgspec.to_builtins(
            node_ticket(node=node, namespace=place, now=datetime.now(UTC)), builtin_types=(bytes,)
        )
        return made


def _terms(at: dict[str, float], began: float) -> dict[str, float]:
    """Milliseconds of each term by this process's clock: each lasts from the event that ended the one before it."""
    out, last = {}, began
    for term, event in ENDS.items():
        when = max(at.get(event, last), last)
        out[term] = (when - last) * 1000.0
        last = when
    return out


def _code(answer: httpx.Response) -> str:
    code = _code_of(answer)
    return meaning(code) if code else f"it answered with status {answer.status_code}"


def _code_of(answer: httpx.Response) -> str:
    """The code of a refusal, "" where there is none."""
    if answer.status_code == 200:
        return ""
    try:
        return str(msgspec.json.decode(answer.content)["code"])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError, TypeError):
        return ""
