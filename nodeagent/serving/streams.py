"""Decides how the events of a request reach who asked: a line each, at once, and a sign of life where nothing happens.

What a caller that went away leaves behind depends on the work: a prefill goes on, because its blocks are as good for
the next one; a decode ends, because nobody would hear it. Called by `server`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

from nodeagent.serving.words import ALIVE_SECONDS, Event, Refused, encode

Work = Callable[[Callable[[Event], None]], Awaitable[None]]
_left: set[asyncio.Task[None]] = set()
"""Work that goes on although its caller went away."""


async def lines(work: Work, *, goes_on: bool) -> AsyncIterator[bytes]:
    """The events of the work as lines, until it has ended."""
    queue: asyncio.Queue[Event | None] = asyncio.Queue()
    task = asyncio.create_task(_run(work, queue))
    try:
        while True:
            try:
                event = await asyncio.wait_for(queue.get(), ALIVE_SECONDS)
            except TimeoutError:
                event = Event("alive")
            if event is None:
                return
            yield encode(event) + b"\n"
    finally:
        if not task.done():
            if goes_on:
                _left.add(task)
                task.add_done_callback(_left.discard)
            else:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


async def stream(
    events: AsyncIterator[bytes],
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
) -> None:
    """The lines are sent as they come; nothing more is asked of them when the caller has gone."""
    headers = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    gone = asyncio.create_task(_gone(receive))
    following: asyncio.Task[bytes] | None = None
    try:
        while not gone.done():
            following = asyncio.create_task(anext(events))  # type: ignore[arg-type]
            await asyncio.wait({following, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                break
            try:
                line = following.result()
            except StopAsyncIteration:
                break
            await send({"type": "http.response.body", "body": line, "more_body": True})
        if not gone.done():
            await send({"type": "http.response.body", "body": b""})
    finally:
        gone.cancel()
        if following is not None and not following.done():
            following.cancel()
        await asyncio.gather(gone, *([following] if following else []), return_exceptions=True)
        await events.aclose()  # type: ignore[attr-defined]


async def _gone(receive: Callable[[], Awaitable[MutableMapping[str, Any]]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _run(work: Work, queue: "asyncio.Queue[Event | None]") -> None:
    try:
        await work(queue.put_nowait)
    except Refused as e:
        queue.put_nowait(Event("refused", code=e.code))
    except Exception as e:
        queue.put_nowait(Event("refused", code="agent-error"))
        raise RuntimeError(f"a request ended with {type(e).__name__}") from e
    finally:
        queue.put_nowait(None)
