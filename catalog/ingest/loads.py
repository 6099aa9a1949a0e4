"""Decides which load reports of workers are stored: the latest of each source and rank, with the time it was measured.

The rows go with the writer's commit. What cannot be a report, is older than the last one, or names a source the node
has not, is refused alone and counted. Called by `folding`.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from catalog.ingest.sources import Source
from kvcore.loads import WorkerLoad, body_of, load_of
from kvcore.messages import Heartbeat

if TYPE_CHECKING:
    from catalog.ingest.folding import Folder

ENTRIES_MOST = 1024
UPSERT = """
INSERT INTO catalog_workerload (source, dp_rank, at, body)
SELECT s, r, t, b::jsonb FROM unnest(%s::int[], %s::int[], %s::timestamptz[], %s::text[]) AS u(s, r, t, b)
ON CONFLICT (source) DO UPDATE SET dp_rank = excluded.dp_rank, at = excluded.at, body = excluded.body"""


class Loads:
    """What was reported since the last commit."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[str, int]] = {}
        """Of each source the life and number of the last report."""
        self._new: dict[int, tuple[int, datetime, WorkerLoad]] = {}

    def take(self, folder: "Folder", node: UUID, beat: Heartbeat, when: datetime) -> Iterator[tuple[Source, str]]:
        """The reports of a heartbeat are kept; (source, code) of each that is not.

        Args:
            folder: whose sources they speak of.
            node: the node that speaks.
            beat: its heartbeat.
            when: of the batch.
        """
        first = next(iter(folder.of_node.get(node, ())), None)
        for entry in beat.load[:ENTRIES_MOST]:
            load = load_of(entry)
            named = load if isinstance(load, WorkerLoad) else None
            source = folder.named.get((node, named.source, named.dp_rank)) if named else first
            if source is None:
                continue  # it has sent no frame yet: what it reports is told again
            code = load if isinstance(load, str) else self._kept(source, beat.life[:64], load, when)
            if code:
                yield source, code

    def _kept(self, source: Source, life: str, load: WorkerLoad, when: datetime) -> str:
        before, number = self._last.get(source.id, ("", -1))
        if before == life and load.number <= number:
            return "" if load.number == number else "load-late"  # the same once more: its answer was lost
        self._last[source.id] = life, load.number
        self._new[source.id] = source.dp_rank, when - timedelta(milliseconds=load.age_ms), load
        return ""

    def rows(self) -> list[tuple[str, Sequence[Any]]]:
        """Statements for the commit; what they write is forgotten here."""
        if not self._new:
            return []
        rows = [
            (source, rank, at.astimezone(UTC), msgspec.json.encode(body_of(load)).decode())
            for source, (rank, at, load) in self._new.items()
        ]
        self._new = {}
        return [(UPSERT, [[row[i] for row in rows] for i in range(4)])]
