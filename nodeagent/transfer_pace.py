"""Decides how much may be in flight to this node, whose turn it is, and how fast tiers and links are used.

Credits are bytes that this node has room for: nobody sends more than was granted. Who has least to move goes first,
but who has waited too long goes before everybody. Used by `transfer_target` and `transfer_local`.
"""

import threading
import time
from collections.abc import Callable

CREDIT_BYTES = 16 * 2**20
"""In flight to one node at a time."""
PATIENCE_SECONDS = 2.0
"""How long the small ones may go first."""
LOOK_SECONDS = 0.02


class _Turn:
    """Somebody who waits."""

    __slots__ = ("left", "since", "size")

    def __init__(self, size: int, left: int, since: float) -> None:
        self.size, self.left, self.since = size, left, since


class Credits:
    """Bytes in flight. Methods are safe from any thread."""

    def __init__(self, most_bytes: int = CREDIT_BYTES, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.most_bytes, self.in_flight, self.peak = most_bytes, 0, 0
        self._clock, self._waiting = clock, list[_Turn]()
        self._free = threading.Condition()

    def take(self, size: int, *, left: int, check: Callable[[], None] = lambda: None) -> int:
        """Waits for the turn; answers the bytes that are granted: `size`, or all there ever are if that is less.

        Args:
            size: wanted now.
            left: of the whole transfer; the least goes first.
            check: raises if nobody wants it any more.
        """
        size = min(size, self.most_bytes)
        turn = _Turn(size, left, self._clock())
        with self._free:
            self._waiting.append(turn)
            try:
                while self._next() is not turn or self.in_flight + size > self.most_bytes:
                    self._free.wait(LOOK_SECONDS)
                    check()
                self.in_flight += size
                self.peak = max(self.peak, self.in_flight)
                return size
            finally:
                self._waiting.remove(turn)
                self._free.notify_all()

    def _next(self) -> _Turn:
        oldest = min(self._waiting, key=lambda t: t.since)
        if self._clock() - oldest.since > PATIENCE_SECONDS:
            return oldest
        return min(self._waiting, key=lambda t: (t.left, t.since))

    def give(self, size: int) -> None:
        """So many are not in flight any more."""
        with self._free:
            self.in_flight -= size
            self._free.notify_all()


class Pace:
    """How fast tiers and links are used: whoever uses one waits until what was used before is paid for."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._paid = clock, dict[str, float]()
        self._lock = threading.Lock()

    def spend(self, names: tuple[str, ...], size: int, rate: int | None) -> float:
        """Seconds to wait before these bytes may go, at `rate` bytes a second over each of these; None = at once."""
        if not rate:
            return 0.0
        now = self._clock()
        with self._lock:
            start = max([now, *(self._paid.get(name, 0.0) for name in names)])
            for name in names:
                self._paid[name] = start + size / rate
        return start - now
