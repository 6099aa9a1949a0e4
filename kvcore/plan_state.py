"""Decides where an operation stands: its conditions, state, finalizers and progress.

Nothing here is stored. Called by the console's engine and by whoever shows an operation.
"""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal

import msgspec

from kvcore.plan_probes import prober
from kvcore.plan_steps import KINDS, Intent, Observed, Standing, standings

Status = Literal["true", "false", "unknown"]


class State(StrEnum):
    """The states of the API."""

    PLANNED = "planned"
    AWAITING_APPROVAL = "awaiting_approval"
    FENCED = "fenced"
    ERASING = "erasing"
    VERIFYING = "verifying"
    MOVING = "moving"
    HELD = "held"
    COMPLETED = "completed"
    COMPLETED_WITH_EXCEPTIONS = "completed_with_exceptions"
    FAILED = "failed"
    DENIED = "denied"
    EXPIRED = "expired"
    STOPPED = "stopped"


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """A fact about an operation: `type` in PascalCase, `reason` a code, `message` for people."""

    type: str
    status: Status
    reason: str = ""
    message: str = ""
    since: float | None = None


class CellProgress(msgspec.Struct, frozen=True, kw_only=True, rename={"cls": "class"}):
    """How far one owner is. `state`: pending, erasing, erased, verified, blocked or silent."""

    node: str
    source: str
    tier: str
    owner: int
    state: str
    cls: int | None
    done_bytes: int
    total_bytes: int


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Percent of the owners' work, whole, 100 only when all is verified."""

    percent: int
    cells: tuple[CellProgress, ...]


def conditions(intent: Intent, observed: Observed) -> list[Condition]:
    """All conditions, in a fixed order. `Held`, `Paused`, `Stopped` and `Failed` are true when it is bad."""
    kind = KINDS[intent.kind]
    found = standings(observed, looks=kind.looks)
    return [
        _approved(intent, observed),
        _flagged("Held", intent.held, "legal-hold"),
        _flagged("Paused", intent.paused, "paused"),
        _flagged("Stopped", intent.stopped, "stopped"),
        _flagged("Failed", intent.failed != "", intent.failed),
        _fenced(intent, observed),
        _unroutable(intent, observed),
        _reachable(found),
        _consistent(observed, found),
        _erased(intent, observed, found),
        *_looked(found, observed, kind.looks),
        _keys(intent, observed, found),
        _unreadable(intent, observed, found),
        _concluded(observed),
    ]


LOOKED = ("Verified", "Probed", "Purged")
NOBODY = "no-places"
"""Reason of what is unknown as there is nobody to ask: nothing waits for it, and nothing is claimed of it."""


def _looked(found: list[Standing], observed: Observed, looks: bool) -> list[Condition]:
    """Whether everything was looked at anew, and is out of the directory; of kinds that come to that.

    Each rests on what comes before it: a place that was not looked at owes no probe yet, and of a directory in which
    nothing is known it is no merit to be empty.
    """
    if not looks:
        return [Condition(type=one, status="true", reason="not-needed") for one in LOOKED]
    if observed.fenced_at is None:
        return [Condition(type=one, status="false", reason="not-fenced") for one in LOOKED]
    if not any(one.ended["verify"] for one in found) and all(one.seen.retired for one in found):
        away = all(one.seen.blocks == 0 for one in found)
        told = [Condition(type=one, status="unknown", reason=NOBODY) for one in LOOKED]
        return told if away else [*told[:2], _count("Purged", [False] * len(found), found, "still-in-directory")]
    clean = [one.clean or one.seen.retired for one in found]
    return [
        _count("Verified", clean, found, "not-verified", _last(found, "verify")),
        _probed(found, observed, [good and not prober(one, observed) for one, good in zip(found, clean, strict=True)]),
        _count(
            "Purged", [good and one.seen.blocks == 0 for one, good in zip(found, clean, strict=True)], found,
            "still-in-directory" if any(one.seen.blocks for one in found) else "not-verified",
            _last(found, "purge"),
        ),
    ]  # fmt: skip


def _probed(found: list[Standing], observed: Observed, good: list[bool]) -> Condition:
    """Whether nobody owes a look at another's place; that nobody looked at all is said."""
    owes = any(prober(one, observed) for one in found)
    told = _count("Probed", good, found, "not-probed" if owes else "not-verified", _last(found, "probe"))
    if told.status == "true" and not any(step.good for one in found for step in one.ended["probe"]):
        return Condition(type="Probed", status="true", reason="nobody-else")
    return told


def _reachable(found: list[Standing]) -> Condition:
    if all(one.seen.retired for one in found):
        return Condition(type="NodesReachable", status="unknown", reason=NOBODY)
    good = [one.seen.reachable or one.clean or one.seen.retired for one in found]
    return _count("NodesReachable", good, found, "silent")


