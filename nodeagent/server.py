"""Decides what an agent answers over HTTP: commands, status, inventory, requests.

Raw ASGI on uvicorn, because a request is one msgpack body and one answer. Commands prove themselves by signature,
requests by ticket, the inventory by the token in `drive.token`; status holds no secret. Called by `__main__`.
"""

import asyncio
import contextlib
import hmac
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import uvicorn

from kvcore.messages import Ticket, ticket_refusal
from kvcore.refusals import AGENT
from kvcore.wire import UNREADABLE
from nodeagent.agent import Agent
from nodeagent.engines.base import Batch
from nodeagent.jobs import Running
from nodeagent.serving.streams import lines, stream
from nodeagent.serving.words import GIFTS, PREFILL, SERVE, SESSIONS, SessionMove, order_of
from nodeagent.transfer import PATH, Denied

BODY_MAX = 8 * 2**20
READING_MAX = 64 * 2**20
"""Bytes of all bodies that are being read: they come before anybody has proved who it is."""
READ_SECONDS = 20.0
REQUESTS, REQUESTS_MAX = "/v1/requests", 1024
COMMANDS_MOST = 8
"""Commands that are answered at a time; they have threads of their own, so that they hold up nothing else."""
TRANSFERS_MOST = 4
"""Answers to other agents that are made at a time."""
COMMAND_STATUS = {
    "command-malformed": 400, "command-signature": 401, "command-not-for-this-node": 403,
    "targets-unproven": 403, "queue-full": 503, "journal-full": 507,
}  # fmt: skip
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Reply = tuple[int, bytes, bytes]
"""Status, content type, body."""
JSON, MSGPACK = b"application/json", b"application/msgpack"


class Problem(Exception):
    """The request is not carried out; nothing was done."""

    def __init__(self, status: int, code: str, title: str) -> None:
        super().__init__(code)
        self.status, self.code, self.title = status, code, title


