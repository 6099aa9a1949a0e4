"""Decides when something that fails is left alone, when it is tried again, and which requests are refused in a surge.

Both are values and functions of the time that comes in: a breaker is closed (used), open (left alone) or half-open (one
probe at a time). Called by what reads from tiers, stores and nodes, and by the router's admission.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Literal

import msgspec

CLOSED: Literal["closed"] = "closed"
OPEN: Literal["open"] = "open"
HALF_OPEN: Literal["half-open"] = "half-open"


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """When a breaker opens and closes. ms."""

    failures: int = 5
    """In a row, and it opens."""
    rest_ms: float = 5_000.0
    """Left alone so long before the first probe; doubles with each probe that fails."""
    most_rest_ms: float = 20_000.0
    probes: int = 2
    """Must succeed in a row before it closes."""
    probe_ms: float = 5_000.0
    """A probe that has not answered by then has failed."""


class Breaker(msgspec.Struct, frozen=True, kw_only=True):
    """State of one. `since_ms` is when it came into its state, in the caller's clock.

    Transitions: closed → open (failures in a row) · open → half-open (rested, somebody asks) · half-open → open (a
    probe failed or never answered) · half-open → closed (probes succeeded).
    """

    state: Literal["closed", "open", "half-open"] = "closed"
    since_ms: float = 0.0
    failed: int = 0
    passed: int = 0
    rest_ms: float = 0.0
    probing_since_ms: float | None = None


def asked(breaker: Breaker, now_ms: float, rule: Rule) -> tuple[Breaker, bool]:
    """The breaker after somebody wants through, and whether they may."""
    if breaker.state == CLOSED:
        return breaker, True
    if breaker.state == OPEN:
        if now_ms - breaker.since_ms < breaker.rest_ms:
            return breaker, False
        half = Breaker(
            state=HALF_OPEN, since_ms=now_ms, failed=breaker.failed, rest_ms=breaker.rest_ms, probing_since_ms=now_ms
        )
        return half, True
    if breaker.probing_since_ms is None:
        return msgspec.structs.replace(breaker, probing_since_ms=now_ms), True
    if now_ms - breaker.probing_since_ms >= rule.probe_ms:
        return failed(breaker, now_ms, rule), False
    return breaker, False


def succeeded(breaker: Breaker, now_ms: float, rule: Rule) -> Breaker:
    """The breaker after what went through came back well."""
    if breaker.state == CLOSED:
        return msgspec.structs.replace(breaker, failed=0) if breaker.failed else breaker
    if breaker.state == OPEN:
        return breaker  # was under way when it opened: one late success does not speak for what failed after it
    if breaker.passed + 1 >= rule.probes:
        return Breaker(since_ms=now_ms)
    return msgspec.structs.replace(breaker, passed=breaker.passed + 1, probing_since_ms=None)


def failed(breaker: Breaker, now_ms: float, rule: Rule) -> Breaker:
    """The breaker after what went through failed."""
    if breaker.state == OPEN:
        return breaker
    count = breaker.failed + 1
    if breaker.state == HALF_OPEN:
        rest = min(max(breaker.rest_ms, rule.rest_ms) * 2, rule.most_rest_ms)
        return Breaker(state=OPEN, since_ms=now_ms, failed=count, rest_ms=rest)
    if count >= rule.failures:
        return Breaker(state=OPEN, since_ms=now_ms, failed=count, rest_ms=rule.rest_ms)
    return msgspec.structs.replace(breaker, failed=count)


class Verdict(msgspec.Struct, frozen=True):
    """Whether a request is admitted, and which part of its priority is."""

    admitted: bool
    share: float
    why: Literal["", "overload", "slo"]


def admitted_shares(load: float, offered: Mapping[int, float]) -> dict[int, float]:
    """Priority → part of its requests that is admitted, the highest priority first, so that what is left fits.

    Args:
        load: utilisation that all requests together would make; up to 1 all are admitted.
        offered: priority → its part of the requests; the parts add up to 1.
    """
    left = 1.0 if load <= 1 else 1 / load
    if load <= 1:
        return dict.fromkeys(offered, 1.0)
    out: dict[int, float] = {}
    for priority in sorted(offered, reverse=True):
        part = offered[priority]
        take = min(part, left)
        out[priority] = take / part if part > 0 else (1.0 if left > 0 else 0.0)
        left = max(0.0, left - take)
    return out


def verdict(
    shares: Mapping[int, float],
    priority: int,
    seed: int,
    *,
    total_ms: float | None = None,
    most_ms: float | None = None,
) -> Verdict:
    """Whether this request is admitted: by its priority's share, decided by its seed, and by what it was promised.

    Args:
        shares: of `admitted_shares`; a priority that is missing is below all of them.
        priority: of the request.
        seed: of the decision's id: the same request is admitted or refused everywhere.
        total_ms: predicted; None = unknown, which refuses nobody.
        most_ms: beyond which an answer is of no use to the caller; None = always of use.
    """
    share = shares.get(priority, min(shares.values(), default=1.0))
    if share < 1.0:
        said = blake2b(f"admit:{seed}".encode(), digest_size=8).digest()
        if (int.from_bytes(said, "little") >> 11) / (1 << 53) >= share:
            return Verdict(False, share, "overload")
    if total_ms is not None and most_ms is not None and total_ms > most_ms:
        return Verdict(False, share, "slo")
    return Verdict(True, share, "")
