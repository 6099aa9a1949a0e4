"""Decides which steps a move wants next, and where it stands: from its routes and what was answered, nothing else.

A route is from one place to another. Within a source: `move`. Else offer → take → (the catalog has heard the
destination beyond its commit) → release. What a destination did not take is offered again where that can help, until
the deadline; the rest stays where it was and the operation says so. Called by the console's engine.
"""

import hashlib
from collections import Counter
from typing import Any

import msgspec

from kvcore.moves import MOVE, OFFER, RELEASE, TAKE, MoveArgs, Party
from kvcore.plan_state import CellProgress, Condition, Progress, State
from kvcore.plan_steps import MOST_WAIT_SECONDS, WAIT_SECONDS, StepWish, step_id

KINDS = ("migration", "drain", "prefetch")
AGAIN = frozenset(
    {"source-unreachable", "tier-down", "lease-over", "offer-unknown", "blocks-leased", "transfer-session", "gone",
     "erasing", "moving", "tenant-mismatch", "agent-error", "too-many-left", "readback-unclean"}
)  # fmt: skip
"""Codes of what may be different the next time."""
NO_ROOM = frozenset({"target-full", "quota"})
"""Codes of what another place may have room for."""
ROUNDS_MOST = 8
SPARE_MOST = 1_000
"""Namespaces on hold that a command names; where there are more, nothing at all is let go."""
HOLD = "legal-hold"
OFFER_SECONDS = 600.0
"""How long after the deadline what was offered is held, so that what was taken can be released."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """From a place to a place (their numbers); to 0 = to nobody: what is left there is let go, to be computed anew.

    One of a later `turn` is for what the earlier ones from its place found no room for.
    """

    source: int
    target: int
    most_bytes: int | None = None
    turn: int = 0


class MoveIntent(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted. `only`: of the targets the runs with these keys (hex). `keep`: the source keeps its copies.

    `spare`: namespaces (hex) that a legal hold keeps now: their last copies are not let go.
    """

    operation: str
    generation: int
    kind: str
    routes: tuple[Route, ...]
    tenants: dict[str, str] = {}
    only: tuple[str, ...] = ()
    keep: bool = False
    spare: tuple[str, ...] = ()
    paused: bool = False
    stopped: bool = False
    deadline: float = 0.0
    rate_bytes_per_s: int | None = None


class MovePlace(msgspec.Struct, frozen=True, kw_only=True):
    """A place as it is now. `blocks` and `bytes` of the targets are believed there."""

    owner: int
    node: str
    name: str
    source: str
    tier: str
    dp_rank: int = 0
    boot: str = ""
    stream: str = ""
    seq: int = -1
    reachable: bool = True
    public_key: str = ""
    url: str = ""
    blocks: int = 0
    bytes: int = 0


class MoveSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a move as its row and receipt say; `outcome` "" until there is one."""

    step: str
    kind: str
    pair: int
    attempt: int
    outcome: str = ""
    code: str = ""
    at: float = 0.0
    runs: int = 0
    blocks: int = 0
    bytes: int = 0
    offer: str = ""
    left: tuple[str, ...] = ()
    refused: dict[str, int] = {}
    spared: int = 0
    position_boot: str = ""
    position_stream: str = ""
    position_seq: int = -1

    @property
    def took(self) -> bool:
        """Whether anything was committed by it."""
        return self.outcome in ("done", "partial")


class MoveObserved(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known when it is planned."""

    now: float
    places: dict[int, MovePlace]
    steps: tuple[MoveSeen, ...] = ()
    order_logged: bool = False


class Stand(msgspec.Struct, frozen=True, kw_only=True):
    """Where a route stands: what it wants next, or that it is settled, and what was left behind, by code."""

    route: Route
    wish: StepWish | None = None
    settled: bool = False
    blocks: int = 0
    bytes: int = 0
    total_bytes: int = 0
    left: dict[str, int] = {}
    waits: str = ""


def pair_number(route: Route) -> int:
    """The number of a pair of places, which stands for the owner in the ids of its steps."""
    named = f"kvconsole/pair/v1\0{route.source}\0{route.target}".encode()
    return int.from_bytes(hashlib.sha256(named).digest()[:8], "big") >> 12