class Api:
    """The ASGI application of an agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._batch = msgspec.msgpack.Decoder(Batch)
        self._bodies = Bodies()
        self._commands = ThreadPoolExecutor(COMMANDS_MOST, "commands")
        self._transfers = ThreadPoolExecutor(TRANSFERS_MOST, "transfers")
        self._fetches = ThreadPoolExecutor(TRANSFERS_MOST, "gifts")
        self._routes: dict[tuple[str, str], Callable[[Scope, bytes], Awaitable[Reply]]] = {
            ("GET", "/healthz"): self._health,
            ("GET", "/v1/status"): self._status,
            ("GET", "/v1/inventory"): self._inventory,
            ("POST", "/v1/commands"): self._command,
            ("POST", REQUESTS): self._requests,
            ("POST", PATH): self._transfer,
            ("POST", GIFTS): self._gifts,
            ("POST", SESSIONS): self._sessions,
        }

    def close(self) -> None:
        """No more commands are answered."""
        self._commands.shutdown(wait=False, cancel_futures=True)
        self._transfers.shutdown(wait=False, cancel_futures=True)
        self._fetches.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One HTTP exchange."""
        if scope["type"] != "http":
            return
        if scope["method"] == "POST" and scope["path"] in (SERVE, PREFILL):
            await self._streamed(scope, receive, send)
            return
        try:
            route = self._routes.get((scope["method"], scope["path"]))
            if route is None:
                known = any(path == scope["path"] for _, path in self._routes)
                raise Problem(405, "method-not-allowed", "Method") if known else Problem(404, "not-found", "Not found")
            status, kind, body = await route(scope, await self._bodies.read(receive))
        except Problem as e:
            if scope["path"] == REQUESTS and e.code != "lease-over":  # those are counted where they are found
                self._agent.refused_ever[e.code] += 1
            status, kind, body = _refusal(e)
        await _answer(send, status, kind, body)

    async def _streamed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request on its road: a line an event, until it ended or nobody listens."""
        try:
            body = await self._bodies.read(receive)
            try:
                order = order_of(body)
            except (*UNREADABLE, msgspec.ValidationError):
                raise Problem(400, "request-malformed", "The body is not a request") from None
            await self._admit(order.ticket)
        except Problem as e:
            self._agent.refused_ever[e.code] += 1
            await _answer(send, *_refusal(e))
            return
        await self._agent.ready([order.request])
        road, apart = self._agent.serving.road, scope["path"] == PREFILL
        call = road.prefill if apart else road.serve
        await stream(lines(lambda say: call(order, say), goes_on=apart), receive, send)

    async def _gifts(self, scope: Scope, body: bytes) -> Reply:
        """What another node fetches of a request's blocks: it proves itself, and the answer is sealed for it alone."""
        loop, gifts = asyncio.get_running_loop(), self._agent.serving.gifts
        try:
            return 200, MSGPACK, await loop.run_in_executor(self._fetches, gifts.answer, body, self._good)
        except Denied as e:
            raise Problem(404 if e.code == "offer-unknown" else 403, e.code, "Nothing was given") from None

    def _good(self, ticket: Ticket) -> None:
        """Passes if the ticket is good; as `_admit`, from any thread and without asking for keys."""
        why = self._why(ticket)
        if why:
            raise Denied(why)

    async def _sessions(self, scope: Scope, body: bytes) -> Reply:
        """A session moves away: what it wrote is committed, how far is answered, and it is fenced here."""
        try:
            move = msgspec.msgpack.decode(body, type=SessionMove)
        except (*UNREADABLE, msgspec.ValidationError):
            raise Problem(400, "request-malformed", "The body is not a move of a session") from None
        await self._admit(move.ticket)
        done = await self._agent.serving.road.move(move.ticket.ns, move.session, move.version)
        return 200, MSGPACK, msgspec.msgpack.encode(done)

    async def _health(self, scope: Scope, body: bytes) -> Reply:
        return 200, JSON, b'{"status":"ok"}'

    async def _status(self, scope: Scope, body: bytes) -> Reply:
        return 200, JSON, msgspec.json.encode(self._agent.status())

    async def _inventory(self, scope: Scope, body: bytes) -> Reply:
        given = _header(scope, b"authorization")
        if not hmac.compare_digest(given, b"Bearer " + self._agent.drive_token.encode()):
            raise Problem(401, "not-authenticated", "The inventory needs the token in drive.token")
        held = await self._agent.inventory()
        if MSGPACK in _header(scope, b"accept"):
            return 200, MSGPACK, msgspec.msgpack.encode(held)
        return 200, JSON, msgspec.json.encode(held)

    async def _command(self, scope: Scope, body: bytes) -> Reply:
        loop = asyncio.get_running_loop()
        done = await loop.run_in_executor(self._commands, self._agent.executor.execute, body)
        if isinstance(done, str):
            raise Problem(COMMAND_STATUS.get(done, 409), done, "The command was not carried out")
        if isinstance(done, Running):  # the same command is sent again until it has its receipt
            return 202, JSON, msgspec.json.encode({"code": "running", **done._asdict()})
        return 200, JSON, msgspec.json.encode(done)

    async def _transfer(self, scope: Scope, body: bytes) -> Reply:
        """What another agent asks of an offer: it proves itself, and the answer is sealed for it alone."""
        loop = asyncio.get_running_loop()
        try:
            return 200, MSGPACK, await loop.run_in_executor(self._transfers, self._agent.desk.answer, body)
        except Denied as e:
            raise Problem(404 if e.code == "offer-unknown" else 403, e.code, "Nothing was given") from None

    async def _requests(self, scope: Scope, body: bytes) -> Reply:
        try:
            batch = self._batch.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, RecursionError):
            raise Problem(400, "request-malformed", "The body is not a batch of requests") from None
        if len(batch.requests) > REQUESTS_MAX:
            raise Problem(413, "request-too-large", "Too many requests in one batch")
        await self._admit(batch.ticket)
        if any(r.ns != batch.ticket.ns or r.gen != batch.ticket.gen for r in batch.requests):
            raise Problem(403, "ticket-scope", "The ticket is for another namespace or generation")
        results = await self._agent.handle(batch.requests)
        if results and all(r.code == "lease-over" for r in results):
            raise Problem(409, "lease-over", "The keys of this namespace generation are not leased to this node now")
        return 200, MSGPACK, msgspec.msgpack.encode({"results": results})

    async def _admit(self, ticket: Ticket) -> None:
        """Passes if the ticket is good under today's key, or under the one before it."""
        ring = self._agent.ring
        if not ring.ticket_keys:
            await self._agent.keeper.renew()
        if not ring.ticket_keys:
            raise Problem(409, "lease-over", "This node has no ticket key yet")
        if code := self._why(ticket):
            raise Problem(401, code, "The ticket is not good for this node now")

    def _why(self, ticket: Ticket) -> str:
        """Why the ticket is not good for this node now, "" if it is."""
        ring, node = self._agent.ring, self._agent.config.node
        why = [ticket_refusal(ticket, key, node=node, now=time.time()) for key in ring.ticket_keys]
        if None in why:
            return ""
        return next((w for w in why if w == "ticket-expired"), "ticket-invalid")


