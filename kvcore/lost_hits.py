"""Decides where the hit tokens went that a prompt could have had and did not have: every one of them has a cause.

What could have been reused is `available`; then come limits in the order in which a request meets them (what is
filtered away, what the plan leaves, what the target refuses). Each limit takes what lies between it and what is left;
what no limit explains is `unknown`, which is a cause and is shown like the others. Called by the ledger of routing.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import assert_never

import msgspec


class Cause(Enum):
    """Why tokens that could have been reused were computed again."""

    RATE_LIMIT = "rate-limit"  # more was asked of a tier, a link or a tenant's quota than it gives
    TIMEOUT = "timeout"  # what holds it did not answer in time
    NO_SLACK = "no-slack"  # no room, or no time, to bring it where it was needed
    EVICTED = "evicted"  # it had been there, and had gone
    SCOPE = "scope"  # it may not be used there: rights, residency, data class
    EPOCH = "epoch"  # it is of another generation or model epoch
    FETCH_NOT_WORTH = "fetch-not-worth"  # to compute it again was expected to be faster
    FENCE = "fence"  # it is fenced, or how far fences go was not known
    TARGET_REFUSED = "target-refused"  # the target did not take the ticket, or did not find the bytes good
    UNKNOWN = "unknown"


CAUSES = tuple(Cause)
OF_FILTER: Mapping[str, Cause] = {
    "rights": Cause.SCOPE,
    "residency": Cause.SCOPE,
    "class": Cause.SCOPE,
    "generation": Cause.EPOCH,
    "fence": Cause.FENCE,
    "health": Cause.TIMEOUT,
    "quota": Cause.RATE_LIMIT,
    "watermark": Cause.NO_SLACK,
}
"""Why the scorer did not consider a candidate → what became of the tokens only such candidates had."""
OF_CODE: Mapping[str, Cause] = {
    "rate-limited": Cause.RATE_LIMIT,
    "quota": Cause.RATE_LIMIT,
    "no-room": Cause.NO_SLACK,
    "target-full": Cause.NO_SLACK,
    "not-here": Cause.EVICTED,
    "offer-unknown": Cause.EVICTED,
    "gone": Cause.EVICTED,
    "prefill-lost": Cause.TIMEOUT,
    "giver-lost": Cause.TIMEOUT,
    "not-fetched": Cause.TIMEOUT,
    "tier-down": Cause.TIMEOUT,
    "queue-full": Cause.TIMEOUT,
    "lease-over": Cause.FENCE,
    "stale-generation": Cause.FENCE,
    "erasing": Cause.FENCE,
}
"""What a node says of blocks that it should have had and had not → where they went. Any other code is a refusal."""


class Limit(msgspec.Struct, frozen=True):
    """From here on no more than `tokens` could be reused, because of `cause`."""

    cause: Cause
    tokens: int


class Reach(msgspec.Struct, frozen=True):
    """One candidate: the hit tokens it would have given, and why it was not considered ("" = it was)."""

    tokens: int
    filtered_by: str = ""


class Short(msgspec.Struct, frozen=True):
    """What was said where the request was served: so many tokens of the plan did not come, and why."""

    cause: str
    tokens: int


class Gap(msgspec.Struct, frozen=True):
    """One request: `available` = `achieved` + the sum of `lost`.

    `beyond` are hit tokens that nobody knew of before: the engine had more than the index said.
    """

    available: int
    achieved: int
    beyond: int
    lost: tuple[tuple[Cause, int], ...]


def gap(*, available: int, limits: Iterable[Limit], achieved: int) -> Gap:
    """Where `available` − `achieved` went. What was achieved is never taken away, so a limit below it explains less.

    Args:
        available: tokens that could have been reused at most.
        limits: in the order in which a request meets them.
        achieved: tokens that were reused, as measured.

    Raises:
        ValueError: a number is negative.
    """
    if available < 0 or achieved < 0:
        raise ValueError("tokens are never fewer than none")
    floor, level, lost = min(available, achieved), available, dict.fromkeys(CAUSES, 0)
    for limit in limits:
        lower = max(min(level, limit.tokens), floor)
        lost[limit.cause] += level - lower
        level = lower
    lost[Cause.UNKNOWN] += level - floor
    said = tuple((cause, tokens) for cause, tokens in lost.items() if tokens)
    return Gap(available, floor, max(achieved - available, 0), said)


def limits_of(
    *,
    written: int = 0,
    reaches: Sequence[Reach],
    planned: int,
    barred: Cause | None = None,
    short: Sequence[Short] = (),
) -> tuple[int, list[Limit]]:
    """What could have been reused, and what limited it, from what is known of a decision.

    Args:
        written: tokens that the session wrote before, which should be there still; 0 = not known.
        reaches: candidates with what they hold of the prompt.
        planned: hit tokens of the plan that was made.
        barred: why nothing at all might be planned (the router's lease was over: fence), None = it might.
        short: what did not come of the plan, in order.
    """
    known = max(planned, *(reach.tokens for reach in reaches), 0)
    limits = [] if barred is None else [Limit(barred, planned)]
    limits.append(Limit(Cause.EVICTED, known))
    limits += _filtered(reaches)
    limits.append(Limit(Cause.FETCH_NOT_WORTH, planned))
    left = planned
    for one in short:
        left -= max(one.tokens, 0)
        limits.append(Limit(cause_named(one.cause), max(left, 0)))
    return max(written, known), limits


def _filtered(reaches: Sequence[Reach]) -> list[Limit]:
    """What only filtered candidates hold goes to the reason of the deepest of them, layer by layer."""
    open_ = max((reach.tokens for reach in reaches if not reach.filtered_by), default=0)
    above = sorted((r for r in reaches if r.filtered_by and r.tokens > open_), key=lambda r: (-r.tokens, r.filtered_by))
    floors = [*(r.tokens for r in above[1:]), open_]
    return [
        Limit(OF_FILTER.get(reach.filtered_by, Cause.UNKNOWN), floor)
        for reach, floor in zip(above, floors, strict=False)
    ]


def cause_named(text: str) -> Cause:
    """The cause of this name; what is no cause's name is unknown."""
    try:
        return Cause(text)
    except ValueError:
        return Cause.UNKNOWN


def cause_of_code(code: str) -> Cause:
    """Why blocks did not come that a node fell back from with this code; what is no reason of its own is a refusal."""
    return OF_CODE.get(code, Cause.TARGET_REFUSED)


def column(cause: Cause) -> str:
    """How tables name it."""
    match cause:
        case Cause.UNKNOWN:
            return "unknown_tokens"
        case (
            Cause.RATE_LIMIT | Cause.TIMEOUT | Cause.NO_SLACK | Cause.EVICTED | Cause.SCOPE | Cause.EPOCH
            | Cause.FETCH_NOT_WORTH | Cause.FENCE | Cause.TARGET_REFUSED
        ):  # fmt: skip
            return f"{cause.value.replace('-', '_')}_tokens"
        case _:
            assert_never(cause)