def stands(intent: MoveIntent, observed: MoveObserved) -> list[Stand]:
    """Where each route stands. One of a later turn, or to nobody, waits until the others from its place are settled."""
    found: list[Stand] = []
    for route in sorted(intent.routes, key=_turn):
        before = [s for s in found if s.route.source == route.source and _turn(s.route) < _turn(route)]
        if not all(s.settled for s in before):
            found.append(Stand(route=route, waits="others"))
        else:
            found.append(_Planner(intent, observed, route).stand())
    return found


def _turn(route: Route) -> tuple[bool, int]:
    return route.target == 0, route.turn


def steps(intent: MoveIntent, observed: MoveObserved) -> list[StepWish]:
    """The steps that are wanted now."""
    if intent.paused or intent.stopped or not observed.order_logged:
        return []
    return [one.wish for one in stands(intent, observed) if one.wish is not None]


class _Planner:
    """One route."""

    def __init__(self, intent: MoveIntent, observed: MoveObserved, route: Route) -> None:
        self._intent, self._observed, self._route = intent, observed, route
        self._pair = pair_number(route)
        self._from, self._to = observed.places.get(route.source), observed.places.get(route.target)
        self._of = {
            kind: sorted(
                (s for s in observed.steps if s.pair == self._pair and s.kind == kind), key=lambda s: s.attempt
            )
            for kind in (MOVE, OFFER, TAKE, RELEASE)
        }

    def stand(self) -> Stand:
        """Where it stands."""
        if self._from is None or (self._to is None and self._route.target):
            return self._settled({"place-unknown": 0})
        if self._to is not None and (self._from.node, self._from.source) == (self._to.node, self._to.source):
            return self._moving()
        return self._offering()

    @property
    def _late(self) -> bool:
        return self._observed.now >= self._intent.deadline

    def _moving(self) -> Stand:
        last = self._last(MOVE)
        if last is None or not last.outcome:
            return self._wants(MOVE, last)
        left = last.refused or ({} if last.outcome == "done" else {last.code: 0})
        if last.outcome == "done" or self._late or not (left.keys() & AGAIN) or self._spent(MOVE):
            return self._settled(left)
        return self._wants(MOVE, last, again=True)

    def _offering(self) -> Stand:
        """The last offer and what came of it."""
        offer = self._last(OFFER)
        if offer is None or not offer.outcome:
            if offer is None and not self._route.target and len(self._intent.spare) > SPARE_MOST:
                return self._settled({HOLD: self._from.blocks if self._from else 0})
            return self._wants(OFFER, offer)
        if not offer.took:
            return self._retry(OFFER, offer, {offer.code: 0})
        if not offer.runs:
            return self._settled({HOLD: offer.spared} if offer.spared else {})
        if self._route.target == 0:
            return self._releasing(offer, None)
        take = next((s for s in reversed(self._of[TAKE]) if s.offer == offer.step), None)
        if take is None or not take.outcome:
            return self._wants(TAKE, take, offer=offer)
        if not take.took:
            if take.code == "offer-unknown":
                return self._retry(OFFER, offer, {take.code: offer.blocks})
            return self._retry(TAKE, take, {take.code: offer.blocks}, offer=offer)
        if not self._heard(take):
            return Stand(route=self._route, waits="catalog", **self._counts())
        return self._releasing(offer, take)

    def _releasing(self, offer: MoveSeen, take: MoveSeen | None) -> Stand:
        release = next((s for s in reversed(self._of[RELEASE]) if s.offer == offer.step), None)
        if release is None or not release.outcome:
            return self._wants(RELEASE, release, offer=offer, take=take)
        if release.outcome == "partial":
            return self._retry(RELEASE, release, {release.code: release.blocks}, offer=offer, take=take, always=True)
        if release.outcome == "refused" and release.code == "offer-unknown":  # the source began a new life
            return self._retry(OFFER, offer, {release.code: 0})
        left = dict(take.refused) if take is not None else {}
        spared = offer.spared + sum(s.spared for s in self._of[RELEASE] if s.offer == offer.step)
        left |= {HOLD: spared} if spared else {}
        if take is not None and left.keys() & AGAIN:
            return self._retry(OFFER, offer, left)
        return self._settled(left)

    def _lost(self, take: MoveSeen) -> bool:
        """Whether the destination's life is over in which it took it, and maybe what it took with that."""
        return self._to is not None and self._to.boot != take.position_boot

    def _heard(self, take: MoveSeen) -> bool:
        """Whether the catalog has what the destination announced: it has heard it beyond its receipt."""
        to = self._to
        if to is None:
            return False
        if (to.boot, to.stream) != (take.position_boot, take.position_stream):
            return to.boot != take.position_boot  # its life is over, and with it what it had not told
        return to.seq >= take.position_seq

    # What is wanted

    def _last(self, kind: str) -> MoveSeen | None:
        return self._of[kind][-1] if self._of[kind] else None

    def _spent(self, kind: str) -> bool:
        return len(self._of[kind]) >= ROUNDS_MOST

    def _retry(self, kind: str, last: MoveSeen, left: dict[str, int], *, always: bool = False, **more: Any) -> Stand:
        """Once more, where that can help and there is time."""
        if not always and (self._late or self._spent(kind)):
            return self._settled(left)
        return self._wants(kind, last, again=True, **more)

    def _wants(
        self, kind: str, last: MoveSeen | None, *, again: bool = False, offer: MoveSeen | None = None,
        take: MoveSeen | None = None,
    ) -> Stand:  # fmt: skip
        here = self._to if kind == TAKE else self._from
        assert here is not None
        attempt = (self._of[kind][-1].attempt + 1 if self._of[kind] else 0) if again or last is None else last.attempt
        if not here.reachable:
            if self._late and kind != RELEASE:
                return self._settled({"node-unreachable": 0})
            return Stand(route=self._route, waits="silent", **self._counts())
        later = 0.0
        if again and last is not None:
            later = last.at + min(MOST_WAIT_SECONDS, WAIT_SECONDS * 2.0 ** min(attempt - 1, 8))
        args = self._args(kind, here, offer, take)
        wish = StepWish(
            step=str(step_id(self._intent.operation, self._intent.generation, kind, self._pair, "", attempt)),
            kind=kind, node=here.name, source=here.source, dp_rank=here.dp_rank, tier=here.tier, owner=here.owner,
            boot="", attempt=attempt, args=msgspec.to_builtins(args) | {"pair": self._pair}, not_before=later,
        )  # fmt: skip
        return Stand(route=self._route, wish=wish, **self._counts())

    def _args(self, kind: str, here: MovePlace, offer: MoveSeen | None, take: MoveSeen | None) -> MoveArgs:
        other = self._from if kind == TAKE else self._to
        last_copies = kind in (OFFER, RELEASE) and (not self._route.target or (take is not None and self._lost(take)))
        spare = list(self._intent.spare) if last_copies else []
        none_goes = kind == RELEASE and len(spare) > SPARE_MOST
        return MoveArgs(
            operation=self._intent.operation, generation=self._intent.generation, source=here.source, tier=here.tier,
            owner=here.owner, dp_rank=here.dp_rank, targets=[], tenants=self._intent.tenants,
            to_tier=self._to.tier if kind == MOVE and self._to else "", party=_party(other or here),
            offer=offer.step if offer else "", left=list(take.left) if take else [], only=list(self._intent.only),
            keep=self._intent.keep or none_goes, spare=spare[:SPARE_MOST],
            until=self._intent.deadline + OFFER_SECONDS, most_bytes=self._route.most_bytes,
            rate_bytes_per_s=self._intent.rate_bytes_per_s,
        )  # fmt: skip

    def _counts(self) -> dict[str, Any]:
        done = [s for kind in (MOVE, TAKE) for s in self._of[kind] if s.took]
        if self._route.target == 0:
            done = [s for s in self._of[RELEASE] if s.took]
        size, waiting = sum(s.bytes for s in done), self._from.bytes if self._from else 0
        offered = max((s.bytes for s in self._of[OFFER] if s.took), default=0)
        return {"blocks": sum(s.blocks for s in done), "bytes": size, "total_bytes": max(size, offered, waiting)}

    def _settled(self, left: dict[str, int]) -> Stand:
        return Stand(route=self._route, settled=True, left={c: n for c, n in left.items() if c}, **self._counts())