class Bodies:
    """The bodies that are being read: bounded each, together, and in time."""

    def __init__(self) -> None:
        self.reading = 0

    async def read(self, receive: Receive) -> bytes:
        """One body.

        Raises:
            Problem: it is too large, too slow, ended early, or too much is being read at once.
        """
        parts, size = [], 0
        try:
            async with asyncio.timeout(READ_SECONDS):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Problem(400, "request-malformed", "The body ended early")
                    part = message.get("body", b"")
                    size += len(part)
                    self.reading += len(part)
                    if size > BODY_MAX:
                        raise Problem(413, "request-too-large", "The body is over 8 MiB")
                    if self.reading > READING_MAX:
                        raise Problem(503, "queue-full", "Too much is being read at once")
                    parts.append(part)
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            raise Problem(400, "request-malformed", "The body did not come in time") from None
        finally:
            self.reading -= size


def _refusal(e: Problem) -> Reply:
    about = {"title": e.title, "status": e.status, "code": e.code, "detail": AGENT.get(e.code, "")}
    return e.status, b"application/problem+json", msgspec.json.encode({"type": f"/docs/problems/{e.code}", **about})


async def _answer(send: Send, status: int, kind: bytes, body: bytes) -> None:
    size = str(len(body)).encode()
    headers = [(b"content-type", kind), (b"content-length", size), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _header(scope: Scope, name: bytes) -> bytes:
    return next((bytes(v) for k, v in scope["headers"] if k == name), b"")


class _Server(uvicorn.Server):
    """uvicorn without its signal handling: `__main__` decides when to stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals alone."""
        yield


async def serve(agent: Agent, stop: asyncio.Event) -> None:
    """Serves and works until `stop` is set."""
    host, port = agent.config.address
    api = Api(agent)
    config = uvicorn.Config(
        api, host=host, port=port, lifespan="off", log_level="warning", access_log=False, ws="none",
        interface="asgi3", http="h11",  # which bounds the head of a request; bodies are counted above
        ssl_certfile=agent.config.tls_cert or None, ssl_keyfile=agent.config.tls_key or None,
        timeout_graceful_shutdown=2,
    )  # fmt: skip
    server = _Server(config)
    work = asyncio.create_task(agent.run())
    serving = asyncio.create_task(server.serve())
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({work, serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        server.should_exit = True
        work.cancel()
        stopping.cancel()
        outcomes = await asyncio.gather(work, serving, stopping, return_exceptions=True)
        await agent.close()
        api.close()
    for outcome in outcomes:
        if isinstance(outcome, Exception) and not isinstance(outcome, asyncio.CancelledError):
            raise outcome
