"""Keeps the fleets that decisions are made over, one by policy and by who was asked about, as they are now.

What was sent since one was prepared is worked into it, so every decision sees what the ones before it have sent. Where
that cannot be done for a candidate alone, since what some workers do not report is estimated from the others, a
prepared fleet serves for some ms. Called by `deciding`.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from kvcore.cards import Candidate, Learned
from kvcore.fleets import Fleet as Prepared
from kvcore.fleets import moved
from kvcore.policies import Policy
from kvcore.scoring import prepare
from routing.candidates import Fleet
from routing.codes import Refusal
from routing.namespaces import Place

PREPARED_SECONDS = 0.004
"""So long a fleet serves that cannot be changed: a burst within it does not see what the others of it were sent."""
MOVED_MOST = 64
"""Candidates that are changed one by one; where more were sent something, the fleet is prepared anew."""
KEPT_MOST = 256


class Ready(NamedTuple):
    """A prepared fleet: the candidates it was made of, their numbers in the whole fleet, how much of `Fleet.moved` is
    in it, and when it was prepared (steady clock, s)."""

    fleet: Prepared
    candidates: tuple[Candidate, ...]
    chosen: Sequence[int]
    upto: int
    at: float


class Fleets:
    """The prepared fleets of one router. The event loop's alone."""

    def __init__(self, fleet: Fleet, clock: Callable[[], float] = time.monotonic) -> None:
        self.fleet, self.clock = fleet, clock
        self._kept: dict[tuple[object, ...], Ready] = {}
        self._version = -1

    def ready(self, place: Place, policy: Policy, learned: Learned, named: tuple[str, ...] | None) -> Ready:
        """The fleet of this namespace and policy as it is now.

        Args:
            place: the namespace, with who may not take its requests.
            policy: decides.
            learned: what outcomes have taught.
            named: the workers that the caller thought of; None = all.

        Raises:
            Refusal: unknown-candidate.
        """
        if self.fleet.version != self._version:
            self._kept.clear()
            self._version = self.fleet.version
        key = (policy.name, policy.version, learned.version, named, place.tenant_id if named else None,
               tuple(sorted(place.refused.items())))  # fmt: skip
        kept = self._kept.get(key)
        if kept is None:
            found = self._prepare(place, policy, learned, self._chosen(place, named))
        elif kept.upto == len(self.fleet.moved):
            return kept
        else:
            found = self._moved(place, kept)
        if kept is not None or len(self._kept) < KEPT_MOST:
            self._kept[key] = found
        return found

    def _prepare(self, place: Place, policy: Policy, learned: Learned, chosen: Sequence[int]) -> Ready:
        fleet = self.fleet
        candidates = tuple([refused(c, place.refused.get(c.node, "")) for i in chosen for c in [fleet.candidates[i]]])
        made = prepare(candidates, fleet.edges, policy, learned, fleet.wires)
        return Ready(made, candidates, chosen, len(fleet.moved), self.clock())

    def _moved(self, place: Place, kept: Ready) -> Ready:
        fleet, now = self.fleet, None
        since = set(fleet.moved[kept.upto :])
        places = [n for n, i in enumerate(kept.chosen) if i in since]
        candidates = list(kept.candidates)
        for n in places:
            c = fleet.candidates[kept.chosen[n]]
            candidates[n] = refused(c, place.refused.get(c.node, ""))
        if len(places) <= MOVED_MOST:
            now = moved(kept.fleet, places, whole := tuple(candidates))
        if now is not None:
            return kept._replace(fleet=now, candidates=whole, upto=len(fleet.moved))
        if self.clock() - kept.at < PREPARED_SECONDS:
            return kept
        return self._prepare(place, kept.fleet.policy, kept.fleet.learned, kept.chosen)

    def _chosen(self, place: Place, named: tuple[str, ...] | None) -> Sequence[int]:
        """Numbers of the candidates. A node that serves another tenant alone does not exist for this one."""
        fleet = self.fleet
        if named is None:
            return range(len(fleet.candidates))
        chosen: dict[int, None] = {}
        whose = place.tenant_id
        for i, name in enumerate(named):
            numbers = fleet.by_name.get(name, [])
            numbers = [n for n in numbers if fleet.dedicated.get(fleet.candidates[n].node, whose) == whose]
            if not numbers:
                raise Refusal("unknown-candidate", "The fleet has no such worker.", pointer=f"/candidates/{i}")
            chosen.update(dict.fromkeys(numbers))
        return list(chosen)


def refused(candidate: Candidate, why: str) -> Candidate:
    """The candidate, refused for that reason if there is one."""
    return msgspec.structs.replace(candidate, refused=why) if why else candidate
