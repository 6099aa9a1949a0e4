"""Decides what the console itself tells the writer: that a source is lost, and what receipts of erasing cover.

There is one writer per fact, so these are steps in the writer's own batches, like an agent's items. Silence is judged
per source, because agents share a node: what one of them no longer tells, the heartbeats of another do not vouch for.
A receipt covers what its source told up to the receipt's position, and nothing that it told later: so the step stands
exactly there among the source's own. Called by `folding` in each batch.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection

from catalog.index.steps import CLEAR, LOSE, Keyspace
from catalog.ingest.key_book import KeyBook
from catalog.ingest.keymap import Memory, Work
from catalog.ingest.nodes import SILENT_S
from catalog.ingest.sources import SILENT, Source
from kvconsole.infra.sql import named
from kvcore.events import Item

NAME = "console"
PURGES_EVERY_S = 0.5
STALE_MOST = 100_000
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


class Purge(NamedTuple):
    """What a receipt covers: everything of the targets that the source had told of the tier up to the position."""

    step: UUID
    operation: UUID
    source: int
    tier: str
    targets: tuple[tuple[bytes, int], ...]
    """(digest, generation below which)."""
    boot: str
    stream: str
    seq: int


@dataclass(slots=True)
class PurgeBook:
    """Purges that wait for their source. Belongs to the fold thread."""

    shard: int
    waiting: dict[UUID, Purge] = field(default_factory=dict)
    stale: dict[tuple[int, str, bytes], tuple[str, str, int]] = field(default_factory=dict)
    """(source, tier, digest) → position of the last blocks of a fenced generation that were announced there."""
    done: list[UUID] = field(default_factory=list)
    """Steps of this batch."""
    cleared: set[int] = field(default_factory=set)
    """Keyspaces of this batch of which an owner was purged."""
    as_of: float = 0.0
    dirty: bool = True
    memory: Memory | None = None
    keys: KeyBook = field(default_factory=KeyBook)
    """Orders that are finer than a namespace."""

    def due(self, now: float) -> bool:
        """Whether `refresh` would read."""
        return self.dirty or not 0 <= now - self.as_of < PURGES_EVERY_S

    def refresh(self, now: float) -> None:
        """What waits is as in the table."""
        if not self.due(now):
            return
        queries = named("catalog", "operations.sql")
        with connection.cursor() as cursor:
            cursor.execute(queries["purges_due"], (self.shard,))
            rows = cursor.fetchall()
            targets: dict[UUID, list[tuple[bytes, int]]] = {}
            if rows:
                cursor.execute(queries["purge_targets"], (sorted({row[1] for row in rows}),))
                for operation, digest, gen in cursor.fetchall():
                    targets.setdefault(operation, []).append((bytes(digest), gen))
        shared = {operation: tuple(some) for operation, some in targets.items()}
        self.waiting = {
            step: Purge(step, operation, source, tier, shared.get(operation, ()), boot, stream, seq)
            for step, operation, source, tier, boot, stream, seq in rows
        }
        self.keys.refresh(now)
        self.as_of, self.dirty = now, False

    def hiding(self, by_digest: Mapping[bytes, Iterable[Keyspace]]) -> Iterator[Work]:
        """Steps for keys that are behind a fence of the directory since the last batch, or not any more."""
        if self.memory is not None:
            yield from self.keys.steps(self.memory, by_digest)

    def came(self, item: Item, step: Work, at: Any) -> list[Work]:
        """What the announcement of an item is worth where its keys are being deleted; `at` is its frame."""
        return self.keys.came(item, step, (at.boot, at.stream, at.seq)) if self.keys.open else []

    def begin(self, sources: Mapping[int, Source]) -> list[Source]:
        """A batch begins; the sources of which receipts cover something that the catalog has not dropped yet."""
        self.done, self.cleared = [], set()
        return [found for id_ in {p.source for p in self.waiting.values()} if (found := sources.get(id_))]

    def announced(self, source: int, tier: str, digest: bytes, boot: str, stream: str, seq: int) -> None:
        """Blocks of a fenced generation were announced: no receipt from before that covers them."""
        if len(self.stale) >= STALE_MOST:
            self.stale.clear()
        self.stale[source, tier, digest] = boot, stream, seq

    def steps(
        self, source: Source, by_digest: Mapping[bytes, Iterable[Keyspace]], *, upto: int | None = None
    ) -> Iterator[Work]:
        """The steps of the source that are due: it was heard up to their positions.

        Args:
            source: the one.
            by_digest: keyspaces of each namespace.
            upto: of the source's present stream; None = where its cursor is.
        """
        for purge in [p for p in self.waiting.values() if p.source == source.id and _passed(p, source, upto)]:
            del self.waiting[purge.step]
            self.done.append(purge.step)
            chosen = tuple(
                keyspace.id
                for digest, gen in purge.targets
                if not self._came_after(purge, digest)
                for keyspace in by_digest.get(digest, ())
                if keyspace.generation < gen
            )
            if chosen:
                self.cleared.update(chosen)
                yield Work(CLEAR, source.id, tiers=(purge.tier,), keyspaces=chosen, reason="delete")
            if self.memory is not None:
                at = purge.boot, purge.stream, purge.seq
                yield from self.keys.drops(purge.operation, source.id, purge.tier, at, self.memory, by_digest)

    def _came_after(self, purge: Purge, digest: bytes) -> bool:
        """Whether blocks were announced behind the receipt's position: they are there, whatever it says."""
        at = self.stale.get((purge.source, purge.tier, digest))
        return at is not None and at[:2] == (purge.boot, purge.stream) and at[2] > purge.seq

    def left(
        self, held: Iterable[tuple[int, int]], keyspaces: Mapping[int, Keyspace], known: Mapping[bytes, Any]
    ) -> None:
        """Of these (keyspace, owner), what is fenced is taken out like what is purged, as soon as nobody holds it.

        Nodes mostly tell that they dropped it before their receipts are read, or the last of them ended or was lost;
        then nothing is left to purge.
        """
        for keyspace in {keyspace for keyspace, _ in held}:
            row = keyspaces[keyspace]
            if (namespace := known.get(row.digest)) is not None and row.generation < namespace.min_gen:
                self.cleared.add(keyspace)

    def vacated(self, memory: Memory) -> tuple[int, ...]:
        """Keyspaces that were purged or fenced and that nobody holds any more: their rows go in one delete."""
        held: Collection[dict[int, list[int]]] = memory.holding.values()
        return tuple(ks for ks in self.cleared if not any(by_ks.get(ks, (0,))[0] for by_ks in held))

    def rows(self, now: float) -> list[tuple[str, tuple[Any, ...]]]:
        """Statements that say so, for the transaction in which it happens."""
        return [(named("catalog", "operations.sql")["purged"], (now, self.done))] if self.done else []


def _passed(purge: Purge, source: Source, upto: int | None) -> bool:
    """Whether the source was heard up to the position, or its life is over."""
    cursor = source.cursor
    if not purge.boot or purge.boot in cursor.old_boots or purge.stream in cursor.old_boots:
        return True
    here = (purge.boot, purge.stream) == (cursor.boot, cursor.stream)
    return here and purge.seq <= (cursor.seq if upto is None else upto)