def _consistent(observed: Observed, found: list[Standing]) -> Condition:
    """Before anybody answered nothing agrees with anything."""
    if not any(steps for one in found for steps in one.ended.values()):
        nobody = observed.fenced_at is not None and all(one.seen.retired for one in found)
        return Condition(type="Consistent", status="unknown", reason=NOBODY if nobody else "no-answers")
    return _count("Consistent", [not one.contradicted for one in found], found, "contradicted")


def _flagged(type_: str, holds: bool, reason: str) -> Condition:
    return Condition(type=type_, status="true" if holds else "false", reason=reason if holds else "")


def _approved(intent: Intent, observed: Observed) -> Condition:
    reason = "denied" if intent.denied else "expired" if intent.expired else "" if intent.approved else "waiting"
    status: Status = "false" if reason else "true"
    return Condition(type="Approved", status=status, reason=reason, since=observed.requested_at)


def _fenced(intent: Intent, observed: Observed) -> Condition:
    """Also of what fences nothing it is false until it starts; the reason says what that waits for."""
    done, needed = observed.fenced_at is not None, KINDS[intent.kind].fences
    reason = ("" if needed else "not-needed") if done else intent.waits
    return Condition(type="Fenced", status="true" if done else "false", reason=reason, since=observed.fenced_at)


def _unroutable(intent: Intent, observed: Observed) -> Condition:
    if not KINDS[intent.kind].fences:
        return Condition(type="Unroutable", status="true", reason="not-needed")
    if intent.finer and observed.fenced_at is not None:  # the directory hides the keys; engines may still name them
        return Condition(type="Unroutable", status="true", reason="directory", since=observed.fenced_at)
    waiting = observed.routers_waiting + observed.gateways_waiting
    if observed.fenced_at is None or waiting:
        told = f"{observed.routers_waiting} routers, {observed.gateways_waiting} gateways"
        return Condition(type="Unroutable", status="false", reason="not-acknowledged", message=told)
    return Condition(type="Unroutable", status="true", since=observed.fenced_at)


def _count(type_: str, good: list[bool], found: list[Standing], reason: str, since: float | None = None) -> Condition:
    """True where it holds for every owner; else the nodes for which it does not are named."""
    if all(good):
        return Condition(type=type_, status="true", since=since)
    nodes = sorted({one.seen.node for one, holds in zip(found, good, strict=True) if not holds})
    told = f"{sum(good)} of {len(good)} owners; {', '.join(nodes)}"
    return Condition(type=type_, status="false", reason=reason, message=told)


def _erased(intent: Intent, observed: Observed, found: list[Standing]) -> Condition:
    """Its reason says why nothing is begun, or what it waits for."""
    good = [one.erased or one.seen.retired for one in found]
    if observed.fenced_at is None:
        return Condition(type="Erased", status="false", reason="not-fenced")
    if not observed.order_logged:
        return Condition(type="Erased", status="false", reason="order-not-logged")
    if not any(one.ended["erase"] for one in found) and all(one.seen.retired for one in found):
        return Condition(type="Erased", status="unknown", reason=NOBODY)
    if all(good):
        return Condition(type="Erased", status="true", since=_last(found, "erase"))
    reason = "working"
    if not any(one.started for one in found):
        reason = "grace" if observed.now < intent.grace_until else "not-started"
    elif all(done or one.leased or not one.asked for one, done in zip(found, good, strict=True)):
        reason = "leased" if any(one.leased for one in found) else "silent"
    return _count("Erased", good, found, reason)


def _keys(intent: Intent, observed: Observed, found: list[Standing]) -> Condition:
    if not KINDS[intent.kind].keys or intent.finer:
        return Condition(type="KeysDestroyed", status="true", reason="not-needed")
    if not observed.keys_destroyed:
        return Condition(type="KeysDestroyed", status="false", reason="not-destroyed")
    if observed.lease_ends_at is not None and observed.lease_ends_at > observed.now:
        return Condition(type="KeysDestroyed", status="false", reason="leases-out", since=observed.lease_ends_at)
    return _count("KeysDestroyed", [one.shredded or one.seen.retired for one in found], found, "not-shredded")


