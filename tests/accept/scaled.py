"""Workers in scaled time behind the real deciding router: what a policy does with a stream of requests.

Real: `routing.deciding.Router` with its filters, scorer, memory of hot beginnings and account of what it sent since the
last report; the index in the form that routers run, which says what is held, to the router and to the worker alike.
Declared: the workers' prefill curves, their capacity, and that they report twice a second. Events happen in the order
of a clock that a test moves, so a second of the fleet costs some milliseconds, whichever policy decides.
"""

import hashlib
import heapq
import itertools
import secrets
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from kvcore.cards import Curve
from kvcore.policies import Policy
from routing.deciding import Asked, Router
from routing.forms import best
from routing.view import View
from tests.routing.deciding import Stand, worker

REPORT_MS = 500.0
ROUTER_MS, FIRST_MS = 1.0, 5.0


class Request(NamedTuple):
    """One of the stream. `keys`: 32 bytes for each whole block of the prompt."""

    at_ms: float
    tokens: int
    keys: bytes


class Done(NamedTuple):
    """What came of it."""

    request: Request
    worker: int
    waits: tuple[float, ...]
    """Of all workers, when it came: ms that a request would have waited there."""
    hit_tokens: int
    computed_tokens: int
    ttft_ms: float


class Worker:
    """One that computes one prompt after the other, and keeps what it computed until there is no more room."""

    def __init__(self, number: int, curve: Curve, blocks: int) -> None:
        self.number, self.curve, self.room = number, curve, blocks
        self.line: deque[tuple[int, Request]] = deque()
        self.until = 0.0
        self.busy = False
        self.kept: OrderedDict[bytes, None] = OrderedDict()
        """Fingerprints, the longest unused first."""


class Scaled:
    """A fleet and its router, in scaled time."""

    def __init__(self, curves: Sequence[Curve], policy: Policy, *, block_tokens: int, room_blocks: int) -> None:
        self.now_ms, self.block = 0.0, block_tokens
        self.stand = Stand()
        self.stand.standing.fleet.clock = lambda: self.now_ms / 1000
        self.stand.standing.default = policy
        self.stand.place.block_tokens, self.stand.place.block_bytes = block_tokens, 163_840 * block_tokens
        self.view = View(best(), 10**7)
        self.view.live = True
        self.view.keyspace(1, self.stand.digest, 1, 0)
        self.stand.replica.view = self.stand.view = self.view
        self.router: Router = self.stand.router
        self.workers = [Worker(i, c, room_blocks) for i, c in enumerate(curves)]
        self.names = [f"w{i}" for i in range(len(curves))]
        for i, name in enumerate(self.names):
            self.view.source(i + 1, uuid.uuid5(uuid.NAMESPACE_DNS, name), "e", 0, "exact")
            self.view.owner(i + 1, i + 1, "hbm", False)
        self.done: dict[int, Done] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._asked: dict[int, tuple[int, tuple[float, ...]]] = {}

    def run(self, requests: Iterable[Request]) -> list[Done]:
        """All of them have their first token."""
        stream = list(requests)
        for at, request in enumerate(stream):
            self._at(request.at_ms, lambda at=at, request=request: self._arrives(at, request))
        self._report()
        while len(self.done) < len(stream):
            self.now_ms, _, act = heapq.heappop(self._events)
            act()
        return [self.done[at] for at in range(len(stream))]

    def _at(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), act))

    def wait_ms(self, w: Worker) -> float:
        """What a request that comes now would wait, as the worker itself would report it."""
        mine = max(0.0, w.until - self.now_ms) if w.busy else 0.0
        return mine + sum(w.curve.suffix_ms(self._here(w, r), r.tokens) for _, r in w.line)

    def _report(self) -> None:
        """Every worker says its load; the router reads it."""
        self.stand.take(*[
            worker(self.names[w.number], profile=f"p{w.curve.linear_ms}", age_ms=0.0, load={
                "queue_ms": self.wait_ms(w), "waiting": len(w.line), "running": int(w.busy),
                "first_decode_ms": FIRST_MS,
                "curve": (w.curve.base_ms, w.curve.linear_ms, w.curve.square_ms, 9),
            })
            for w in self.workers
        ])  # fmt: skip
        self._at(self.now_ms + REPORT_MS, self._report)

    def _arrives(self, at: int, request: Request) -> None:
        fleet = self.stand.standing.fleet
        fleet.age()
        fleet.version += 1  # what was prepared for an earlier moment of the scaled clock does not serve this one
        waits = tuple(self.wait_ms(w) for w in self.workers)
        wanted = self.stand.ask(block_keys=request.keys, prompt_tokens=request.tokens)
        answer: Any = self.router.route(wanted, self.stand.place, Asked(True, "g1", bytes), 0.0)
        w = self.workers[self.names.index(answer.prefill.node)]
        self._asked[at] = w.number, waits
        w.line.append((at, request))
        self._next(w)

    def _here(self, w: Worker, request: Request) -> int:
        """Tokens of the prompt that the index says the worker holds; one is always computed."""
        runs = self.view.index.lookup(1, fingerprints(request.keys)) if request.keys else []
        depth = max((depth for depth, owners in runs if w.number + 1 in owners), default=0)
        return min(depth, (request.tokens - 1) // self.block) * self.block

    def _next(self, w: Worker) -> None:
        if w.busy or not w.line:
            return
        at, request = w.line.popleft()
        hit = self._here(w, request)
        w.busy, w.until = True, self.now_ms + w.curve.suffix_ms(hit, request.tokens)
        self._at(w.until, lambda: self._ends(w, at, request, hit))

    def _ends(self, w: Worker, at: int, request: Request, hit: int) -> None:
        number, waits = self._asked.pop(at)
        ttft = ROUTER_MS + self.now_ms - request.at_ms + FIRST_MS
        self.done[at] = Done(request, number, waits, hit, request.tokens - hit, ttft)
        w.busy = False
        self._keep(w, fingerprints(request.keys))
        self._next(w)

    def _keep(self, w: Worker, prints: bytes) -> None:
        each = [prints[i : i + 8] for i in range(0, len(prints), 8)]
        for one in reversed(each):  # the end of a prompt goes before its beginning
            w.kept[one] = None
            w.kept.move_to_end(one)
        self.view.index.add(1, w.number + 1, prints)
        gone = b"".join(w.kept.popitem(last=False)[0] for _ in range(max(0, len(w.kept) - w.room)))
        if gone:
            self.view.index.remove(1, w.number + 1, gone)


def fingerprints(keys: bytes) -> bytes:
    """What the index keeps of keys of 32 bytes."""
    return np.frombuffer(keys, "<u8").reshape(-1, 4)[:, 0].tobytes() if keys else b""


class Chains:
    """Keys of prompts that are named by numbers, one a block: equal beginnings have equal keys."""

    def __init__(self) -> None:
        self.secret = secrets.token_bytes(32)
        self.known: dict[tuple[bytes, int], bytes] = {}

    def keys(self, numbers: Sequence[int]) -> bytes:
        """Of all of them."""
        out, parent = [], b""
        for number in numbers:
            made = self.known.get((parent, number))
            if made is None:
                said = parent + number.to_bytes(8, "little")
                made = self.known[parent, number] = hashlib.blake2b(said, key=self.secret, digest_size=32).digest()
            out.append(made)
            parent = made
        return b"".join(out)
