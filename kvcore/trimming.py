"""Decides what of a tenant leaves a tier that holds more of it than its quota allows: what is missed least.

Coldest first, as far as the directory knows: what nobody read and nothing was added to for longest; among what is about
as cold, the data class that asks for least protection. What is pinned or held is never chosen. Of the last namespace
only as much as is over goes, the ends of its chains first, since what continues a block is of no use without it.
Called by the console's rule of quotas.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

COLD_SECONDS = 60.0
"""What was last read or grew within the same minute is about as cold."""
CLASSES = ("public", "internal", "confidential", "restricted")
"""Data classes that everybody knows, from that which asks for least protection on; others are in the middle."""


MOST_KEYS = 2**15
"""Blocks of one namespace that go in one operation; what is still over goes in the next."""


class Lot(msgspec.Struct, frozen=True, kw_only=True):
    """All of one namespace on the tier. `warm_at`: when it was last read or grew, in seconds since 1970."""

    ns: str
    data_class: str
    blocks: int
    size_bytes: int
    block_bytes: int
    warm_at: float


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """What goes of a lot: all of it, or `keys` (16 bytes each)."""

    lot: Lot
    keys: tuple[bytes, ...] | None = None

    @property
    def size_bytes(self) -> int:
        """How much that is."""
        return self.lot.size_bytes if self.keys is None else len(self.keys) * self.lot.block_bytes


def rank(data_class: str) -> float:
    """How much protection a class asks for."""
    return float(CLASSES.index(data_class)) if data_class in CLASSES else (len(CLASSES) - 1) / 2


def trim(
    excess: int,
    lots: Iterable[Lot],
    *,
    spared: Collection[str],
    pinned: Mapping[str, Collection[bytes]],
    leaves: Callable[[Lot, int], Iterable[bytes]],
) -> list[Cut]:
    """What goes, coldest first: as many bytes as are over, and less than a block more.

    A block that lies in several places of the tier counts once and goes everywhere, so more may go than was over.

    Args:
        excess: bytes that are over.
        lots: all that there is.
        spared: namespaces (hex) that are pinned as a whole, or held.
        pinned: namespace (hex) → keys (16 bytes) of it that are pinned.
        leaves: keys of a lot, at most so many, ends of chains first.
    """
    cuts: list[Cut] = []
    ordered = sorted(
        (lot for lot in lots if lot.ns not in spared and lot.blocks > 0 and lot.block_bytes > 0),
        key=lambda lot: (int(lot.warm_at // COLD_SECONDS), rank(lot.data_class), lot.warm_at, lot.ns),
    )
    for lot in ordered:
        if excess <= 0:
            break
        kept = pinned.get(lot.ns, ())
        if lot.size_bytes <= excess and not kept:
            cut = Cut(lot=lot)
        else:
            most = min(-(-excess // lot.block_bytes), MOST_KEYS)
            going = dict.fromkeys(key for key in leaves(lot, most + len(kept)) if key not in kept)
            cut = Cut(lot=lot, keys=tuple(going)[:most])
        cuts.append(cut)
        excess -= cut.size_bytes
    return [cut for cut in cuts if cut.keys is None or cut.keys]
