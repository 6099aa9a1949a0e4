"""Decides what comes in over HTTP: who speaks, how large it may be, and what is answered when.

Raw ASGI, because a framework would cost more than the fold. Bodies are read with a limit, decoded as far as needed to
know their source, and queued; the answer comes after the commit. Called by `manage.py ingest`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import UUID

import msgspec

from catalog.ingest import meters
from catalog.ingest.codes import CODES, STATUS, TITLES, Unavailable
from catalog.ingest.credentials import Credentials
from catalog.ingest.inventory import decode_heartbeat, decode_inventory
from catalog.ingest.jobs import Broken, Job, Message, Outcome, hint
from catalog.ingest.pipeline import Pipeline
from kvconsole.infra.addresses import origin
from kvconsole.infra.sql import uuid7
from kvcore.events import FRAME_BYTES_MAX, Refused, decode_frame
from kvcore.messages import Answer

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

READ_S = 20.0
ANSWER_S = 15.0
"""How long a request waits for its commit; then 503, and the same request may be sent again."""
READING_BYTES = 128 * 2**20
"""Bodies that are being read at once."""
HEARTBEAT_BYTES = 256 * 2**10
EVENTS, INVENTORY = "/api/v1/ingest/events", "/api/v1/ingest/inventory"
NODES, HEARTBEAT = "/api/v1/nodes/", ":heartbeat"

_answer = msgspec.msgpack.Encoder().encode
_json = msgspec.json.Encoder().encode


class Gone(Exception):
    """The other side closed the connection; nobody is answered."""


class Hot:
    """The ASGI application in front of one pipeline."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.credentials = Credentials()
        self.reading = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the life of the process."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        headers = {k.lower(): v for k, v in scope["headers"]}
        try:
            await self._route(scope, headers, receive, send)
        except Gone:
            return
        except Unavailable as e:
            meters.UNAVAILABLE.labels(e.code).inc()
            await _problem(send, headers, STATUS[e.code], e.code, "", retry=e.seconds)
        except Refused as e:
            await _problem(send, headers, STATUS.get(e.code, 400), e.code, e.detail)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        task: asyncio.Task[None] | None = None
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                task = asyncio.create_task(self.pipeline.run())
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.pipeline.stop()
                if task is not None:
                    await task
                self.credentials.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    # ------------------------------------------------------------------ routes
    async def _route(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        if path in ("/healthz", "/readyz", "/metrics"):
            if method not in ("GET", "HEAD"):
                await _problem(send, headers, 405, "method-not-allowed", "GET", allow=b"GET, HEAD")
                return
            await self._plain(path, send)
            return
        beating = path.startswith(NODES) and path.endswith(HEARTBEAT)
        if path not in (EVENTS, INVENTORY) and not beating:
            await _problem(send, headers, 404, "not-found", "")
            return
        if method != "POST":
            await _problem(send, headers, 405, "method-not-allowed", "POST", allow=b"POST")
            return
        started = time.perf_counter()
        peer, forwarded = (scope.get("client") or ("", 0))[0], headers.get(b"x-forwarded-for", b"").decode("latin-1")
        node = await self.credentials.node(headers.get(b"authorization", b""), origin(peer, forwarded))
        if node is None:
            meters.REFUSED.labels("foreign-token").inc()
            await _problem(send, headers, 401, "foreign-token", "a node's token is needed")
            return
        if self.pipeline.writer is None:
            raise Unavailable("shard-unavailable")
        try:
            body = await self._body(headers, receive, HEARTBEAT_BYTES if beating else FRAME_BYTES_MAX)
        except Refused as e:
            self.pipeline.note(Broken(node, "", 0, e.code, e.detail))
            raise
        message = self._decode(node, path, body)
        outcome = await self._wait(node, message, len(body))
        if isinstance(outcome, Answer):
            await _respond(send, 200, _answer(outcome), b"application/msgpack")
            meters.ANSWER_SECONDS.observe(time.perf_counter() - started)
            return
        raise outcome

    def _decode(self, node: UUID, path: str, body: bytes) -> Message:
        """The message; what is wrong with it is counted with the source it names, or with the node.

        Raises:
            Refused: nothing of it will be folded.
        """
        try:
            if path == EVENTS:
                frame = decode_frame(body)
                return _of(frame, node, frame.node)
            if path == INVENTORY:
                message = decode_inventory(body)
                return _of(message, node, message.node)
            return _of(decode_heartbeat(body), node, path[len(NODES) : -len(HEARTBEAT)])
        except Refused as e:
            source, rank = ("", 0) if e.code == "foreign-token" else hint(body)
            self.pipeline.note(Broken(node, source, rank, e.code, e.detail))
            raise

    async def _wait(self, node: UUID, message: Message, size: int) -> Outcome:
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def settle(outcome: Outcome) -> None:
            if not future.done():
                future.set_result(outcome)

        job = Job(node, message, size + 512, settle)
        self.pipeline.submit(job)
        try:
            return await asyncio.wait_for(future, ANSWER_S)
        except TimeoutError:
            raise Unavailable("shard-unavailable") from None
        finally:
            job.given_up = True

    async def _body(self, headers: dict[bytes, bytes], receive: Receive, most: int) -> bytes:
        said = headers.get(b"content-length")
        if said is not None and (not said.isdigit() or int(said) > most):
            raise Refused("frame-too-large", f"{said[:20].decode('latin-1')} bytes")
        if self.reading > READING_BYTES:
            raise Unavailable("queue-full")
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(READ_S):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Gone
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    self.reading += len(chunk)
                    if size > most:
                        raise Refused("frame-too-large", f"more than {most} bytes")
                    if self.reading > READING_BYTES:  # many that began together grow together
                        raise Unavailable("queue-full")
                    chunks.append(chunk)
                    if not message.get("more_body"):
                        return b"".join(chunks)
        except TimeoutError:
            raise Refused("truncated-frame", "the body did not come") from None
        finally:
            self.reading -= size

    async def _plain(self, path: str, send: Send) -> None:
        if path == "/healthz":
            await _respond(send, 200, b'{"status":"ok"}', b"application/json")
        elif path == "/metrics":
            await _respond(send, 200, meters.text(), b"text/plain; version=0.0.4; charset=utf-8")
        else:
            status, body = self.pipeline.readiness()
            await _respond(send, status, _json(body), b"application/json")


def _of(message: Message, node: UUID, said: str) -> Message:
    """The message, if it speaks for the node whose token came with it."""
    try:
        same = UUID(said) == node
    except ValueError:
        same = False
    if not same:
        raise Refused("foreign-token", "the token is another node's")
    return message


async def _respond(
    send: Send, status: int, body: bytes, kind: bytes, extra: list[tuple[bytes, bytes]] | None = None
) -> None:
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), *(extra or ())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _problem(
    send: Send,
    headers: Mapping[bytes, bytes],
    status: int,
    code: str,
    detail: str,
    *,
    retry: float | None = None,
    allow: bytes = b"",
) -> None:
    given = headers.get(b"x-request-id", b"").decode("latin-1")
    request_id = given if 0 < len(given) <= 64 and given.isascii() and given.isprintable() else str(uuid7())
    body: dict[str, Any] = {
        "type": f"/docs/problems/{code}",
        "title": CODES.get(code) or TITLES.get(status, code),
        "status": status,
        "detail": detail,
        "code": code,
        "request_id": request_id,
        "errors": [],
    }
    extra = [(b"x-request-id", request_id.encode())]
    if retry is not None:
        body["retry_after_seconds"] = retry
        extra.append((b"retry-after", str(max(1, round(retry))).encode()))
    if status == 401:
        extra.append((b"www-authenticate", b'Bearer realm="kv-console"'))
    if allow:
        extra.append((b"allow", allow))
    if status == 413:
        extra.append((b"connection", b"close"))
    await _respond(send, status, _json(body), b"application/problem+json", extra)
