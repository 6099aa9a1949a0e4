"""Decides what console and agents say to each other when blocks move: the commands of a move and their receipts.

Within a source one `move` is all of it: the blocks are in their new tier and out of the old one in one item. Between
sources it takes three: the source `offer`s (COPY begins: what is offered stays and nothing is said of it), the
destination `take`s (COPY, then COMMIT run by run, announced by itself inside the step), the source `release`s, once the
catalog has what the destination announced. Built by `kvcore.move_steps`, obeyed by `nodeagent.transfer`.
"""

from collections.abc import Iterable

import msgspec

from kvcore.receipts import EraseTarget, StreamPos

MOVE, OFFER, TAKE, RELEASE = "move", "offer", "take", "release"
MOVES = frozenset({MOVE, OFFER, TAKE, RELEASE})
"""Kinds of commands that move blocks. All need an order: one hands blocks out, one takes them, one destroys a copy."""
LEFT_MOST = 2_000
"""Stretches of a manifest that a receipt names as left; where there are more, it is offered anew."""


class Party(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a node deals with: its place, and the key by which it proves who it is. `url` is where a source answers."""

    node: str
    source: str
    tier: str
    owner: int
    public_key: str
    url: str = ""
    dp_rank: int | None = 0


class MoveArgs(msgspec.Struct, frozen=True, kw_only=True):
    """`Command.args` of move, offer, take and release. `source`, `tier` and `owner` are the node's own place.

    move: from `tier` to `to_tier`. offer: to `party`, until `until`, at most `most_bytes`. take: from `party`, what it
    offered in its step `offer`. release: what the step `offer` offered, but `left` (`stretches` of its manifest).
    `tenants`: digest of a namespace → whose it is, hex, where the console knows. `rate_bytes_per_s` bounds the tier and
    the link. `until` in seconds since 1970. `only`: of the targets the runs with these keys (hex), [] = all. `keep`: a
    copy is made, and what was offered stays the source's own. `spare`: digests (hex) of namespaces of which nothing is
    offered or released, whatever else is said: a hold keeps them, and there is no other copy.
    """

    operation: str
    generation: int
    source: str
    tier: str
    owner: int
    targets: list[EraseTarget]
    dp_rank: int | None = 0
    to_tier: str = ""
    party: Party | None = None
    offer: str = ""
    left: list[str] = []
    tenants: dict[str, str] = {}
    until: float = 0.0
    only: list[str] = []
    keep: bool = False
    most_bytes: int | None = None
    rate_bytes_per_s: int | None = None
    spare: list[str] = []


class OfferedDetail(msgspec.Struct, frozen=True, kw_only=True):
    """`Receipt.detail` of `offer`: what is kept for the destination, and where the source's stream stands behind it.

    `pinned`: blocks that are kept where they are by a pin and were not offered; `spared`: those of `spare`.
    """

    runs: int
    blocks: int
    bytes: int
    pinned: int
    stream_pos: StreamPos
    spared: int = 0


class TakenDetail(msgspec.Struct, frozen=True, kw_only=True):
    """`Receipt.detail` of `take`. `there`: of `blocks` those that were here before. `left`: `stretches` of the manifest
    that were not taken, and `refused` how many blocks of them by code. `peak_bytes`: most that was in flight at a time.
    """

    runs: int
    blocks: int
    bytes: int
    there: int
    left: list[str]
    refused: dict[str, int]
    peak_bytes: int
    resumed: int
    stream_pos: StreamPos


class ReleasedDetail(msgspec.Struct, frozen=True, kw_only=True):
    """`Receipt.detail` of `release`: copies that are gone from the source, and those that are its own again.

    `gone`: blocks that were gone before (erased, or lost with their medium). `spared`: of `kept` those of `spare`.
    """

    runs: int
    blocks: int
    bytes: int
    gone: int
    kept: int
    leased: int
    stream_pos: StreamPos
    spared: int = 0


class MovedDetail(msgspec.Struct, frozen=True, kw_only=True):
    """`Receipt.detail` of `move`. `refused`: blocks that stayed where they were, by code."""

    runs: int
    blocks: int
    bytes: int
    refused: dict[str, int]
    pinned: int
    stream_pos: StreamPos


def stretches(numbers: Iterable[int]) -> list[str]:
    """Places in a manifest as stretches, "first-last" each, in order."""
    out: list[list[int]] = []
    for number in sorted(set(numbers)):
        if out and out[-1][1] == number - 1:
            out[-1][1] = number
        else:
            out.append([number, number])
    return [f"{first}-{last}" for first, last in out]


def places_in(found: Iterable[str], size: int) -> set[int]:
    """The places that stretches name, of a manifest of this size.

    Raises:
        ValueError: one is no stretch.
    """
    out: set[int] = set()
    for text in found:
        first, _, last = text.partition("-")
        out.update(range(max(int(first), 0), min(int(last) + 1, size)))
    return out
