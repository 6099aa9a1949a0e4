"""Counts tokens that requests read from a generation after it was fenced, for good: the count must be 0.

A request that was under way when the fence was raised is none: a frame counts from `SETTLE_S` after the fence, by the
time that its node gave it, so frames that come late because a node was away are judged as of when they were made.
Called by `folding`; rows go with the writer's commit.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from catalog.ingest.keymap import Keyspace
from kvcore.events import Use
from tenants.selectors import fence_times

SETTLE_S = 5.0
"""A node hears of a fence within half a second of heartbeats, and what it had to tell before is told by then."""
UPSERT = """
INSERT INTO catalog_stalehit AS s (keyspace, hit_tokens, requests, last_at)
SELECT u.*, t.at FROM (SELECT %s::timestamptz AS at) t, unnest(%s::int[], %s::bigint[], %s::bigint[]) u
ON CONFLICT (keyspace) DO UPDATE SET hit_tokens = s.hit_tokens + excluded.hit_tokens,
    requests = s.requests + excluded.requests, last_at = excluded.last_at"""


class StaleHits:
    """When each generation was fenced, and what has been read from behind a fence since the last commit."""

    def __init__(self) -> None:
        self._seq = 0
        self._fences: dict[bytes, list[tuple[int, float]]] = {}
        self._tokens: Counter[int] = Counter()
        self._requests: Counter[int] = Counter()

    def refresh(self, fence_seq: int) -> None:
        """Fences up to this position of the log are known."""
        if fence_seq != self._seq:
            for digest, min_gen, at in fence_times(self._seq if fence_seq > self._seq else 0):
                self._fences.setdefault(digest, []).append((min_gen, at.timestamp()))
            self._seq = fence_seq

    def use(self, keyspace: Keyspace, item: Use, at: float) -> None:
        """A request of a frame that was made `at` (UNIX seconds) read the cache."""
        if not item.hit_tokens or keyspace.digest not in self._fences:
            return
        raised = min((t for min_gen, t in self._fences[keyspace.digest] if min_gen > item.gen), default=None)
        if raised is not None and at > raised + SETTLE_S:
            self._tokens[keyspace.id] += item.hit_tokens
            self._requests[keyspace.id] += 1

    def rows(self, when: datetime) -> list[tuple[str, Sequence[Any]]]:
        """Statements for the commit; what they write is forgotten here."""
        if not self._tokens:
            return []
        ids = list(self._tokens)
        values = (when, ids, [self._tokens[i] for i in ids], [self._requests[i] for i in ids])
        self._tokens, self._requests = Counter(), Counter()
        return [(UPSERT, values)]
