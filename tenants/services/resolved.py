"""Keeps for a moment what the resolving of a namespace has just found out, for `tenants.hot`. Memory, no rules.

Nothing is told that is older than `HARD_SECONDS`, and one caller in every `SOFT_SECONDS` is sent to ask anew. What is
kept was read from committed rows. A generation that this process raises empties it; other processes' age out.
"""

import threading
import time
from typing import Any, Generic, TypeVar

V = TypeVar("V")
SOFT_SECONDS, HARD_SECONDS = 0.25, 0.6
MOST = 50_000


class Memory(Generic[V]):
    """Values by key, each with when it was asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[Any, tuple[float, float, V]] = {}

    def keep(self, key: Any, value: V, *, asked: float) -> None:
        """The value is known as of `asked` (a steady clock, from before it was read)."""
        with self._lock:
            if len(self._kept) >= MOST:
                self._kept.clear()
            self._kept[key] = asked, asked + SOFT_SECONDS, value

    def get(self, key: Any, *, now: float) -> V | None:
        """The value, or None: not known, too old, or it is this caller's turn to ask anew."""
        found = self._kept.get(key)
        if found is None or now - found[0] >= HARD_SECONDS:
            return None
        if now >= found[1]:
            with self._lock:
                if self._kept.get(key) is found:
                    self._kept[key] = found[0], now + SOFT_SECONDS, found[2]
            return None
        return found[2]

    def clear(self) -> None:
        """Nothing is known."""
        with self._lock:
            self._kept.clear()


callers: Memory[Any] = Memory()
"""Key of a call (`tenants.hot.call_key`) → its principal, who may resolve."""
contexts: Memory[Any] = Memory()
"""(plane's tenant, tenant, model, adapter) → `services.namespace.Context`."""
answers: Memory[Any] = Memory()
"""(plane's tenant, owner, digest) → the namespace as it was found."""


def clock() -> float:
    """The steady clock of this memory."""
    return time.monotonic()


def forget() -> None:
    """Everything is asked anew."""
    for memory in (callers, contexts, answers):
        memory.clear()
