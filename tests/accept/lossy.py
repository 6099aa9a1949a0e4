"""A bad network between agents and the writer: frames lost, doubled, and delivered out of order in a window.

It stands where a load balancer would and speaks plain HTTP on both sides. What it loses, the agent sees as a broken
connection; what it holds back arrives later, among newer frames; what it doubles arrives twice.
"""

import asyncio
import random
import threading
from collections import Counter

import httpx
import uvicorn


class LossyProxy:
    """Forwards to `target`; `counts` says what was done to how many frames."""

    def __init__(
        self, target: str, *, seed: int = 1, drop: float = 0.05, double: float = 0.05, window: int = 50
    ) -> None:
        self.target, self.rnd = target, random.Random(seed)
        self.drop, self.double, self.window = drop, double, window
        self.counts: Counter[str] = Counter()
        self.calm = False
        self.held: list[tuple[str, bytes, dict[str, str]]] = []
        config = uvicorn.Config(
            self.app, host="127.0.0.1", port=0, log_level="error", lifespan="off", access_log=False, interface="asgi3"
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)

    def __enter__(self) -> "LossyProxy":
        self.thread.start()
        while not self.server.started:
            self.thread.join(0.01)
        port = self.server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self.thread.join(10)

    async def app(self, scope, receive, send) -> None:  # the ASGI signature
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        headers = {k.decode(): v.decode() for k, v in scope["headers"] if k in (b"authorization", b"content-type")}
        frame = scope["path"].endswith("/ingest/events")
        fate = self.rnd.random() if frame and not self.calm else 1.0
        if frame:
            self.counts["frames"] += 1
        if fate < self.drop:
            self.counts["dropped"] += 1
            return await _answer(send, 502, b"")
        if fate < 2 * self.drop:  # the frame arrives later, behind newer ones; the sender hears nothing
            self.counts["reordered"] += 1
            self.held.append((scope["path"], body, headers))
            return await _answer(send, 502, b"")
        async with httpx.AsyncClient(timeout=30, trust_env=False) as client:
            try:
                answer = await self.post(client, scope["path"], body, headers)
                if frame and not self.calm and self.rnd.random() < self.double:
                    self.counts["doubled"] += 1
                    await self.post(client, scope["path"], body, headers)
                await self.release(client)
            except httpx.HTTPError:
                return await _answer(send, 502, b"")
        kept = [(b"content-type", answer.headers.get("content-type", "application/msgpack").encode())]
        if "retry-after" in answer.headers:
            kept.append((b"retry-after", answer.headers["retry-after"].encode()))
        await _answer(send, answer.status_code, answer.content, kept)

    async def post(self, client: httpx.AsyncClient, path: str, body: bytes, headers: dict[str, str]) -> httpx.Response:
        return await client.post(self.target + path, content=body, headers=headers)

    async def release(self, client: httpx.AsyncClient) -> None:
        """Deliver some of what was held back; never let more than the window wait."""
        while self.held and (len(self.held) > self.window or self.rnd.random() < 1 / self.window * 4):
            path, body, headers = self.held.pop(self.rnd.randrange(len(self.held)))
            await self.post(client, path, body, headers)
            await asyncio.sleep(0)


async def _answer(send, status: int, body: bytes, headers=()) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [*headers, (b"content-length", str(len(body)).encode())],
        }
    )
    await send({"type": "http.response.body", "body": body})
