"""Decides what the candidates hold of a chain: the index's runs of owners become runs of workers and tiers.

An owner's number never means another owner, so whose worker it is remembered until the fleet changes: of a look-up
with a hundred owners only the arithmetic is left. Called by `deciding`.
"""

import time
from collections.abc import Mapping
from typing import NamedTuple

from kvcore.blocks import TIERS
from kvcore.cards import Held
from routing.candidates import Fleet
from routing.index import Runs
from routing.replica import Replica
from routing.view import Space, View

RANK = {str(tier): i for i, tier in enumerate(TIERS)}
"""From fast to slow."""
OWNERS_MOST = 256
"""Owners of a look-up, the deepest: in a fleet with more, who holds least counts as holding nothing."""


class Found(NamedTuple):
    """Runs of (depth, owners' numbers), and how good the index was; see `routing.replica.Found`."""

    view: View | None
    runs: Runs
    seq: int
    age_ms: int
    mode: str


class Holders:
    """The replica's owners as candidates of the fleet."""

    def __init__(self, fleet: Fleet, replica: Replica) -> None:
        self.fleet, self.replica = fleet, replica
        self._version = -1
        self._known: dict[int, tuple[tuple[int, ...], int, str]] = {}
        """Owner → (numbers of the workers that read it, rank of its tier, tier)."""

    def look(self, space: Space, fingerprints: bytes) -> Found:
        """As `Replica.lookup`, by numbers."""
        view, mode, now = self.replica.view, self.replica.mode, time.monotonic()
        if view is None:
            return Found(None, [], 0, 0, mode)
        keyspace = view.number.get(space)
        runs: Runs = []
        if keyspace is not None and fingerprints and mode != "recompute" and view.routable(keyspace):
            view.used[keyspace] = now
            runs = view.index.lookup(keyspace, fingerprints, 0, OWNERS_MOST)
            if not view.routable(keyspace):  # fenced while we walked
                runs = []
        return Found(view, runs, sum(view.at.values()), int(max(0.0, now - self.replica.checked_at) * 1000), mode)

    def held(self, found: Found, numbers: Mapping[tuple[str, str, int], int] | None) -> tuple[Held, ...]:
        """What they hold: of each the runs by growing depth, a slower tier only where it reaches deeper.

        Args:
            found: of `look`.
            numbers: places of named candidates among those that were named; None = all of the fleet.
        """
        view = found.view
        if view is None or not found.runs:
            return ()
        if self._version != self.fleet.version:
            self._known, self._version = {}, self.fleet.version
        known = self._known
        by: dict[int, list[tuple[int, str, int]]] = {}
        for depth, owners in reversed(found.runs):  # from the deepest on: what is faster there covers what is before it
            for owner in owners:
                entry = known.get(owner)
                if entry is None:
                    entry = known[owner] = self._entry(view, owner)
                holders, rank, tier = entry
                for holder in holders:
                    runs = by.get(holder)
                    if runs is None:
                        by[holder] = [(depth, tier, rank)]
                    elif rank < runs[-1][2]:
                        if runs[-1][0] == depth:
                            runs[-1] = (depth, tier, rank)
                        else:
                            runs.append((depth, tier, rank))
        if numbers is not None:
            by = self._among(by, numbers)
        return tuple([Held(at, tuple([run[:2] for run in reversed(runs)])) for at, runs in sorted(by.items())])

    def _entry(self, view: View, owner: int) -> tuple[tuple[int, ...], int, str]:
        who = view.who(owner)
        if who is None:
            return (), 0, ""
        at = (str(who.node), who.source, who.dp_rank)
        number = self.fleet.number.get(at)
        return (number,) if number is not None else self.fleet.stores.get(at, ()), RANK[who.tier], who.tier

    def _among(
        self, by: dict[int, list[tuple[int, str, int]]], numbers: Mapping[tuple[str, str, int], int]
    ) -> dict[int, list[tuple[int, str, int]]]:
        found = ((self.fleet.candidates[at], runs) for at, runs in by.items())
        places = ((numbers.get((c.node, c.source, c.dp_rank)), runs) for c, runs in found)
        return {place: runs for place, runs in places if place is not None}
