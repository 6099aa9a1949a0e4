"""Decides how a command that takes long is carried out: in a thread of its own, as long as its sender wants it.

A job goes on until the newest command for its step expires; every repetition of the command renews it. So whoever
pauses or stops an operation has only to be silent. Used by `executor`; `erasing` and `verifying` run in it.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from kvcore.messages import Command

RENEWED_SECONDS = 0.25
"""A new rate takes hold within that."""


class Stopped(Exception):
    """Nobody wants the job any more now, or the agent ends. It goes on where it was at the next call of its step."""


class Done(NamedTuple):
    """What a receipt will say."""

    outcome: str
    code: str
    detail: dict[str, Any]


class Running(NamedTuple):
    """The step is under way: bytes done, and bytes in all as far as they are known. `wants`: it has not begun, as the
    target at this place of its order has not come."""

    step: str
    done_bytes: int
    total_bytes: int
    wants: int | None = None


class Job:
    """One step that is under way. The verb calls it between slices of its work."""

    def __init__(self, command: Command, clock: Callable[[], float]) -> None:
        self.command, self.until, self._clock = command, command.expires_at, clock
        self.rate = _rate(command)
        """Bytes a second, as the newest command has it; None = as fast as it goes."""
        self.done_bytes = self.total_bytes = 0
        self.result: Done | None = None
        """What it came to, until its receipt is durable."""
        self.refusal = ""
        """Why it came to nothing; nothing more is done then than what is written down."""
        self.ended = threading.Event()
        self._stopping = threading.Event()

    @property
    def running(self) -> Running:
        """How far it is."""
        return Running(self.command.step, self.done_bytes, self.total_bytes)

    def renew(self, command: Command) -> None:
        """The same step was ordered again, maybe at another rate."""
        self.until, self.rate = max(self.until, command.expires_at), _rate(command)

    def stop(self) -> None:
        """It ends at its next look."""
        self._stopping.set()

    def check(self) -> None:
        """Passes while the job is wanted.

        Raises:
            Stopped: it is not.
        """
        if self._stopping.is_set() or self._clock() > self.until:
            raise Stopped

    def sleep(self, seconds: float) -> None:
        """Lets others go on for so long.

        Raises:
            Stopped: the job is not wanted any more.
        """
        self._stopping.wait(seconds)
        self.check()

    def pace(self, size: int, began: float, least: float) -> None:
        """Lets others go on until these bytes, begun at `began` (monotonic), have taken as long as the rate asks.

        A rate that changes meanwhile counts at once. At least `least` seconds.

        Raises:
            Stopped: the job is not wanted any more.
        """
        self.sleep(least)
        while (rate := self.rate) and (left := began + size / rate - time.monotonic()) > 0:
            self.sleep(min(left, RENEWED_SECONDS))

    def tell(self, done_bytes: int, total_bytes: int) -> None:
        """How far it is."""
        self.done_bytes, self.total_bytes = done_bytes, total_bytes


def _rate(command: Command) -> int | None:
    rate = command.args.get("rate_bytes_per_s")
    return rate if isinstance(rate, int) and rate > 0 else None
