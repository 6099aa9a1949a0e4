"""Decides how much of a tier a tenant may use where: guarantees scaled to what is there, limits dealt, verdicts.

All in whole bytes. An allowance is in force on a node from when it may have arrived until the node said that it has
applied a later one; `redeal` counts it for that long, so what is taken from one node is given to another only after it
was let go. Called by the writer (dealing), by the services of quotas (guarantees) and by agents (verdicts).
"""

from collections.abc import Hashable, Mapping
from enum import Enum
from typing import NamedTuple, TypeVar

BYTES_MAX = 2**53 - 1
"""Highest limit or guarantee (9 PB, and a whole number for every JSON reader); above it there is only "unlimited"."""
RATE_MAX = 1_000_000
"""Highest requests per second and deletions per hour."""
IDLE_PART = 16
"""A node that holds nothing of a tenant is dealt of what is left as if it held this part of its capacity."""
ARENA_PART = 8
"""Arena of a tenant that was guaranteed nothing: this part of the tier."""

K = TypeVar("K", bound=Hashable)


def share(total: int, weights: Mapping[K, int], most: Mapping[K, int] | None = None) -> dict[K, int]:
    """`total` in whole parts by weight, none above `most`; the sum is `total`, or all of `most` if that is less.

    Remainders go to the largest fraction, then in the order of the names, so the same question has the same answer.
    """
    out = dict.fromkeys(weights, 0)
    open_ = [k for k in weights if weights[k] > 0 and (most is None or most.get(k, 0) > 0)]
    left = total
    while left > 0 and open_:
        whole = sum(weights[k] for k in open_)
        parts = {k: left * weights[k] // whole for k in open_}
        rest = left - sum(parts.values())
        for k in sorted(open_, key=lambda k: (-(left * weights[k] % whole), str(k)))[:rest]:
            parts[k] += 1
        for k in open_:
            out[k] += parts[k] if most is None else min(parts[k], most.get(k, 0) - out[k])
        left = total - sum(out.values())
        open_ = [k for k in open_ if most is not None and out[k] < most.get(k, 0)]
    return out


def scale(capacity: int, guarantees: Mapping[K, int]) -> dict[K, int]:
    """What each guarantee is worth: all of it where the capacity covers them together, else its part of the capacity.

    350 under guarantees of 200 and 500 is 100 and 250.
    """
    if sum(guarantees.values()) <= capacity:
        return dict(guarantees)
    return share(max(capacity, 0), guarantees)


class Room(NamedTuple):
    """What one node has for a tenant on a tier: bytes it may hold at most, and what it holds now."""

    capacity: int
    used: int


def targets(limit: int, nodes: Mapping[K, Room]) -> dict[K, int]:
    """Where a tenant's limit should lie: what is used stays, the rest follows use. The sum is at most `limit`."""
    used = {k: min(room.used, room.capacity) for k, room in nodes.items()}
    if sum(used.values()) >= limit:
        return share(limit, used)
    weights = {k: used[k] + room.capacity // IDLE_PART + 1 for k, room in nodes.items()}
    free = {k: room.capacity - used[k] for k, room in nodes.items()}
    more = share(limit - sum(used.values()), weights, free)
    return {k: used[k] + more[k] for k in nodes}


class Grant(NamedTuple):
    """A tenant's allowance on one node and tier. None = unlimited.

    `given` is what the node was last told; `ceiling` the most that may be in force there: the node has not said yet
    that it applied what it was last told.
    """

    given: int | None
    ceiling: int | None


NOTHING, ANYTHING = Grant(0, 0), Grant(None, None)


def redeal(limit: int | None, grants: Mapping[K, Grant], wanted: Mapping[K, int]) -> dict[K, Grant]:
    """The grants after one more round. The sum of ceilings is not above `limit`, or not above what it was.

    Args:
        limit: of the tenant on the tier; None = unlimited.
        grants: of all nodes where an allowance may be in force; a node that is missing has none.
        wanted: by node, together at most `limit`; a node that is missing gets nothing.
    """
    nodes = [*grants, *(n for n in wanted if n not in grants)]
    if limit is None:
        return dict.fromkeys(nodes, ANYTHING)
    out: dict[K, Grant] = {}
    extra: dict[K, int] = {}
    for node in nodes:
        ceiling = grants.get(node, NOTHING).ceiling
        want = min(wanted.get(node, 0), limit)
        free = want if ceiling is None else min(want, ceiling)  # what may be in force there already costs nothing
        out[node] = Grant(free, ceiling)
        if want > free:
            extra[node] = want - free
    ceilings = [g.ceiling for g in out.values()]
    if extra and None not in ceilings:
        room = limit - sum(c for c in ceilings if c is not None)
        for node, more in share(max(room, 0), extra, extra).items():
            have = out[node]
            out[node] = Grant((have.given or 0) + more, max(have.ceiling or 0, (have.given or 0) + more))
    return out


def applied(grant: Grant) -> Grant:
    """The grant once the node has said that it holds no more than it was last told."""
    return Grant(grant.given, grant.given)


def in_force(grants: Mapping[K, Grant]) -> int | None:
    """The most that all nodes together may allow now; None = unlimited somewhere."""
    ceilings = [g.ceiling for g in grants.values()]
    return None if None in ceilings else sum(c for c in ceilings if c is not None)


class Verdict(Enum):
    """What becomes of a reservation."""

    FITS = "fits"
    EVICT = "evict"
    """Fits once the tenant's own lowest value has made room."""
    REFUSE = "refuse"
    """Does not fit whatever leaves."""


def verdict(limit: int | None, charged: int, size: int) -> Verdict:
    """Whether `size` more bytes may be reserved by a tenant that is charged with `charged`."""
    if limit is None or charged + size <= limit:
        return Verdict.FITS
    return Verdict.EVICT if size <= limit else Verdict.REFUSE
