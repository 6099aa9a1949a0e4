"""Decides what a client of `kvc gateway` is answered: an OpenAI-compatible proxy, with our salt and not the client's.

Raw ASGI. A request is read with a limit and in a time, its tenant is known, the router says where it goes, and the
engine's answer passes untouched, piece by piece; who leaves ends the engine's work too. One steady clock measures all.
Nothing of a prompt is kept, logged or told.
"""

import asyncio
import contextlib
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import msgspec

from kvconsole.cli import gateway_body
from kvconsole.cli.gateway_config import Config, Secrets
from kvconsole.cli.gateway_keys import Callers, Keeper, Ring
from kvconsole.cli.gateway_passing import UNREACHED, Left, Receive, Refused, Run, Send, Wire
from kvconsole.cli.gateway_routes import Held, Routes, Way, Who

PROXIED = frozenset({"/v1/completions", "/v1/chat/completions"})
SAID = {
    b"x-kv-session": "session", b"x-kv-subject": "subject", b"x-kv-label": "label",
    b"x-kv-data-class": "data_class", b"x-kv-share-group": "share_group",
}  # fmt: skip
"""Headers in which a client says what its request is about; they do not reach the engine."""
SLO = {b"x-kv-slo-ttft-ms": "ttft_ms", b"x-kv-slo-tpot-ms": "tpot_ms"}
WORD_CHARS = 200
TYPES = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error"}


