"""Decides up to where a receipt's word about a tier holds: the place in its source's stream behind all that was told.

Used by the verbs of moves. Under the pool's lock.
"""

from collections.abc import Iterable

from kvcore.blocks import Tier
from kvcore.receipts import StreamPos
from nodeagent.pool import Pool


def position(pool: Pool, tier: Tier, namespaces: Iterable[bytes]) -> StreamPos:
    """Where the tier's source stands behind everything that was told of these namespaces."""
    at = pool.outboxes[tier].behind(next(iter(namespaces), bytes(32)))
    return StreamPos(boot=at.boot, stream=at.stream, seq=at.seq)
