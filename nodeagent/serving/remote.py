"""Decides how a node has its blocks computed by another one and fetches them as they come, and when that one is lost.

The other node says something at least every fifth of a second; silence, a cut or a refusal ends the call within a
second. What was committed until then stays, everything else is free. Called by `road`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import msgspec

from kvcore.tickets import Peer, Ticket, peer_of
from kvcore.wire import UNREADABLE
from nodeagent.serving.fetching import Fetcher
from nodeagent.serving.receiving import Reservation
from nodeagent.serving.words import LOST_SECONDS, PREFILL, Event, Order, event_of
from nodeagent.transfer import Cut, Denied, Line

FETCHES_MOST = 16
"""Fetches that run at a time."""


class Lost(Exception):
    """The other node did not do it. `code` says how it is known: prefill-lost, or what it refused with."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Stopped(Exception):
    """Nobody wants the blocks any more."""


class FetchLimit:
    """Blocks that requests may have on their way from other nodes at a time. 0 = as many as there is room for."""

    def __init__(self, most: int) -> None:
        self.most, self.now = most, 0

    @contextlib.contextmanager
    def on_their_way(self, blocks: int) -> Iterator[None]:
        """Inside it so many are on their way.

        Raises:
            Lost: rate-limited: they would be too many, and are not waited for.
        """
        if self.most and self.now + blocks > self.most:
            raise Lost("rate-limited")
        self.now += blocks
        try:
            yield
        finally:
            self.now -= blocks


class Remote:
    """Calls to other nodes."""

    def __init__(self, fetcher: Fetcher, client: httpx.AsyncClient) -> None:
        self._fetcher, self._client = fetcher, client
        self._threads = ThreadPoolExecutor(FETCHES_MOST, "fetches")

    def close(self) -> None:
        """No more is fetched."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def prefill(
        self, order: Order, giver: Peer, ticket: Ticket, reservation: Reservation, heard: Callable[[Event], None]
    ) -> None:
        """The giver has computed the prompt, and all of it that it has is committed here.

        Args:
            order: of this node.
            giver: who computes; `ticket` is for it.
            ticket: for the giver.
            reservation: the room for the blocks.
            heard: called with each event of the giver.

        Raises:
            Lost: it refused, was silent, or went away. What was committed stays.
        """
        asked = msgspec.structs.replace(order, ticket=ticket, prefill="", floor=0)
        stop, more = asyncio.Event(), asyncio.Event()
        name = ticket.scope.decision if ticket.scope else ""
        fetching = asyncio.create_task(self._follow(giver, name, reservation, more, stop))
        try:
            async for event in self._events(giver, asked):
                heard(event)
                if event.at == "refused":
                    raise Lost(event.code)
                if event.at == "published":
                    more.set()
                if event.at == "finished":
                    break
                if fetching.done():
                    await fetching  # it ends early only by failing
            else:
                raise Lost("prefill-lost")
            stop.set()
            more.set()
            await fetching
        except (Cut, Denied) as e:
            raise Lost(e.code if isinstance(e, Denied) else "prefill-lost") from None
        finally:
            stop.set()
            more.set()
            if not fetching.done():
                fetching.cancel()
            await asyncio.gather(fetching, return_exceptions=True)

    async def _events(self, giver: Peer, order: Order) -> AsyncIterator[Event]:
        """The lines of the giver's answer, as they come.

        Raises:
            Lost: it was silent for too long, cannot be reached, or said what is no event.
        """
        body = msgspec.msgpack.encode(order)
        headers = {"Content-Type": "application/msgpack"}
        url = giver.url.rstrip("/") + PREFILL
        timeout = httpx.Timeout(LOST_SECONDS)
        try:
            async with self._client.stream("POST", url, content=body, headers=headers, timeout=timeout) as answer:
                if answer.status_code != 200:
                    raise Lost(_code(await answer.aread()))
                async for line in answer.aiter_lines():
                    yield event_of(line)
        except (httpx.HTTPError, httpx.InvalidURL, *UNREADABLE):
            raise Lost("prefill-lost") from None

    async def _follow(
        self, giver: Peer, name: str, reservation: Reservation, more: asyncio.Event, stop: asyncio.Event
    ) -> None:
        """Fetches what the gift grows by, until it is complete."""
        line: Line | None = None
        seen, over = 0, False
        while not over:
            await more.wait()
            more.clear()
            over = stop.is_set()  # what was published before that is still fetched
            if line is None:
                line = await self._threaded(self._fetcher.line, giver, name)
            seen, _ = await self._threaded(self._fetcher.fetch, line, giver, reservation, seen, _wanted(reservation))

    async def fetch(self, giver: Peer, ticket: Ticket, reservation: Reservation) -> int:
        """Fetches what the giver holds of the ticket's range; answers blocks committed.

        Raises:
            Lost: it refused or cannot be reached. What was committed stays.
        """
        try:
            return int(await self._threaded(self._fetch, giver, ticket, reservation))
        except Denied as e:
            raise Lost(e.code) from None
        except (Cut, Stopped):
            raise Lost("giver-lost") from None

    def _fetch(self, giver: Peer, ticket: Ticket, reservation: Reservation) -> int:
        self._fetcher.knock(giver, ticket)
        line = self._fetcher.line(giver, ticket.scope.decision if ticket.scope else "")
        return self._fetcher.fetch(line, giver, reservation, 0, _wanted(reservation))[1]

    async def _threaded(self, call: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *args)


def _wanted(reservation: Reservation) -> Callable[[], None]:
    def check() -> None:
        if reservation.closed:
            raise Stopped

    return check


def ticket_for(tickets: Sequence[Ticket], node: str) -> Ticket | None:
    """The ticket for a node among those that came along."""
    return next((t for t in tickets if t.node == node), None)


def giver_of(ticket: Ticket, node: str) -> Peer | None:
    """The node, if this ticket names it as one to fetch from."""
    return peer_of(ticket.scope, node, "giver") if ticket.scope else None


def _code(body: bytes) -> str:
    try:
        code = msgspec.json.decode(body).get("code", "")
    except (*UNREADABLE, AttributeError):
        code = ""
    return code if isinstance(code, str) and 0 < len(code) <= 63 else "prefill-lost"
