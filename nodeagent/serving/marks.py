"""Decides when each step of a request ended, by one clock, so that the terms of its time to first token sum to it.

A term lasts from the end of the one before it: none is negative, none is counted twice, and what happens beside (a
transfer while the prefill goes on) costs only what it adds. `Faults` puts time into one term, for tests.
"""

import asyncio
import time
from collections.abc import Callable, Mapping

from nodeagent.serving.words import TERMS

ENDS = ("admitted", "loaded", "computed", "committed", "turn", "first")
"""The event that ends each term."""


class Marks:
    """The steps of one request."""

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began = clock()
        self._at: dict[str, float] = {}

    def ms(self) -> float:
        """Milliseconds since the arrival."""
        return (self._clock() - self._began) * 1000.0

    def mark(self, event: str) -> float:
        """The step ended now, unless it had ended before; answers when."""
        return self._at.setdefault(event, self.ms())

    def has(self, event: str) -> bool:
        """Whether the step ended."""
        return event in self._at

    def terms(self) -> dict[str, float]:
        """Milliseconds of each term. A step that never was took no time of its own."""
        out, last = {}, 0.0
        for term, event in zip(TERMS, ENDS, strict=True):
            at = max(self._at.get(event, last), last)
            out[term] = round(at - last, 4)
            last = at
        return out

    @property
    def ttft_ms(self) -> float:
        """Arrival to first token."""
        return self._at.get("first", self.ms())


class Faults:
    """Milliseconds that tests put into terms."""

    def __init__(self, injected_ms: Mapping[str, float]) -> None:
        self.injected_ms = dict(injected_ms)

    async def strike(self, term: str) -> None:
        """Waits what was put into the term."""
        if ms := self.injected_ms.get(term, 0.0):
            await asyncio.sleep(ms / 1000.0)
