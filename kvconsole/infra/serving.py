"""Decides in which threads Django answers under ASGI, and what a `web` process does before its first request.

Django's own handler makes a thread for each request, and goes to and fro between it and the event loop at every second
middleware: that took longer than most answers of the API. Middleware and views of ours are all synchronous, so here a
request is one job, from its first middleware to its last, of a thread that stays. Sockets are not concerned.
"""

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.db import connections
from django.urls import set_script_prefix

THREADS = 64
"""More than there are connections in a pool: while PostgreSQL says nothing, those beyond still say that it is away."""
YOUNG = 20_000
"""Objects that come before the collector looks through the young ones; a page of a list makes some thousands."""
TURN_SECONDS = 0.001
"""For so long a thread that computes (the index, live frames) keeps others waiting; a request waits for its turn after
each of some six answers of PostgreSQL, with Python's 5 ms each time."""


class Handler(ASGIHandler):
    """Django as an ASGI application whose requests each keep to one thread."""

    def __init__(self, threads: int = THREADS) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="web")
        super().__init__()

    def load_middleware(self, is_async: bool = False) -> None:
        """The chain of middleware is synchronous, whatever is asked for."""
        super().load_middleware(is_async=False)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """One request is answered. A caller that hangs up is not waited for, but what it asked for is done."""
        if scope["type"] != "http":
            raise ValueError(f"a connection of type {scope['type']} is not Django's")
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        run = asyncio.get_running_loop().run_in_executor
        response = await run(self._threads, self._answer, scope, body)
        if not response.streaming:
            return await self.send_response(response, send)
        try:
            if not response.is_async:
                response.streaming_content = self._drawn(response.streaming_content)
            await self.send_response(response, send)
        finally:
            await run(self._threads, response.close)

    def _answer(self, scope: dict[str, Any], body: IO[bytes]) -> Any:
        """The answer; unless it streams, its connections are back in their pools."""
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=type(self), scope=scope)
        request, response = self.create_request(scope, body)
        if request is None:
            body.close()
        else:
            response = self.get_response(request)
        found: Any = response
        found._handler_class = type(self)
        if not found.streaming:
            _ = found.content  # an error of a late template is one of this thread
            found.close()
        return found

    async def _drawn(self, parts: Iterable[bytes]) -> AsyncIterator[bytes]:
        drawn, run = iter(parts), asyncio.get_running_loop().run_in_executor
        while (part := await run(self._threads, next, drawn, None)) is not None:
            yield part


def ready() -> None:
    """Nothing that a first request would wait for is left to do; called when everything is imported.

    Connections are being made. What is there by now stays, so the collector of cycles need not look at it again: with
    everything that Django and the routes are, that took a tenth of a second, in the midst of some request.
    """
    for alias in connections:
        pool = getattr(connections[alias], "pool", None)
        if pool is not None:
            pool.open(wait=False)
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 10, 10)
    sys.setswitchinterval(TURN_SECONDS)
