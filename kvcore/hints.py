"""Decides how far an announcement of a tenant is believed, and what it may bring about at most.

Somebody says that a session comes back in so many milliseconds, or that a prefix will be needed. Trust is measured: how
often what a tenant announced came true. What an announcement brings about (blocks that are kept, copies that are made)
grows with trust and never beyond a part of the tenant's own allowance; it never keeps a worker's slot. Called by the
services of routing.
"""

import msgspec

PRIOR_CAME, PRIOR_SAID = 1, 4
"""What is assumed of a tenant that has announced nothing yet: one of four came true."""
SLACK, GRACE_S = 2.0, 30.0
"""What was announced may come so many times later than said, and so many seconds beside."""
KEEP_MOST_S, ETA_MOST_MS = 900.0, 3_600_000
PINS_MOST, PREFETCHES_MOST, SHARE_MOST = 200, 30, 0.25
"""At full trust: pins of a tenant at once, prefetches in a minute, and the part of its allowance that is kept."""
BLOCKS_MOST = 4096
"""Blocks that one announcement keeps, and at full trust all of a tenant's whose bytes are not limited × 16."""
PRIORITIES = 10


class Trust(msgspec.Struct, frozen=True):
    """What a tenant announced and what became of it; what nobody could watch is in neither."""

    came: int = 0
    missed: int = 0

    @property
    def share(self) -> float:
        """How likely what it announces comes true: above 0 and below 1, whatever was seen."""
        return (self.came + PRIOR_CAME) / (self.came + self.missed + PRIOR_SAID)


class Allowed(msgspec.Struct, frozen=True):
    """The most that a tenant's announcements may bring about now. `bytes`: None = its bytes are not limited."""

    pins: int
    blocks: int
    bytes: int | None
    prefetches: int


class Standing(msgspec.Struct, frozen=True):
    """What its announcements keep already, and prefetches that they began within the last minute."""

    pins: int = 0
    blocks: int = 0
    bytes: int = 0
    prefetches: int = 0


def weight(trust: Trust, confidence: float) -> float:
    """How far one announcement is believed: no further than the tenant itself does, nor than it was right before."""
    return min(trust.share, max(0.0, min(confidence, 1.0)))


def window_seconds(eta_ms: float) -> float:
    """How long what was announced may take to come and still counts as having come."""
    return min(max(eta_ms, 0.0), ETA_MOST_MS) / 1000 * SLACK + GRACE_S


def keep_seconds(eta_ms: float, believed: float) -> float:
    """How long blocks are kept for an announcement: its window, and no longer than belief allows."""
    return min(window_seconds(eta_ms), KEEP_MOST_S * believed)


def allowed(*, believed: float, limit_bytes: int | None, priority: int = PRIORITIES - 1) -> Allowed:
    """What announcements of a tenant may bring about.

    Args:
        believed: `weight` of the one that is asked for.
        limit_bytes: what the tenant may hold; None = it is not limited.
        priority: 0 to 9: the lower, the sooner there is no room for it any more.
    """
    part = believed * (min(max(priority, 0), PRIORITIES - 1) + 1) / PRIORITIES
    return Allowed(
        pins=int(PINS_MOST * part),
        blocks=int(BLOCKS_MOST * 16 * part),
        bytes=None if limit_bytes is None else int(limit_bytes * SHARE_MOST * part),
        prefetches=int(PREFETCHES_MOST * part),
    )


def keep_refusal(standing: Standing, most: Allowed, *, blocks: int, size_bytes: int) -> str:
    """Why these blocks are not kept as well ("" = they are)."""
    if standing.pins + 1 > most.pins:
        return "trust-too-small" if not most.pins else "announced-too-much"
    if standing.blocks + blocks > most.blocks:
        return "announced-too-much"
    if most.bytes is not None and standing.bytes + size_bytes > most.bytes:
        return "allowance-used"
    return ""


def prefetch_refusal(standing: Standing, most: Allowed) -> str:
    """Why no copy is made as well ("" = it is)."""
    if standing.prefetches + 1 > most.prefetches:
        return "trust-too-small" if not most.prefetches else "rate-limit"
    return ""
