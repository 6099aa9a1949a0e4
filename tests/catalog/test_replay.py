"""The replay driver with simulated nodes and time: order within sessions, fail-over, pace."""

import asyncio
from collections.abc import Sequence

from catalog.replay import NodeUnreachable, Outcome, Totals, replay
from catalog.trace import TraceRequest, TraceShape, trace_make


class SimulatedClock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    async def until(self, moment: float) -> None:
        self.seconds = max(self.seconds, moment)
        await asyncio.sleep(0)


class SimulatedFleet:
    def __init__(self, names: Sequence[str], down: frozenset[str] = frozenset()) -> None:
        self.names, self.down, self.seen = list(names), down, list[tuple[str, TraceRequest]]()

    async def nodes(self, request: TraceRequest) -> Sequence[str]:
        return self.names

    async def submit(self, node: str, request: TraceRequest) -> Outcome:
        await asyncio.sleep(0)
        if node in self.down:
            raise NodeUnreachable(node)
        self.seen.append((node, request))
        return Outcome(prompt_tokens=request.input_length, hit_tokens=1, saved_ms=0.5)


TRACE = trace_make(TraceShape(seconds=60))


def run(fleet: SimulatedFleet, clock: SimulatedClock, speed: float | None = 2.0) -> Totals:
    return asyncio.run(replay(TRACE, fleet, speed=speed, clock=clock))


def test_every_request_is_done_once_and_sessions_keep_their_order_and_node() -> None:
    fleet, clock = SimulatedFleet("abcd"), SimulatedClock()
    totals = run(fleet, clock)
    assert (totals.done, totals.failed, totals.moved) == (len(TRACE), 0, 0)
    assert totals.hit_tokens == len(TRACE)
    assert clock.seconds * 2 >= TRACE[-1].at_ms / 1000
    for session in {r.session for r in TRACE}:
        mine = [(n, r) for n, r in fleet.seen if r.session == session]
        assert [r.at_ms for _, r in mine] == sorted(r.at_ms for _, r in mine)
        assert len({n for n, _ in mine}) == 1


def test_a_node_that_is_away_loses_its_requests_to_the_next_one() -> None:
    fleet = SimulatedFleet("abcd", frozenset("b"))
    totals = run(fleet, SimulatedClock())
    assert totals.failed == 0
    assert totals.done == len(TRACE)
    assert totals.moved > 0
    assert {n for n, _ in fleet.seen} == set("acd")


def test_no_node_at_all_is_counted_as_failed_not_as_done() -> None:
    totals = run(SimulatedFleet("ab", frozenset("ab")), SimulatedClock(), speed=None)
    assert (totals.done, totals.failed) == (0, len(TRACE))
