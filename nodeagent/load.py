"""Decides what the agent reports of its load, and when: as soon as something changed, and now and then.

The figures are measured where the work is done; until there are enough, the declared curve is told as declared (0
samples). Called by `agent`, carried by `sender`.
"""

import time
from collections.abc import Callable
from typing import Any

import msgspec

from kvcore.loads import WorkerLoad
from nodeagent.meters import Meters
from nodeagent.turns import Turns

AGAIN_SECONDS = 2.0
"""An unchanged report is told again after so long: a router has to know that it still holds."""
NEAR = 0.1
"""A queue that differs by less than this share, and by less than a millisecond, is the same."""


class LoadReport:
    """The report of one source."""

    def __init__(
        self, source: str, meters: Meters, prefill: Turns, decode: Turns, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._source, self._meters, self._prefill, self._decode = source, meters, prefill, decode
        self._clock, self._number, self._told_at = clock, 0, float("-inf")
        self._told: WorkerLoad | None = None

    def now(self) -> WorkerLoad:
        """What is the case, measured now."""
        first = self._meters.first_decode_ms
        self._number += 1
        return WorkerLoad(
            source=self._source, number=self._number, queue_ms=round(self._prefill.wait_ms(), 3),
            decode_queue_ms=round(self._decode.wait_ms(), 3),
            first_decode_ms=None if first is None else round(first, 3),
            waiting=self._prefill.waiting + self._decode.waiting, running=self._prefill.running,
            decoding=self._decode.running, curve=self._meters.curve(), tiers=self._meters.tiers(),
            edges=self._meters.edges(), emulated=True,
        )  # fmt: skip

    def due(self) -> list[dict[str, Any]]:
        """The report as it goes into a heartbeat; nothing if what was told still holds and is not old."""
        load, at = self.now(), self._clock()
        if self._told is not None and at - self._told_at < AGAIN_SECONDS and _same(self._told, load):
            return []
        self._told, self._told_at = load, at
        return [msgspec.to_builtins(load)]


def _same(a: WorkerLoad, b: WorkerLoad) -> bool:
    counts = (a.waiting, a.running, a.decoding) == (b.waiting, b.running, b.decoding)
    return counts and _near(a.queue_ms, b.queue_ms) and _near(a.decode_queue_ms, b.decode_queue_ms)


def _near(a: float | None, b: float | None) -> bool:
    return a is not None and b is not None and abs(a - b) <= max(1.0, NEAR * max(a, b))
