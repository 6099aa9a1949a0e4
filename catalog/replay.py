"""Decides when each request of a trace starts and on which node; whoever carries it out is behind `Fleet`.

Free of Django, HTTP and clocks of its own, so that a simulator drives the same code with simulated nodes and time.
Called by `manage.py replay`; the placement is rendezvous hashing until a router decides.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from catalog.trace import TraceRequest, placement_key, rendezvous


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one request found: tokens of its prompt, how many of them the cache had, and the milliseconds saved.

    `short`: tokens that were to be found and were not, by cause.
    """

    prompt_tokens: int
    hit_tokens: int
    saved_ms: float
    short: dict[str, int] = {}


class NodeUnreachable(Exception):
    """The node did not take the request; nothing of it was computed there."""


class Fleet(Protocol):
    """What a replay needs of the nodes, real or simulated."""

    async def nodes(self, request: TraceRequest) -> Sequence[str]:
        """Names of the nodes that may get this request now, by state and by the rules of its tenant."""

    async def submit(self, node: str, request: TraceRequest) -> Outcome:
        """Carry the request out. Raises NodeUnreachable if the node cannot."""


class Totals(msgspec.Struct, kw_only=True):
    """What a replay has done so far."""

    done: int = 0
    failed: int = 0
    moved: int = 0  # requests whose preferred node was away
    prompt_tokens: int = 0
    hit_tokens: int = 0
    saved_ms: float = 0.0
    late_ms: float = 0.0  # how far the replay is behind the trace's clock
    refusals: dict[str, int] = {}  # why nodes did not take requests, and how often
    short: dict[str, int] = {}  # tokens that were to be found and were not, by cause


class Clock(Protocol):
    """Time of the replay in seconds; a simulator has its own."""

    def now(self) -> float:
        """Seconds since any fixed moment."""

    async def until(self, moment: float) -> None:
        """Return at `moment` of this clock, at once if it has passed."""


class WallClock:
    """The event loop's own time."""

    def now(self) -> float:
        """Seconds of the running loop."""
        return asyncio.get_running_loop().time()

    async def until(self, moment: float) -> None:
        """Sleep until the moment."""
        await asyncio.sleep(max(0.0, moment - self.now()))


async def replay(
    requests: Sequence[TraceRequest],
    fleet: Fleet,
    *,
    speed: float | None,
    concurrency: int = 32,
    clock: Clock | None = None,
    progress: Callable[[Totals], None] = lambda _: None,
) -> Totals:
    """Every request was carried out, or failed on all nodes and was counted.

    Args:
        requests: in order of time.
        speed: trace seconds per second; None = as fast as `concurrency` allows.
        concurrency: requests under way at once.
        progress: called after each request.

    A session's requests stay in order: the next turn waits for the one before, as an agent would.
    """
    clock, totals, gate = clock or WallClock(), Totals(), asyncio.Semaphore(concurrency)
    start, turns = clock.now(), dict[str, asyncio.Task[None]]()
    running: set[asyncio.Task[None]] = set()

    async def one(request: TraceRequest, before: Awaitable[None] | None) -> None:
        try:
            if before is not None:
                await before
            await _carry_out(request, fleet, totals)
            progress(totals)
        finally:
            gate.release()

    async with asyncio.TaskGroup() as group:
        for request in requests:
            if speed is not None:
                due = start + request.at_ms / 1000 / speed
                await clock.until(due)
                totals.late_ms = max(0.0, (clock.now() - due) * 1000)
            await gate.acquire()
            before = turns.get(request.session) if request.session else None
            task = group.create_task(one(request, before if before in running else None))
            running.add(task)
            task.add_done_callback(running.discard)
            if request.session:
                turns[request.session] = task
    return totals


async def _carry_out(request: TraceRequest, fleet: Fleet, totals: Totals) -> None:
    """On the preferred node, else on the next one that answers."""
    for rank, node in enumerate(rendezvous(placement_key(request), await fleet.nodes(request))):
        try:
            outcome = await fleet.submit(node, request)
        except NodeUnreachable as e:
            totals.refusals[str(e)] = totals.refusals.get(str(e), 0) + 1
            continue
        totals.done += 1
        totals.moved += rank > 0
        totals.prompt_tokens += outcome.prompt_tokens
        totals.hit_tokens += outcome.hit_tokens
        totals.saved_ms += outcome.saved_ms
        for cause, tokens in outcome.short.items():
            totals.short[cause] = totals.short.get(cause, 0) + tokens
        return
    totals.failed += 1
