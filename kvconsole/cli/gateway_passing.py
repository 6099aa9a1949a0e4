"""Decides how one request passes through an engine: bytes untouched, times by one clock, one outcome.

A client that reads too slowly, or leaves, ends the engine's work. Called by `gateway_app`.
"""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

import httpx

from kvconsole.cli import gateway_body
from kvconsole.cli.gateway_routes import Way

if TYPE_CHECKING:
    from kvconsole.cli.gateway_app import Gateway

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
UNREACHED = (httpx.ConnectError, httpx.ConnectTimeout)


class Refused(Exception):
    """What the client is answered instead."""

    def __init__(self, status: int, code: str, text: str, *, after: int = 0) -> None:
        super().__init__(code)
        self.status, self.code, self.text, self.after = status, code, text, after


class Left(Exception):
    """The client is gone; nobody is answered."""


class Wire:
    """The way to the client: each answer has an id, and who reads too slowly is left."""

    def __init__(self, send: Send, seconds: float) -> None:
        self.started = self.ended = False
        self._send, self._seconds = send, seconds

    async def __call__(self, message: Message) -> None:
        """The message has gone.

        Raises:
            TimeoutError: the client did not take it.
        """
        if message["type"] == "http.response.start":
            self.started = True
            message = {**message, "headers": [*message["headers"], (b"x-request-id", str(uuid.uuid4()).encode())]}
        elif not message.get("more_body"):
            self.ended = True
        async with asyncio.timeout(self._seconds):
            await self._send(message)


class Run:
    """One request at one engine: its bytes pass, its times are taken."""

    def __init__(self, gateway: "Gateway", path: str, body: dict[str, Any], way: Way, begun: float) -> None:
        self.gateway, self.path, self.body, self.way = gateway, path, body, way
        self.begun, self.sent, self.first, self.ended = begun, 0.0, 0.0, 0.0
        self.shared, self.seen = False, gateway_body.Answer(streamed=body.get("stream") is True)
        self.status = 0

    async def pass_through(self, send: Send) -> None:
        """The whole answer has gone to the client, and the outcome to the router.

        Raises:
            ConnectError: the engine was not reached; nothing was sent to the client.
        """
        salt, self.shared = self.gateway.salt(self.way)
        state = "cancelled"
        try:
            state = await self._pass(gateway_body.salted(self.body, salt), send)
        except UNREACHED:
            state = ""  # told by whoever goes elsewhere
            raise
        finally:
            self.ended = time.perf_counter()
            if state:
                self.gateway.counts[f"requests {state}"] += 1
                self.gateway.routes.report(self.way, self.outcome())

    async def _pass(self, content: bytes, send: Send) -> str:
        limits, client = self.gateway.config.limits, self.gateway.client
        self.sent = time.perf_counter()
        request = client.build_request(
            "POST", f"{self.way.url.rstrip('/')}{self.path}", content=content, headers=self.gateway.engine_headers(),
            timeout=httpx.Timeout(limits.pause_seconds, connect=limits.connect_seconds),
        )  # fmt: skip
        try:
            async with asyncio.timeout(limits.first_byte_seconds):
                answer = await client.send(request, stream=True)
        except UNREACHED:
            raise
        except (TimeoutError, httpx.HTTPError):
            raise Refused(504, "engine-silent", "The engine did not answer in time.") from None
        self.status = answer.status_code
        try:
            await send({"type": "http.response.start", "status": answer.status_code, "headers": self._headers(answer)})
            async for chunk in answer.aiter_raw():
                if self.seen.pass_(chunk):
                    self.first = time.perf_counter()
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except httpx.HTTPError:
            return "broken"
        finally:
            await answer.aclose()
        return "ok" if answer.status_code < 400 else "failed"

    def _headers(self, answer: httpx.Response) -> list[tuple[bytes, bytes]]:
        kept = [(b"content-type", answer.headers.get("content-type", "application/json").encode("latin-1", "replace"))]
        for name in ("content-length", "content-encoding", "retry-after"):
            if name in answer.headers and name.isascii():
                kept.append((name.encode(), answer.headers[name].encode("latin-1", "replace")))
        told = f"decided; decision={self.way.decision}" if self.way.decision else f"round-robin; why={self.way.why}"
        reuse = "namespace" if self.shared else "none"
        return [*kept, (b"cache-control", b"no-store"), (b"x-kv-route", told.encode()), (b"x-kv-reuse", reuse.encode())]

    def outcome(self) -> dict[str, Any]:
        """What is told of the request: its time to the first token, measured here. Nothing where there was none.

        What is left out was not measured: an answer in one piece has no first token, and an engine that is asked over
        HTTP says nothing of its queue.
        """
        if self.status != 200 or not self.first or not self.seen.streamed:
            return {}
        said: dict[str, Any] = {
            "ttft_ms": round((self.first - self.begun) * 1000, 3),
            "terms": {"router": round((self.sent - self.begun) * 1000, 3)},
        }
        _, cached = self.seen.usage()
        return said if cached is None else said | {"hit_tokens": cached}
