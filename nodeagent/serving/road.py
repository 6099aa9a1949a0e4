"""Decides how a request goes its seven steps on this node: routed, computed, published, reserved, transferred, decoded
on committed blocks only, and settled.

The node that decodes leads: it reserves, calls the node that computes, takes the ranges as they are published, and
marks each step by its own clock. Whatever fails on the way (a node dies, a ticket is refused, a block is not what it
should be) ends in computing here what is missing. Called by `server`; belongs to the event loop.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import msgspec

from kvcore.keys import KEY_BYTES
from nodeagent.demotion import Relief
from nodeagent.meters import Meters
from nodeagent.serving.computing import Computer
from nodeagent.serving.flights import Flights
from nodeagent.serving.gifts import Gift, Gifts
from nodeagent.serving.keeping import settle
from nodeagent.serving.marks import Faults, Marks
from nodeagent.serving.receiving import Receiver, Reservation
from nodeagent.serving.remote import FetchLimit, Lost, Remote, giver_of, ticket_for
from nodeagent.serving.sessions import Sessions
from nodeagent.serving.trips import Say, Trip, readable
from nodeagent.serving.words import Event, Order, Range, Refused
from nodeagent.turns import Turns

TRIES = 4
"""How often a request looks again at what is here, before what is missing is computed without waiting for anybody."""
RECENT = 256


class Road:
    """The requests of one node."""

    def __init__(
        self, computer: Computer, gifts: Gifts, receiver: Receiver, remote: Remote, relief: Relief, *,
        node: str, prefills: Turns, decodes: Turns, credits: Turns, limit: FetchLimit, meters: Meters,
        faults: Faults, tpot_ms: float, scale: float,
    ) -> None:  # fmt: skip
        self.computer, self.gifts, self.receiver, self.remote = computer, gifts, receiver, remote
        self.sessions, self.flights, self.faults = Sessions(), Flights(), faults
        self._relief, self._node, self._meters = relief, node, meters
        self._prefills, self._decodes, self._credits, self._limit = prefills, decodes, credits, limit
        self._tpot_ms, self._scale = tpot_ms, scale
        self.counts: Counter[str] = Counter()
        self.recent: deque[dict[str, Any]] = deque(maxlen=RECENT)
        """Outcomes of the requests that ended last."""
        self._tails: set[asyncio.Task[None]] = set()
        self._pool = computer.pool

    # The node that decodes

    async def serve(self, order: Order, say: Say) -> None:
        """The request has its first token, and its end is told.

        Raises:
            Refused: it is not carried out here.
        """
        marks = Marks()
        say(Event("arrived"))
        trip = await self._begin(order, say, marks)
        reservation: Reservation | None = None
        tail = False
        try:
            await self._session(trip)
            missing = trip.prompt.blocks - self.computer.known(trip.prompt, trip.readable)
            apart = order.prefill not in ("", self._node)
            reservation = self.receiver.reserve(f"{trip.decision}/{id(trip)}", trip.prompt, missing if apart else 0)
            await self._fill(trip, reservation, apart)
            for event in ("admitted", "loaded", "computed"):
                trip.step(event)
            await self.faults.strike("transfer")
            self.receiver.end(reservation)
            trip.step("committed", blocks=trip.here)
            if trip.hit_blocks < trip.floor:
                self.sessions.recomputed += 1
            await self._decode(trip)
            tail = True
        finally:
            if reservation is not None:
                self.receiver.end(reservation)
            if not tail:
                await self.computer.release(trip.held)

    async def _begin(self, order: Order, say: Say, marks: Marks) -> Trip:
        scope = order.ticket.scope
        if scope is None or (order.request.ns, order.request.gen) != (order.ticket.ns, order.ticket.gen):
            raise Refused("ticket-scope")
        prompt = await self.computer.open(order.request)
        return Trip(order, prompt, readable(scope, prompt), say, marks)

    async def _session(self, trip: Trip) -> None:
        """The session may be served here; what it wrote here is committed, and may be read whatever the router knew."""
        order, request, prompt = trip.order, trip.order.request, trip.prompt
        if not request.session:
            return
        if not self.sessions.admitted(request.ns, request.session, order.version):
            raise Refused("session-fenced")
        if await self.computer.worker(self.computer.flush, request.ns, request.session):
            self.sessions.waited += 1
        known = self.sessions.of(request.ns, request.session)
        if known is not None and 0 < known.blocks <= prompt.blocks and prompt.key(known.blocks - 1) == known.last:
            trip.readable = max(trip.readable, known.blocks)
            trip.floor = known.blocks
        trip.floor = max(trip.floor, min(order.floor, prompt.blocks))

    async def _fill(self, trip: Trip, reservation: Reservation, apart: bool) -> None:
        """All blocks of the prompt are committed here, or were computed here for this very request."""
        prompt = trip.prompt
        for attempt in range(TRIES):
            known = self.computer.known(prompt, max(trip.readable, trip.here))
            flight = self.flights.of(prompt.key(known)) if known < prompt.blocks else None
            if flight is not None and attempt < TRIES - 1:
                self.flights.joined += 1
                await flight.wait()
                trip.here = self.computer.known(prompt, prompt.blocks)
                trip.joined_blocks += max(trip.here - known, 0)
                continue
            mine = self.flights.begin(prompt.chain[known * KEY_BYTES :])
            try:
                if apart and known < prompt.blocks and not trip.asked:
                    await self._elsewhere(trip, reservation, known)
                else:
                    await self._here(trip, reservation)
                    return
            finally:
                self.flights.end(mine)
        await self._here(trip, reservation)

    async def _elsewhere(self, trip: Trip, reservation: Reservation, known: int) -> None:
        """The other node computes and gives; what comes of it is here."""
        order, before = trip.order, self.receiver.committed_blocks
        trip.asked, trip.base = True, known
        giver, ticket = giver_of(order.ticket, order.prefill), ticket_for(order.tickets, order.prefill)

        def heard(event: Event) -> None:
            if event.at in ("admitted", "loaded", "computed"):
                trip.step(event.at)
            elif event.at == "published":
                trip.say("published", blocks=event.blocks)
            if event.at == "finished" and event.outcome:
                self._took(trip, event.outcome, known)

        try:
            if giver is None or ticket is None:
                raise Lost("ticket-scope")
            async with self._credits.turn(self._meters.prefill_ms(0, order.request.input_length)):
                await self.remote.prefill(order, giver, ticket, reservation, heard)
        except Lost as e:
            self.receiver.end(reservation)  # what was not committed is free before anything is computed again
            trip.lost = True
            self._fall_back(trip, e.code)
        trip.fetched_blocks += self.receiver.committed_blocks - before
        trip.here = self.computer.known(trip.prompt, trip.prompt.blocks)

    def _took(self, trip: Trip, outcome: dict[str, Any], known: int) -> None:
        """What the other node read and computed is this request's: it reads no more than it found, here or there."""
        trip.hit_blocks = max(int(outcome.get("hit_blocks", 0)), known)
        trip.computed_tokens = max(int(outcome.get("computed_tokens", 0)), 0)
        trip.joined_blocks += int(outcome.get("joined_blocks", 0))
        trip.tiers.update({str(k): int(v) for k, v in dict(outcome.get("tiers", {})).items()})
        if broke := str(outcome.get("broke", "")):
            trip.broken(broke)

    def _fall_back(self, trip: Trip, code: str) -> None:
        trip.broken(code)
        trip.fell_back[code] = round(trip.marks.ms(), 3)
        self.counts[f"fell-back:{code}"] += 1
        trip.say("fell-back", code=code)

    async def _here(self, trip: Trip, reservation: Reservation | None, gift: Gift | None = None) -> None:
        """Loads what is here, fetches what the plan says, computes the rest, in this node's turn."""
        prompt, request = trip.prompt, trip.order.request
        limit = max(trip.readable, trip.here)
        known = self.computer.known(prompt, limit)
        rest = request.input_length - known * prompt.space.block_tokens
        already = trip.computed_tokens > 0 or trip.marks.has("computed")
        if already and known >= prompt.blocks:  # the other node has done all of it; what is here is only loaded
            trip.here, _ = await self.computer.load(prompt, known, trip.held)
            return
        publish = self._publisher(trip, gift)
        await self.faults.strike("queue_p")
        async with self._prefills.turn(self._meters.prefill_ms(known * prompt.space.block_tokens, rest)):
            trip.step("admitted")
            at, tiers = await self.computer.load(prompt, known, trip.held)
            if at < known:
                trip.broken("unreadable")
            publish(at)
            if reservation is not None or gift is not None:
                at = await self._planned(trip, at, publish)
            await self.faults.strike("cache_load")
            trip.step("loaded", blocks=at)
            trip.tiers.update(tiers)
            trip.hit_blocks = max(trip.hit_blocks, trip.base if trip.lost else at)
            tokens = await self.computer.compute(prompt, at, trip.held, publish)
            await self.faults.strike("prefill")
            trip.computed_tokens = request.input_length - trip.hit_blocks * prompt.space.block_tokens
            trip.here = prompt.blocks
            self.counts["computed-tokens"] += tokens
        trip.step("computed")

    def _publisher(self, trip: Trip, gift: Gift | None) -> Callable[[int], None]:
        def publish(upto: int) -> None:
            if gift is not None and (there := self.gifts.grow(gift, trip.prompt.chain, upto)):
                trip.say("published", blocks=there)

        return publish

    async def _planned(self, trip: Trip, at: int, publish: Callable[[int], None]) -> int:
        """Fetches the remote ranges of the plan that begin where the blocks here end; answers how far it came."""
        for part in sorted(trip.order.plan, key=lambda r: r.from_block):
            if at < part.from_block or (part.source == "local" and at < part.to_block):
                trip.broken("not-here")  # a part that was counted on has gone, and what is behind it is of no use
            if part.source == "remote" and part.node != self._node and part.from_block <= at < part.to_block:
                at = await self._range(trip, part, at)
                publish(at)
        return at

    async def _range(self, trip: Trip, part: Range, at: int) -> int:
        giver, ticket = giver_of(trip.order.ticket, part.node), ticket_for(trip.order.tickets, part.node)
        upto, fetched = min(part.to_block, trip.prompt.blocks), 0
        try:
            if giver is None or ticket is None:
                raise Lost("ticket-scope")
            with self._limit.on_their_way(upto - at):
                room = self.receiver.reserve(f"{trip.decision}/{part.node}", trip.prompt, upto - at)
                try:
                    fetched = await self.remote.fetch(giver, ticket, room)
                    if room.refused:
                        raise Lost(max(room.refused, key=lambda c: room.refused[c]))
                finally:
                    self.receiver.end(room)
        except (Lost, Refused) as e:
            self._fall_back(trip, e.code)
        trip.fetched_blocks += fetched
        came = self.computer.known(trip.prompt, min(max(trip.readable, at + fetched), upto))
        if came > at:
            trip.tiers["fetched"] += (came - at) * trip.prompt.space.block_tokens
            came, _ = await self.computer.load(trip.prompt, came, trip.held, at)
        return max(came, at)

    # Steps 6 and 7

    async def _decode(self, trip: Trip) -> None:
        """The first token is out; what comes after goes on in its slot."""
        first = asyncio.get_running_loop().create_future()
        tail = asyncio.create_task(self._decoding(trip, first))
        self._tails.add(tail)
        tail.add_done_callback(self._tails.discard)
        try:
            await first
        except asyncio.CancelledError:
            tail.cancel()
            await asyncio.gather(tail, return_exceptions=True)
            raise
        trip.say("done", outcome=trip.outcome())

    async def _decoding(self, trip: Trip, first: "asyncio.Future[None]") -> None:
        request = trip.order.request
        pace = self._tpot_ms * self._scale
        try:
            await self.faults.strike("queue_d")
            async with self._decodes.turn(pace * max(request.output_length, 1)):
                trip.step("turn")
                began = time.perf_counter()
                tiers = dict(trip.tiers)
                trip.saved_ms = await self.computer.begin(trip.prompt, trip.held, trip.hit_blocks, tiers)
                await self.faults.strike("first_decode")
                await asyncio.sleep(max(0.0, pace / 1000.0 - (time.perf_counter() - began)))
                trip.step("first")
                self._meters.decoded((time.perf_counter() - began) * 1000.0)
                if not first.done():
                    first.set_result(None)
                await self._settle(trip, pace * max(request.output_length - 1, 0) / 1000.0)
        except BaseException as e:
            if not first.done():
                first.set_exception(e)
                return
            raise

    async def _settle(self, trip: Trip, seconds: float) -> None:
        """The rest of the decode takes its time; then it is decided what becomes of the blocks."""
        await asyncio.sleep(seconds)
        request = trip.order.request
        verdict = await self.computer.worker(settle, self._pool, self._relief, trip.prompt, trip.here, time.time())
        record = trip.outcome() | {"settled": msgspec.to_builtins(verdict), "node": self._node}
        self.recent.append(record | {"request": request.request[:64], "decision": trip.decision})
        self.counts["done"] += 1
        for name, blocks in verdict.blocks.items():
            self.counts[f"settled:{name}"] += blocks

    # The node that computes

    async def prefill(self, order: Order, say: Say) -> None:
        """The prompt is computed as far as it was not here, and published range by range to whom the ticket names.

        It goes on where its caller went away: what is computed is as good for the next one.

        Raises:
            Refused: it is not carried out here.
        """
        marks = Marks()
        say(Event("arrived"))
        trip = await self._begin(order, say, marks)
        scope = order.ticket.scope
        takers = tuple(p for p in scope.peers if p.role == "taker") if scope else ()
        if not takers:
            raise Refused("ticket-scope")
        gift = self.gifts.begin(trip.decision, takers)
        try:
            await self._shared(trip, gift)
            trip.say("published", blocks=self.gifts.grow(gift, trip.prompt.chain, trip.prompt.blocks))
            outcome = {
                "hit_blocks": trip.hit_blocks, "computed_tokens": trip.computed_tokens, "tiers": dict(trip.tiers),
                "joined_blocks": trip.joined_blocks, "fell_back": trip.fell_back, "broke": trip.broke,
            }  # fmt: skip
            trip.say("finished", outcome=outcome)
        finally:
            await self.computer.release(trip.held)

    async def _shared(self, trip: Trip, gift: Gift) -> None:
        """As `_fill` for blocks that are given away: joined where they are computed already."""
        prompt = trip.prompt
        for _ in range(TRIES):
            known = self.computer.known(prompt, max(trip.readable, trip.here))
            flight = self.flights.of(prompt.key(known)) if known < prompt.blocks else None
            if flight is None:
                break
            self.flights.joined += 1
            await flight.wait()
            trip.here = self.computer.known(prompt, prompt.blocks)
            trip.joined_blocks += max(trip.here - known, 0)
        known = self.computer.known(prompt, max(trip.readable, trip.here))
        mine = self.flights.begin(prompt.chain[known * KEY_BYTES :])
        try:
            await self._here(trip, None, gift)
        finally:
            self.flights.end(mine)

    async def move(self, ns: bytes, session: str, version: int) -> dict[str, Any]:
        """The session has left: what it held back is committed, how far it wrote is said, late turns are refused."""
        await self.computer.worker(self.computer.flush, ns, session)
        written = self.sessions.fence(ns, session, version)
        return {"blocks": written.blocks, "last": written.last, "version": written.version}

    # Upkeep

    def upkeep(self, now: float) -> None:
        """Gifts and reservations whose time is over hold nothing."""
        self.gifts.expire(now)
        self.receiver.expire(now)

    def fence(self, fenced: Callable[[bytes, int], bool]) -> None:
        """Nothing of fenced generations is taken any more."""
        self.receiver.cancel(fenced)

    async def close(self) -> None:
        """Nothing goes on."""
        for tail in list(self._tails):
            tail.cancel()
        await asyncio.gather(*self._tails, return_exceptions=True)
        self.remote.close()

    def status(self) -> dict[str, Any]:
        """Figures for an operator."""
        return {
            "gifts": len(self.gifts.open), "gift_runs": self.gifts.held, "given_bytes": self.gifts.sent_bytes,
            "denied": self.gifts.refused, "reservations": len(self.receiver.open),
            "reserved_blocks": self.receiver.reserved_blocks, "transferring": self.receiver.transferring,
            "expired": self.receiver.expired, "committed_blocks": self.receiver.committed_blocks,
            "prefills": self.computer.prefills, "computed_blocks": self.computer.computed_blocks,
            "joined": self.flights.joined, "flights": len(self.flights), "decoding": self._decodes.running,
            "waiting": [self._prefills.waiting, self._decodes.waiting, self._credits.waiting],
            "counts": dict(self.counts), "injected_ms": self.faults.injected_ms,
        }  # fmt: skip