class Gateway:
    """The ASGI application."""

    def __init__(self, config: Config, held: Secrets, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        # engines close idle connections after five seconds, and a request on such a one would be lost
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=256, keepalive_expiry=4.0)
        timeout = httpx.Timeout(config.limits.pause_seconds, connect=config.limits.connect_seconds)
        self.config, self.ring, self.counts = config, Ring(), Counter[str]()
        self.client = httpx.AsyncClient(
            limits=limits, timeout=timeout, follow_redirects=False, transport=transport, trust_env=False
        )
        self.keeper = Keeper(self.ring, self.client, config.console_url, held.token)
        self.callers = Callers(held, self.client, config.console_url, tokens=config.tenant_tokens)
        self.routes = Routes(config, self.client, self.keeper, held.token, held.engine_key)
        self._engine_key = held.engine_key
        self._running: Counter[str] = Counter()

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """One request, or the life of the process."""
        if scope["type"] == "lifespan":
            return await self._lifespan(receive, send)
        if scope["type"] != "http":
            return None
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            headers[name] = headers[name] + b"," + value if name in headers else value
        wire = Wire(send, self.config.limits.send_seconds)
        try:
            await self._answer(scope, headers, receive, wire)
        except Left:
            self.counts["left"] += 1
        except Refused as refused:
            self.counts[f"refused {refused.code}"] += 1
            if not wire.started:
                await _refuse(wire, refused)
        except TimeoutError:
            self.counts["slow readers"] += 1  # the connection is closed: uvicorn sees an answer without its end
        return None

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        task: asyncio.Task[None] | None = None
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                task = asyncio.create_task(self.keeper.keep(self.config.renew_seconds))
                await send({"type": "lifespan.startup.complete"})
                continue
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            await self.routes.settle()
            await self.client.aclose()
            await send({"type": "lifespan.shutdown.complete"})
            return

    # ------------------------------------------------------------------ requests
    async def _answer(
        self, scope: Mapping[str, Any], headers: dict[bytes, bytes], receive: Receive, send: Wire
    ) -> None:
        path, method = scope["path"], scope["method"]
        if path == "/health":
            return await _json(send, 200, self.health())
        if path not in PROXIED and path != "/v1/models":
            raise Refused(404, "not-found", "There is no such path here.")
        if method != ("GET" if path == "/v1/models" else "POST"):
            raise Refused(405, "method-not-allowed", "The path has no such method.")
        tenant = await self._tenant(headers)
        async with self._place(tenant):
            if path == "/v1/models":
                return await self._models(send)
            return await self._proxied(path, tenant, headers, receive, send)

    async def _tenant(self, headers: dict[bytes, bytes]) -> str:
        try:
            tenant = await self.callers.tenant(headers)
        except (httpx.HTTPError, msgspec.MsgspecError):
            raise Refused(503, "unavailable", "Who calls cannot be asked now.", after=1) from None
        if tenant is None:
            raise Refused(401, "not-authenticated", "The key is not known.")
        return tenant

    @contextlib.asynccontextmanager
    async def _place(self, tenant: str) -> AsyncIterator[None]:
        """One of the places for requests, and of the tenant's."""
        limits = self.config.limits
        if self._running.total() >= limits.requests or self._running[tenant] >= limits.requests_per_tenant:
            raise Refused(429, "rate-limited", "Too many requests at once.", after=1)
        self._running[tenant] += 1
        try:
            yield
        finally:
            self._running[tenant] -= 1
            if not self._running[tenant]:
                del self._running[tenant]

    async def _proxied(self, path: str, tenant: str, headers: dict[bytes, bytes], receive: Receive, send: Wire) -> None:
        if headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != b"application/json":
            raise Refused(415, "unsupported-media-type", "The body must be application/json.")
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise Refused(415, "unsupported-media-type", "The body must not be encoded.")
        who = _who(tenant, headers)
        raw = await self._body(headers, receive)
        begun = time.perf_counter()
        try:
            body, dropped = gateway_body.cleaned(gateway_body.read(raw))
        except gateway_body.Unreadable as e:
            raise Refused(400, "bad-request", e.detail) from None
        self.counts["fields dropped"] += dropped
        work = asyncio.ensure_future(self._served(path, body, who, len(raw), begun, send))
        await _unless_left(work, receive, send)

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        most, said = self.config.limits.body_bytes, headers.get(b"content-length", b"")
        too_large = Refused(413, "body-too-large", f"A body has at most {most} bytes.")
        if said and (not said.isdigit() or int(said) > most):
            raise too_large
        chunks, size = [], 0
        try:
            async with asyncio.timeout(self.config.limits.read_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Left
                    chunks.append(message.get("body", b""))
                    size += len(chunks[-1])
                    if size > most:
                        raise too_large
                    if not message.get("more_body"):
                        return b"".join(chunks)
        except TimeoutError:
            raise Refused(408, "body-too-slow", "The body did not come in time.") from None

    async def _served(self, path: str, body: dict[str, Any], who: Who, size: int, begun: float, send: Send) -> None:
        """The engine's answer has passed, and its outcome is told."""
        try:
            way = await self.routes.way(body, who, size)
        except Held as held:
            raise Refused(429, "rate-limited", "The router takes no more for now.", after=held.seconds) from None
        run = Run(self, path, body, way, begun)
        try:
            await run.pass_through(send)
        except UNREACHED:
            self.counts["engines unreachable"] += 1
            self.routes.unreached(way.node)
            other = self.routes.next_engine(but={way.node})
            if other.node == way.node:
                raise Refused(502, "engine-unreachable", "No engine answers.", after=1) from None
            run = Run(self, path, body, msgspec.structs.replace(other, why="engine-unreachable"), begun)
            try:
                await run.pass_through(send)
            except UNREACHED:
                raise Refused(502, "engine-unreachable", "No engine answers.", after=1) from None

    def salt(self, way: Way) -> tuple[str, bool]:
        """The salt for a request, and whether it is the namespace's: one of its own where no lease lasts.

        Raises:
            Refused: without a lease nothing is served.
        """
        if way.salt and self.ring.may(way.salt):
            return way.salt, True
        if self.config.without_lease == "refuse":
            raise Refused(503, "no-lease", "The namespace's key is not leased now.", after=1)
        return secrets.token_urlsafe(32), False

    def engine_headers(self) -> dict[str, str]:
        """What engines are told beside the body: nothing of the client's."""
        made = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        made["Accept-Encoding"] = "identity"
        return made | ({"Authorization": f"Bearer {self._engine_key}"} if self._engine_key else {})

    async def _models(self, send: Send) -> None:
        engine = self.routes.next_engine()
        try:
            answer = await self.client.get(f"{engine.url.rstrip('/')}/v1/models", headers=self.engine_headers())
        except httpx.HTTPError:
            raise Refused(502, "engine-unreachable", "The engine does not answer.", after=1) from None
        kind = answer.headers.get("content-type", "application/json").encode("latin-1", "replace")
        await _plain(send, answer.status_code, answer.content, kind)

    def health(self) -> dict[str, Any]:
        """What is counted, of nobody in particular."""
        return {
            "status": "ok", "leases": self.ring.count(), "fence_seq": self.ring.fence_seq,
            "lease_failures": self.keeper.failures, "requests": self._running.total(),
            "counts": dict(sorted((self.counts + self.routes.counts).items())),
        }  # fmt: skip


async def _unless_left(work: "asyncio.Future[None]", receive: Receive, wire: Wire) -> None:
    """The work is done, or was ended because the client left before the answer's end."""
    leaving = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({work, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done() and not wire.ended:
            raise Left
        await work
    finally:
        for task in (work, leaving):
            task.cancel()
        await asyncio.gather(work, leaving, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _who(tenant: str, headers: Mapping[bytes, bytes]) -> Who:
    """What the headers say.

    Raises:
        Refused: a word is too long or has control characters, or a number is none above 0.
    """
    said: dict[str, Any] = {}
    for header, field in SAID.items():
        word = headers.get(header, b"").decode("latin-1").strip()
        if len(word) > WORD_CHARS or not word.isascii() or (word and not word.isprintable()):
            raise Refused(400, "bad-request", f"{header.decode()} is no word of at most {WORD_CHARS} characters.")
        said[field] = word
    for header, field in SLO.items():
        if header in headers:
            try:
                said[field] = float(headers[header])
            except ValueError:
                said[field] = -1.0
            if not 0 < said[field] < 1e9:
                raise Refused(400, "bad-request", f"{header.decode()} is no number of milliseconds above 0.")
    return Who(tenant=tenant, **said)


async def _refuse(send: Send, refused: Refused) -> None:
    kind = TYPES.get(refused.status, "invalid_request_error" if refused.status < 500 else "server_error")
    error = {"message": refused.text, "type": kind, "param": None, "code": refused.code}
    more = [(b"retry-after", str(refused.after).encode())] if refused.after else []
    more += [(b"www-authenticate", b"Bearer")] if refused.status == 401 else []
    more += [(b"connection", b"close")] if refused.status in (408, 413) else []
    await _plain(send, refused.status, msgspec.json.encode({"error": error}), b"application/json", more)


async def _json(send: Send, status: int, value: Any) -> None:
    await _plain(send, status, msgspec.json.encode(value), b"application/json")


async def _plain(
    send: Send, status: int, body: bytes, kind: bytes, more: list[tuple[bytes, bytes]] | None = None
) -> None:
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), *(more or ())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
