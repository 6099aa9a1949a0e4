"""Decides how much of a request's body signer and witness take in, and for how long."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

Receive = Callable[[], Awaitable[dict[str, Any]]]


async def whole(receive: Receive, *, most: int, seconds: float) -> bytes | None:
    """The body; None: it is longer than `most` bytes, took longer than `seconds`, or the caller went."""
    raw = bytearray()
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                raw += message.get("body", b"")
                if message["type"] == "http.disconnect" or len(raw) > most:
                    return None
                if not message.get("more_body"):
                    return bytes(raw)
    except TimeoutError:
        return None
