"""Decides what the console itself tells the writer: that a node or one of its sources is lost.

There is one writer per fact, so these are steps in the writer's own batches, like an agent's items. Silence is judged
per source, because agents share a node: what one of them no longer tells, the heartbeats of another do not vouch for.
Called by `folding` in each batch.
"""

from collections.abc import Iterable, Iterator, Mapping
from uuid import UUID

from catalog.index.steps import LOSE
from catalog.ingest.keymap import Work
from catalog.ingest.nodes import SILENT_S
from catalog.ingest.sources import SILENT, Source

NAME = "console"
QUIET_S = 5.0
"""A source of which nothing came for so long is not called exact; after `SILENT_S` it is lost."""


def losses(
    lost: Mapping[UUID, str], sources: Iterable[Source], now: float, *, hearing_since: float
) -> Iterator[tuple[Source, Work | None]]:
    """Sources whose silence has to be told, each with its step if it is lost now.

    What a lost source held leaves in one commit, and is listed again if it returns.

    Args:
        lost: nodes that are lost now, with the reason.
        sources: all sources of the shard.
        now: UNIX seconds.
        hearing_since: UNIX seconds since when this writer has heard whoever spoke; silence before it was ours.
    """
    for source in sources:
        if source.lost_since is not None:
            continue
        reason = lost.get(source.node)
        # a source without a boot holds nothing and was never exact
        silence = now - max(source.spoke_at, hearing_since) if source.cursor.boot else 0.0
        if reason is None and silence > SILENT_S:
            reason = SILENT
        if reason is not None:
            source.lose(now, reason)
            yield source, Work(LOSE, source.id)
        elif silence > QUIET_S and SILENT not in source.doubts:
            source.doubt(SILENT, now)
            yield source, None
