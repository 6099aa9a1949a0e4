"""Decides when a tier is relieved, what leaves it first, and what is worth keeping one tier below.

Value of a run = prefill ms that would be lost without it, per byte and second. A use that hit up to some depth would
have lost everything from the run's start to there: so a head is never worth less than what lies behind it, and a
short hot prompt is worth more than a long one that nobody asks for again. Uses fade with a half-life, which does not
change the order of two runs while neither is used, so a lazy heap is exact. Called by `pool`, `demotion`, engines.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable

from kvcore.blocks import BlockState, Tier
from kvcore.keys import KEY_BYTES
from nodeagent.runs import Copy, Run, Space

HALF_LIFE_SECONDS = 600.0
LOAD_MS_PER_MIB = {Tier.HBM: 0.0, Tier.PINNED: 0.04, Tier.DRAM: 0.08, Tier.SSD: 0.5, Tier.REMOTE: 1.0}
"""Declared cost of bringing blocks back into `hbm`."""
STORE_MS_PER_MIB = {Tier.HBM: 0.0, Tier.PINNED: 0.04, Tier.DRAM: 0.08, Tier.SSD: 1.0, Tier.REMOTE: 1.0}
"""Declared cost of taking blocks down to a tier."""
REUSE_FLOOR = 0.05
"""A block that was never used again is kept below `hbm` only where at least this share of its namespace's blocks is."""
SHARE_WEIGHT = 0.05
GHOSTS = 65_536
COMPACT_EVERY = 8192
"""Pushes between two removals of entries whose copy has left."""
_MIB = 2**20


class Gate:
    """High and low mark of one tier. Relief starts above high and goes on until low: no flapping in between."""

    def __init__(self, capacity_bytes: int, high: float, low: float) -> None:
        self.capacity_bytes, self.high, self.low = capacity_bytes, high, low
        self.open = False
        self.opened = 0
        """How often relief has started."""

    def relieving(self, used_bytes: int) -> bool:
        """Whether relief is due or under way."""
        return self.open or used_bytes > self.high * self.capacity_bytes

    def excess(self, used_bytes: int) -> int:
        """Bytes that must leave now, 0 if none."""
        if not self.open and used_bytes > self.high * self.capacity_bytes:
            self.open = True
            self.opened += 1
        floor = int(self.low * self.capacity_bytes)
        if self.open and used_bytes <= floor:
            self.open = False
        return used_bytes - floor if self.open else 0


class Curve:
    """Declared prefill time: ms = a·n + b·n² for n tokens."""

    def __init__(self, a: float, b: float) -> None:
        self.a, self.b = a, b

    def ms(self, tokens: int) -> float:
        """Milliseconds to compute the first `tokens` tokens."""
        return self.a * tokens + self.b * tokens * tokens

    def run_ms(self, run: Run) -> float:
        """Milliseconds that the run's blocks save when their prefix is there too."""
        start = run.depth * run.space.block_tokens
        return self.ms(start + run.blocks * run.space.block_tokens) - self.ms(start)


def load_ms(tier: Tier, size_bytes: int) -> float:
    """Declared milliseconds to bring bytes of a tier into `hbm`."""
    return LOAD_MS_PER_MIB[tier] * size_bytes / _MIB


def touch(run: Run, now: float, saved_ms: float) -> None:
    """Counts a use of the run; `saved_ms` is what the request would have computed without it."""
    run.heat = run.heat * 2.0 ** ((run.last - now) / HALF_LIFE_SECONDS) + saved_ms
    run.hits += 1
    run.last = now


class Policy:
    """The order in which runs leave a tier: `value`, or `lru`."""

    def __init__(self, kind: str, curve: Curve) -> None:
        self.kind, self.curve = kind, curve

    def rank(self, run: Run) -> float:
        """Lowest leaves first. Between two uses of a run its rank does not change."""
        if run.space.fenced:
            return -math.inf
        if self.kind == "lru":
            return run.last
        return math.log2(self.value(run)) + run.last / HALF_LIFE_SECONDS

    def value(self, run: Run) -> float:
        """Saved milliseconds per byte and second as of the run's last use."""
        return max(run.heat, 1e-9) / (run.meta.size_bytes * HALF_LIFE_SECONDS)


class Queue:
    """Runs of one tier by rank. Entries are refreshed when they come up, so a use costs nothing here."""

    def __init__(self, tier: Tier, policy: Policy) -> None:
        self._tier, self._policy = tier, policy
        self._heap: list[tuple[float, int, int, Run, Copy]] = []
        self._count = 0

    def push(self, run: Run, copy: Copy) -> None:
        """Takes a copy into the order; deeper blocks of equal rank leave first."""
        self._count += 1
        if not self._count % COMPACT_EVERY:
            self._heap = [e for e in self._heap if e[3].copies.get(self._tier) is e[4]]
            heapq.heapify(self._heap)
        heapq.heappush(self._heap, (self._policy.rank(run), -run.depth, self._count, run, copy))

    def best(
        self, busy: list[tuple[Run, Copy]], pinned: Callable[[Run], bool] = lambda run: False
    ) -> tuple[float, Run, Copy] | None:
        """Takes the next copy to leave out of the order; those in use or pinned are taken out too, into `busy`."""
        while self._heap:
            rank, _, _, run, copy = heapq.heappop(self._heap)
            if run.copies.get(self._tier) is not copy:
                continue
            if self._policy.rank(run) > rank:
                self.push(run, copy)
            elif copy.state is not BlockState.COMMITTED or pinned(run):
                busy.append((run, copy))
            else:
                return rank, run, copy
        return None

    def __len__(self) -> int:
        return len(self._heap)


class Admission:
    """What is worth its way down a tier, judged by how often blocks of its namespace are asked for again."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._ghosts: set[bytes] = set()
        self._order: deque[bytes] = deque()

    def worth(self, run: Run, down: Tier) -> bool:
        """Whether the expected saving is above the cost of storing and loading."""
        if self._policy.kind == "lru":
            return True
        reuse = max(run.space.share, run.hits / (run.hits + 1.0))
        if reuse < REUSE_FLOOR:
            return False
        cost = (STORE_MS_PER_MIB[down] + reuse * LOAD_MS_PER_MIB[down]) * run.meta.size_bytes / _MIB
        return reuse * self._policy.curve.run_ms(run) > cost

    def forget(self, run: Run) -> None:
        """Remembers the head of a run that left the node, to know later whether it would have been used."""
        head = run.keys[:16]
        if head in self._ghosts:
            return
        self._ghosts.add(head)
        self._order.append(head)
        if len(self._order) > GHOSTS:
            self._ghosts.discard(self._order.popleft())

    def learn(self, space: Space, chain: bytes, hits: int, run_blocks: int) -> None:
        """Takes one look-up of `chain` with `hits` leading blocks found into the namespace's share."""
        blocks = len(chain) // KEY_BYTES
        if not blocks:
            return
        would, at = 0, hits
        while at < blocks:
            end = min((at // run_blocks + 1) * run_blocks, blocks)
            if chain[at * KEY_BYTES : at * KEY_BYTES + 16] in self._ghosts:
                would += end - at
            at = end
        space.share += SHARE_WEIGHT * ((hits + would) / blocks - space.share)
