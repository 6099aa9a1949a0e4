"""Keeps in memory who could take a request, with the load each worker last reported and what was sent there since.

A report is half a second old or more, and a router decides hundreds of times meanwhile: what it sent itself since the
report was measured is added to the reported queue, less what the time since then must have worked off; the queue is
never thought shorter than it was reported. A worker that reported nothing has no queue, which is not an empty one. A
thread reads four times a second; `deciding` asks.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import msgspec

from catalog.workers import Worker
from kvcore.cards import Candidate, Curve, Edge, Role, TierLoad
from kvcore.fleets import Wires, wires_of

ROLES: dict[str, Role] = {"prefill": "prefill", "decode": "decode", "mixed": "both"}
"""A node that only stores holds blocks that others fetch, and computes nothing."""
STORE = "remote"
"""Source of the shared store in the reference fleet: it never computes."""
SENT_SECONDS = 60.0
Who = tuple[str, str, int]
"""Node's id, source, dp_rank."""


class _Seen(NamedTuple):
    """A worker as read. `at`: when its report was measured, on this process's steady clock."""

    base: Candidate
    at: float | None


class _Sent:
    """What was sent to a worker lately, with its sum: a router that sends thousands does not add them up each time."""

    __slots__ = ("each", "ms")

    def __init__(self) -> None:
        self.each: deque[tuple[float, float]] = deque()
        self.ms = 0.0

    def add(self, now: float, ms: float) -> None:
        """One request more."""
        self.each.append((now, ms))
        self.ms += ms

    def forget(self, upto: float) -> None:
        """What was sent until then is in the report, or done."""
        while self.each and self.each[0][0] <= upto:
            self.ms -= self.each.popleft()[1]
        if not self.each:
            self.ms = 0.0


class Fleet:
    """All candidates. The event loop reads and notes what it sends; one thread at a time brings what is newer."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.candidates: list[Candidate] = []
        self.edges: Mapping[str, Mapping[str, Edge]] = {}
        self.wires: Wires = wires_of({})
        """The edges summed up; made anew only when one of them changed."""
        self.moved: list[int] = []
        """Candidates that something was sent to since the version began, in that order."""
        self.number: dict[Who, int] = {}
        self.stores: dict[Who, tuple[int, ...]] = {}
        """A source that only stores → the workers of its node, which read it as a tier of their own."""
        self.by_name: dict[str, list[int]] = {}
        self.dedicated: dict[str, UUID] = {}
        """Node's id → the one tenant it serves."""
        self.version = 0
        self.read = -1e9
        self._seen: list[_Seen] = []
        self._sent: dict[Who, _Sent] = {}

    def take(self, workers: Sequence[Worker]) -> None:
        """These are the workers now."""
        now = self.clock()
        computing, stores = _split([w for w in workers if w.role in ROLES])
        seen = [_Seen(_candidate(w), None if w.age_ms is None else now - w.age_ms / 1000) for w in computing]
        number = {(s.base.node, s.base.source, s.base.dp_rank): i for i, s in enumerate(seen)}
        by_name: dict[str, list[int]] = {}
        by_node: dict[str, tuple[int, ...]] = {}
        for i, s in enumerate(seen):
            by_name.setdefault(s.base.name, []).append(i)
            by_node[s.base.node] = (*by_node.get(s.base.node, ()), i)
        self.stores = {who: by_node.get(who[0], ()) for w in stores if (who := (str(w.node), w.source, w.dp_rank))}
        edges = _edges(workers)
        if edges != self.edges:
            self.edges, self.wires = edges, wires_of(edges)
        self.dedicated = {str(w.node): w.dedicated_to for w in workers if w.dedicated_to}
        self._seen, self.number, self.by_name = seen, number, by_name
        self.candidates = [self._now(s, now) for s in seen]
        self.version, self.read, self.moved = self.version + 1, now, []

    def age(self) -> None:
        """Ages and queues are those of now, also where nothing newer could be read."""
        now = self.clock()
        self.candidates = [self._now(s, now) for s in self._seen]
        self.version, self.moved = self.version + 1, []

    def sent(self, number: int, ms: float) -> None:
        """A request that will take this long goes to the candidate."""
        seen, now = self._seen[number], self.clock()
        base = seen.base
        self._sent.setdefault((base.node, base.source, base.dp_rank), _Sent()).add(now, ms)
        self.candidates[number] = self._now(seen, now)
        self.moved.append(number)

    def _now(self, seen: _Seen, now: float) -> Candidate:
        """The candidate with its queue as it must be now."""
        base, at = seen.base, seen.at
        sent = self._sent.get((base.node, base.source, base.dp_rank))
        if sent is not None:
            sent.forget(max(at or 0.0, now - SENT_SECONDS))
        if at is None:
            return base
        more = sent.ms if sent is not None else 0.0
        queue, age = base.queue_ms, (now - at) * 1000
        if queue is not None and more:
            queue = max(queue, queue + more - age)
        waiting = None if base.waiting is None else base.waiting + (len(sent.each) if sent else 0)
        return msgspec.structs.replace(base, queue_ms=queue, waiting=waiting, load_age_ms=age)


def _split(workers: Sequence[Worker]) -> tuple[list[Worker], list[Worker]]:
    """Those that compute and those that only store: where a source of a node reports its load, the others store."""
    reporting = {w.node for w in workers if w.load is not None}
    computing = [w for w in workers if w.load is not None or (w.node not in reporting and w.source != STORE)]
    chosen = {(w.node, w.source, w.dp_rank) for w in computing}
    return computing, [w for w in workers if (w.node, w.source, w.dp_rank) not in chosen]


def _candidate(worker: Worker) -> Candidate:
    load, curve = worker.load, Curve(0.0, 0.0, 0.0, "unknown")
    if load is not None and load.curve is not None:
        base, linear, square, samples = load.curve
        curve = Curve(linear, square, base, "measured" if samples else "declared")
    return Candidate(
        node=str(worker.node),
        source=worker.source,
        dp_rank=worker.dp_rank,
        name=worker.name,
        cls=worker.profile,
        role=ROLES[worker.role],
        state="lost" if worker.source_state == "lost" else worker.state,
        curve=curve,
        queue_ms=load.queue_ms if load else None,
        decode_queue_ms=load.decode_queue_ms if load else None,
        first_decode_ms=load.first_decode_ms if load else None,
        load_age_ms=worker.age_ms,
        waiting=load.waiting if load else None,
        running=load.running if load else None,
        tiers=tuple(TierLoad(t, rate, ms) for t, (rate, ms, n) in sorted(load.tiers.items()) if n) if load else (),
        domain="/".join((worker.region, worker.zone, worker.rack)),
    )


def _edges(workers: Sequence[Worker]) -> Mapping[str, Mapping[str, Edge]]:
    """From node → to node → what fetching has cost the one that fetched."""
    ids = {name: str(w.node) for w in workers for name in (w.name, str(w.node))}
    out: dict[str, dict[str, Edge]] = {}
    for worker in workers:
        for source, (rate, ms, samples) in worker.load.edges.items() if worker.load else ():
            if samples and source in ids:
                out.setdefault(ids[source], {})[str(worker.node)] = Edge(rate, ms)
    return out
