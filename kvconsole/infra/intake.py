"""Decides how much of a body is taken in, and for how long, before anything else sees the request.

Raw ASGI, outside of everything in `web`: Django reads a body to its end, and onto the disk where it is long, before the
first middleware is asked who calls. Here a length that says too much is refused unread, what comes in pieces is counted
as it comes, and whoever takes too long is hung up on. `limits` still measures what comes by another server.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from django.http import HttpResponse

from kvconsole.infra.limits import BODY_BYTES
from kvconsole.infra.rest import Problem, unasked

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[..., Awaitable[None]]
Tell = Callable[[str, str, int], None]
Leave = Callable[[Scope, HttpResponse], Awaitable[None]]

READ_SECONDS = 20.0
"""How long a whole body may take, from the end of the headers on."""
TOGETHER_BYTES = 128 * 2**20
"""Of all bodies of requests that are not answered yet; many that are small are large together."""
LINGER_SECONDS, LINGER_BYTES = 2.0, 8 * 2**20
"""What is still read, and thrown away, behind a refusal: who is cut off while sending never sees the answer."""

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{status} · KV Console</title></head><body>
<p>What you sent was not taken in, and nothing was changed. <a href="/docs/problems/{code}">What this means</a></p>
<p lang="zh-Hans">您发送的内容未被接收，没有做任何改动。<a href="/docs/problems/{code}">这意味着什么</a></p>
</body></html>
"""
"""For people, in both languages: at this point nobody has been asked which one it is."""


def _nobody(method: str, code: str, status: int) -> None:
    """Nobody is told."""


async def _nothing(scope: Scope, response: HttpResponse) -> None:
    """Nothing is left behind."""


class Intake:
    """ASGI: hands on requests whose bodies are neither too long nor too slow, and answers the others itself."""

    def __init__(
        self, app: App, *, most: int = BODY_BYTES, seconds: float = READ_SECONDS, together: int = TOGETHER_BYTES,
        tell: Tell = _nobody, leave: Leave = _nothing,
    ) -> None:  # fmt: skip
        """`tell(method, code, status)` hears of each refusal; `leave(scope, response)` leaves its evidence."""
        self.app, self.most, self.seconds, self.together, self.tell = app, most, seconds, together, tell
        self.leave, self.held = leave, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The answer of the application, or a refusal."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        headers = {name.lower(): value for name, value in scope["headers"]}
        if said(headers.get(b"content-length", b"")) > self.most:
            return await self._refuse("body-too-large", scope, headers, receive, send)
        body, begun = Body(self, receive), False

        async def answer(message: Message) -> None:
            nonlocal begun
            if not body.refusal:
                begun = True
                await send(message)

        try:
            await self.app(scope, body.receive, answer)
        finally:
            self.held -= body.size
        if body.refusal and not begun:
            await self._refuse(body.refusal, scope, headers, receive, send)

    async def _refuse(self, code: str, scope: Scope, headers: dict[bytes, bytes], receive: Receive, send: Send) -> None:
        problem = Problem(code, retry_after_seconds=1 if code == "unavailable" else None)
        response = unasked(problem, headers.get(b"x-request-id", b"").decode("latin-1"))
        self.tell(str(scope["method"]), code, problem.status_code)
        content, kind = response.content, response.headers["Content-Type"]
        if b"text/html" in headers.get(b"accept", b""):
            content, kind = PAGE.format(status=problem.status_code, code=code).encode(), "text/html; charset=utf-8"
        fields = {**response.headers, "Content-Type": kind, "Content-Length": str(len(content)), "Connection": "close"}
        raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in fields.items()]
        await send({"type": "http.response.start", "status": response.status_code, "headers": raw})
        await send({"type": "http.response.body", "body": content, "more_body": True})
        if code == "body-too-large" and b"expect" not in headers:
            await _linger(receive)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        await self.leave(scope, response)


class Body:
    """One body on its way in; `refusal` is the code of why it was cut, "" while it is not."""

    def __init__(self, intake: Intake, receive: Receive) -> None:
        self.intake, self._receive = intake, receive
        self.until = time.monotonic() + intake.seconds
        self.size, self.whole, self.refusal = 0, False, ""

    async def receive(self) -> Message:
        """The next piece. For the application somebody whose body is cut has hung up."""
        if self.refusal:
            return {"type": "http.disconnect"}
        if self.whole:
            return await self._receive()
        try:
            async with asyncio.timeout(max(0.0, self.until - time.monotonic())):
                message = await self._receive()
        except TimeoutError:
            return self._cut("body-too-slow")
        piece = len(message.get("body", b""))
        self.size, self.intake.held = self.size + piece, self.intake.held + piece
        self.whole = not message.get("more_body")
        if self.size > self.intake.most:
            return self._cut("body-too-large")
        return self._cut("unavailable") if self.intake.held > self.intake.together else message

    def _cut(self, code: str) -> Message:
        self.refusal = code
        return {"type": "http.disconnect"}


def said(length: bytes) -> int:
    """What a Content-Length says; 0 for what is no number, which the server refuses or the count finds."""
    return int(length) if length.isdigit() and len(length) < 20 else 2**63 if length.isdigit() else 0


async def _linger(receive: Receive) -> None:
    size = 0
    try:
        async with asyncio.timeout(LINGER_SECONDS):
            while size < LINGER_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    return
    except TimeoutError:
        return