def _unreadable(intent: Intent, observed: Observed, found: list[Standing]) -> Condition:
    """Whether what lies on nodes that do not answer can be read by nobody any more, and since when; each is named.

    Its key has to be destroyed and the node's last lease of it over; what is no ciphertext stays readable.
    """
    silent = [one for one in found if not one.asked and not one.clean]
    if observed.fenced_at is None and KINDS[intent.kind].keys and not intent.finer:
        return Condition(type="Unreadable", status="false", reason="not-fenced")
    if not silent or not KINDS[intent.kind].keys or intent.finer:
        return Condition(type="Unreadable", status="true", reason="not-needed")
    at = next((step.at for step in observed.steps if step.kind == "keys" and step.outcome == "done"), None)
    if not observed.keys_destroyed or at is None:
        return Condition(type="Unreadable", status="false", reason="not-destroyed")
    ends: dict[str, float] = {}
    for one in (one for one in silent if one.seen.encrypted):
        ends[one.seen.node] = max(ends.get(one.seen.node, 0.0), at, one.seen.lease_end or 0.0)
    over = {node: since for node, since in ends.items() if since <= observed.now}
    told = "; ".join(f"{node} since {moment(since)}" for node, since in sorted(over.items()))
    if len(over) < len(ends):
        return Condition(type="Unreadable", status="false", reason="leases-out", message=told, since=max(ends.values()))
    readable = sorted({one.seen.node for one in silent if not one.seen.encrypted and one.seen.blocks})
    if readable:
        return Condition(type="Unreadable", status="false", reason="not-encrypted", message=told)
    return Condition(type="Unreadable", status="true", message=told, since=max(over.values(), default=at))


def moment(at: float) -> str:
    """The time in words that everybody reads alike: RFC 3339 in UTC, whole seconds."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _concluded(observed: Observed) -> Condition:
    if observed.concluded_at is None:
        return Condition(type="Concluded", status="false")
    reason = "with-exceptions" if observed.exceptions else ""
    told = ", ".join(observed.exceptions)
    return Condition(type="Concluded", status="true", reason=reason, message=told, since=observed.concluded_at)


def _last(found: list[Standing], kind: str) -> float | None:
    return max((steps[-1].at for one in found if (steps := one.ended[kind])), default=None)


def operation_state(found: list[Condition]) -> State:
    """The state that the conditions come to."""
    of = {one.type: one for one in found}
    true = {one.type for one in found if one.status == "true"}
    ends = {"denied": State.DENIED, "expired": State.EXPIRED, "waiting": State.AWAITING_APPROVAL}
    if "Concluded" in true:
        return State.COMPLETED_WITH_EXCEPTIONS if of["Concluded"].reason else State.COMPLETED
    if "Stopped" in true:
        return State.STOPPED
    if "Failed" in true:
        return State.FAILED
    if "Approved" not in true:
        return ends[of["Approved"].reason]
    if "Fenced" not in true:
        return State.PLANNED
    if "Held" in true:
        return State.HELD
    if "Erased" in true:
        return State.VERIFYING
    return State.FENCED if of["Erased"].reason in BEFORE else State.ERASING


BEFORE = frozenset({"not-fenced", "grace", "not-started", "order-not-logged"})
"""Reasons of `Erased` for which nothing has been begun."""


def finalizers_left(intent: Intent, observed: Observed) -> tuple[str, ...]:
    """The finalizers that still hold the operation; only when none is left may it be concluded.

    catalog: every owner that is there was looked at, by another node too where one sees it, agrees with what else was
    seen, and the directory holds nothing.
    routing: nobody routes to it. keys: the generations' keys are gone, and so is every lease of them.
    """
    true = {one.type for one in conditions(intent, observed) if one.status == "true" or one.reason == NOBODY}
    needs = {
        "catalog": {"Fenced", "Erased", "Verified", "Probed", "Purged", "Consistent"},
        "routing": {"Fenced", "Unroutable"},
        "keys": {"Fenced", "KeysDestroyed"},
    }
    return tuple(name for name in finalizers(intent) if needs[name] - true)


def finalizers(intent: Intent) -> tuple[str, ...]:
    """The finalizers that an operation begins with."""
    return tuple(f for f in KINDS[intent.kind].finalizers if not (intent.finer and f == "keys"))


def progress(intent: Intent, observed: Observed) -> Progress:
    """How far each owner is. Erasing counts by bytes, looking as one more byte for each owner."""
    found = standings(observed)
    cells = tuple(_cell(intent, one) for one in found)
    total = sum(cell.total_bytes + 1 for cell in cells)
    done = sum(cell.done_bytes + (cell.state == "verified") for cell in cells)
    percent = 100 * done // total if total else 0
    return Progress(percent=percent, cells=cells)


def _cell(intent: Intent, one: Standing) -> CellProgress:
    seen = one.seen
    total = max(seen.total_bytes, seen.bytes)
    gone = sum(step.bytes for step in one.ended["erase"] if step.good or step.outcome == "partial")
    done = total if one.erased else min(total, gone)
    if one.clean:
        state = "verified"
    elif not one.asked:
        state = "silent"
    elif one.erased:
        state = "erased"
    elif intent.held or one.leased:
        state = "blocked"
    else:
        state = "erasing" if one.started else "pending"
    return CellProgress(
        node=seen.node, source=seen.source, tier=seen.tier, owner=seen.owner, state=state, cls=seen.cls,
        done_bytes=done, total_bytes=total,
    )  # fmt: skip