def _party(place: MovePlace) -> Party:
    return Party(
        node=place.node, source=place.source, tier=place.tier, owner=place.owner, public_key=place.public_key,
        url=place.url, dp_rank=place.dp_rank,
    )  # fmt: skip


# --- where it stands --------------------------------------------------------------------------


def done(found: list[Stand]) -> bool:
    """Whether nothing more will come of it."""
    return all(one.settled for one in found)


def left_behind(found: list[Stand]) -> dict[str, int]:
    """Blocks that stayed where they were, by code. What no room was found for, the last turn has tried once more."""
    last = {one.route.source: one.route.turn for one in found if one.route.target}
    out: Counter[str] = Counter()
    for one in found:
        tried = one.route.turn < last.get(one.route.source, 0)
        out.update({code: n for code, n in one.left.items() if not (tried and code in NO_ROOM)})
    return dict(out)


def conditions(intent: MoveIntent, observed: MoveObserved, concluded: bool) -> list[Condition]:
    """The conditions of a move, in a fixed order."""
    found = stands(intent, observed)
    waits = sorted({one.waits for one in found if one.waits})
    silent = sorted(
        {p.name for one in found if one.waits == "silent" for n in (one.route.source, one.route.target)
         if (p := observed.places.get(n)) is not None and not p.reachable}
    )  # fmt: skip
    left = left_behind(found)
    reason = "" if done(found) else "order-not-logged" if not observed.order_logged else (waits or ["working"])[0]
    told = f"{sum(one.settled for one in found)} of {len(found)} routes"
    return [
        _flag("Paused", intent.paused, "paused"),
        _flag("Stopped", intent.stopped, "stopped"),
        Condition(
            type="NodesReachable", status="false" if silent else "true", reason="silent" if silent else "",
            message=", ".join(silent),
        ),
        Condition(type="Moved", status="true" if done(found) else "false", reason=reason, message=told),
        Condition(
            type="Complete", status="false" if left else "true" if done(found) else "unknown",
            reason=next(iter(left), "" if done(found) else "working"),
            message=", ".join(f"{code}: {n} blocks" for code, n in left.items()),
        ),
        Condition(
            type="Concluded", status="true" if concluded else "false", reason="with-exceptions" if left else ""
        ),
    ]  # fmt: skip


