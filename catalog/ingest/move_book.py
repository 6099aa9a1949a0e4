"""Decides which moves between owners are open, and what the destination's word does to the old place.

Only the step counts, never the token: an open `take` of an operation that was ordered says who may announce blocks of
which namespaces as taken from whom. In the commit in which they are announced the blocks of the old place become
`evicting`: still held and in its digest, not routable, whatever their owner tells again, until it drops them or says
that they are its own. Belongs to the fold thread. Called by `folding` and `admission`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from django.db import connection

from catalog.index.steps import VACATE
from catalog.ingest.keymap import Work
from catalog.ingest.sources import Source
from kvconsole.infra.sql import named
from kvcore.events import Add, Item, Refused

FRESH_S = 5.0
"""How long a step that was read is believed to be open."""


class OpenMove(NamedTuple):
    """A step of taking: who takes, from which place (its number and its source's row), what of which generations."""

    node: UUID
    owner: int
    source: int
    tier: str
    generations: Mapping[bytes, int]
    """Digest → generation below which."""


@dataclass(slots=True)
class MoveBook:
    """The open steps that somebody spoke of lately."""

    shard: int
    open: dict[str, OpenMove] = field(default_factory=dict)
    _read_at: dict[str, float] = field(default_factory=dict)

    def ask(self, items: Iterable[Item], now: float) -> None:
        """What is known of the steps that the items name is fresh; steps nobody names are forgotten."""
        said = {i.step for i in items if isinstance(i, Add) and i.step is not None}
        wanted = {step for step in said if now - self._read_at.get(step, float("-inf")) > FRESH_S or self._odd(step)}
        if not wanted:
            return
        for step in [s for s, at in self._read_at.items() if now - at > FRESH_S]:
            del self._read_at[step]
            self.open.pop(step, None)
        found = self._read([uuid for step in wanted if (uuid := _uuid(step)) is not None])
        for step in wanted:
            self._read_at[step] = now
            if step in found:
                self.open[step] = found[step]

    def _odd(self, step: str) -> bool:
        """Whether a step that was not open may have been opened since."""
        return step not in self.open

    def _read(self, steps: list[UUID]) -> dict[str, OpenMove]:
        if not steps:
            return {}
        queries = named("catalog", "moves.sql")
        with connection.cursor() as cursor:
            cursor.execute(queries["takes_open"], (self.shard, steps))
            rows = cursor.fetchall()
            generations: dict[UUID, dict[bytes, int]] = {}
            if rows:
                cursor.execute(queries["take_targets"], (sorted({row[1] for row in rows}),))
                for operation, digest, gen in cursor.fetchall():
                    generations.setdefault(operation, {})[bytes(digest)] = gen
        return {
            str(step): OpenMove(node, int(owner), source, tier, generations.get(operation, {}))
            for step, operation, node, owner, source, tier in rows
        }

    def admit(self, source: Source, item: Add) -> None:
        """Passes if the item stands in an open step that is its node's, and says what the step says.

        Raises:
            Refused: step-unknown or foreign-owner; the item has no effect.
        """
        move = self.open.get(item.step or "")
        if move is None or move.node != source.node or item.gen >= move.generations.get(item.ns, 0):
            raise Refused("step-unknown", str(item.step)[:64])
        if item.from_owner != move.owner:
            raise Refused("foreign-owner", f"owner {item.from_owner}")

    def vacated(self, item: Item, came: Work) -> list[Work]:
        """What the announcement does to the old place."""
        move = self.open.get(item.step) if isinstance(item, Add) and item.step is not None else None
        if move is None or (move.source, move.tier) == (came.source, came.tier):
            return []
        taker = came.source, came.tier
        return [Work(VACATE, move.source, move.tier, came.keyspace, came.keys, taker=taker, tag=came.tag)]


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
