"""Decides what the console itself tells the writer: that a node is lost, and whose an unclaimed namespace is.

There is one writer per fact, so these are steps in the writer's own batches, like an agent's items. Called by
`folding` in each batch.
"""

from collections.abc import Iterable, Mapping
from uuid import UUID

from catalog.index.steps import LOSE
from catalog.ingest.keymap import Work
from catalog.ingest.sources import Source

NAME = "console"


def losses(lost: Mapping[UUID, str], sources: Iterable[Source], now: float) -> list[tuple[Source, Work]]:
    """One step per source of a lost node: everything it held leaves in one commit, and is listed again if it returns.

    Args:
        lost: nodes that are lost now, with the reason.
        sources: all sources of the shard.
        now: UNIX seconds.
    """
    out = []
    for source in sources:
        reason = lost.get(source.node)
        if reason is not None and source.lost_since is None:
            source.lose(now, reason)
            out.append((source, Work(LOSE, source.id)))
    return out
