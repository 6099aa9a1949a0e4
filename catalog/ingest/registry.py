"""Decides what the writer knows of namespaces and fences: cached; fences are never older than a tenth of a second.

A fence has to be known on every node within a second of its commit, and nodes ask twice a second: what the writer may
wait for is the rest, also where nobody wakes it. Called by the fold thread only. A namespace that is not registered is
asked for again each second, so that its blocks are adopted soon after somebody registers it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from django.db import OperationalError

from kvcore.messages import Fence
from tenants import selectors
from tenants.selectors import NamespaceRow
from tenants.whole import fences_whole

FRESH_S = 0.1
UNKNOWN_S = 1.0
UNKNOWN_MOST = 100_000
"""Digests that are remembered as not registered; beyond that they are simply asked for again."""
AFTER_MOST = 1_000
"""Positions of the fence log whose remainder is kept."""


@dataclass(slots=True)
class Registry:
    """Namespaces by digest and the fence log, as of at most `FRESH_S` ago; `claimed` were registered since.

    `asked_at`: when those that are not registered were last asked for."""

    known: dict[bytes, NamespaceRow] = field(default_factory=dict)
    unknown: set[bytes] = field(default_factory=set)
    claimed: list[NamespaceRow] = field(default_factory=list)
    fence_seq: int = 0
    as_of: float = 0.0
    asked_at: float = 0.0
    dirty: bool = True
    _after: dict[int, list[Fence]] = field(default_factory=dict)

    def refresh(self, now: float) -> None:
        """What changed is known: new fences, and namespaces registered since."""
        if not self.due(now):
            return
        if not fences_whole():
            raise OperationalError("fences-replaying")
        latest, fences = selectors.fences_after(self.fence_seq)
        again = {bytes(f.ns) for f in fences if bytes(f.ns) in self.known}
        if self.dirty or not 0 <= now - self.asked_at < UNKNOWN_S:
            again, self.asked_at = again | self.unknown, now
        found = selectors.namespaces_by_digest(list(again)) if again else {}
        self.claimed += [row for digest, row in found.items() if digest in self.unknown]
        self.known.update(found)
        self.unknown.difference_update(found)
        if latest != self.fence_seq:
            self._after.clear()
        self.fence_seq, self.as_of = latest, now
        self.dirty = False

    def due(self, now: float) -> bool:
        """Whether `refresh` would read."""
        return self.dirty or not 0 <= now - self.as_of < FRESH_S

    def rows(self, digests: Iterable[bytes]) -> None:
        """Each digest is in `known`, or in `unknown` because nobody registered it."""
        ask = [d for d in set(digests) if d not in self.known and d not in self.unknown]
        if not ask:
            return
        found = selectors.namespaces_by_digest(ask)
        self.known.update(found)
        if len(self.unknown) + len(ask) > UNKNOWN_MOST:
            self.unknown.clear()
        self.unknown.update(d for d in ask if d not in found)

    def prepare(self, positions: Iterable[int], now: float) -> None:
        """`fences` answers these positions without reading.

        A position that is ahead of ours is read again, and if it was never given (of a database that was restored)
        everything is answered.
        """
        asked = set(positions)
        if len(self._after) > AFTER_MOST:
            self._after.clear()
        if any(after > self.fence_seq for after in asked):
            self.dirty = True
            self.refresh(now)
        for after in asked:
            if after != self.fence_seq and after not in self._after:
                self._after[after] = list(selectors.fences_after(after)[1])

    def fences(self, after: int) -> list[Fence]:
        """The fences behind position `after` of the fence log; `prepare` has been asked for it."""
        return self._after.get(after, [])