def _flag(type_: str, holds: bool, reason: str) -> Condition:
    return Condition(type=type_, status="true" if holds else "false", reason=reason if holds else "")


def state(found: list[Condition]) -> State:
    """The state that the conditions come to."""
    true = {one.type for one in found if one.status == "true"}
    reason = {one.type: one.reason for one in found}
    if "Concluded" in true:
        return State.COMPLETED_WITH_EXCEPTIONS if reason["Concluded"] else State.COMPLETED
    if "Stopped" in true:
        return State.STOPPED
    return State.PLANNED if reason["Moved"] == "order-not-logged" else State.MOVING


def progress(intent: MoveIntent, observed: MoveObserved) -> Progress:
    """How far each route is, told at its source."""
    cells = []
    for one in stands(intent, observed):
        place = observed.places.get(one.route.source)
        state = (
            "verified" if one.settled else "silent" if one.waits == "silent" else "erasing" if one.bytes else "pending"
        )
        cells.append(
            CellProgress(
                node=place.name if place else "", source=place.source if place else "",
                tier=place.tier if place else "", owner=one.route.source, state=state, cls=None, done_bytes=one.bytes,
                total_bytes=max(one.total_bytes, one.bytes),
            )
        )  # fmt: skip
    total = sum(c.total_bytes + 1 for c in cells)
    ready = sum(c.total_bytes + 1 if c.state == "verified" else c.done_bytes for c in cells)
    return Progress(percent=100 * ready // total if total else 0, cells=tuple(cells))
