"""Decides whose turn it is: slots in which work is done one at a time, and how long whoever comes now would wait.

First come, first served. Work says beforehand what it will probably take, so that the queue can be told in
milliseconds. Belongs to the event loop.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class _Work:
    __slots__ = ("began", "ms", "turn")

    def __init__(self, ms: float) -> None:
        self.ms, self.began = ms, 0.0
        self.turn: asyncio.Future[None] | None = None


class Turns:
    """So many slots and one line before them."""

    def __init__(self, slots: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.slots, self._clock = slots, clock
        self._line: deque[_Work] = deque()
        self._busy: set[_Work] = set()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._line)

    @property
    def running(self) -> int:
        """How many have a slot."""
        return len(self._busy)

    def wait_ms(self) -> float:
        """What whoever comes now would wait, if everybody takes as long as they said; 0 with a free slot."""
        now = self._clock()
        free = sorted(max(w.ms - (now - w.began) * 1000.0, 0.0) for w in self._busy)
        ends = [0.0] * (self.slots - len(free)) + free
        for work in self._line:
            ends.sort()
            ends[0] += work.ms
        return min(ends)

    @asynccontextmanager
    async def turn(self, ms: float) -> AsyncIterator[None]:
        """Inside it one slot is the caller's; who is cancelled leaves the line.

        Args:
            ms: what the work will probably take.
        """
        work = _Work(ms)
        if len(self._busy) < self.slots and not self._line:
            self._begin(work)
        else:
            work.turn = asyncio.get_running_loop().create_future()
            self._line.append(work)
            try:
                await work.turn
            except asyncio.CancelledError:
                self._left(work)
                raise
        try:
            yield
        finally:
            self._left(work)

    def _begin(self, work: _Work) -> None:
        work.began = self._clock()
        self._busy.add(work)

    def _left(self, work: _Work) -> None:
        self._busy.discard(work)
        if work in self._line:
            self._line.remove(work)
        while self._line and len(self._busy) < self.slots:
            following = self._line.popleft()
            self._begin(following)
            if following.turn is not None and not following.turn.done():
                following.turn.set_result(None)
