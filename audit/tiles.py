"""Decides how the log's tree is kept: complete tiles of 256 nodes side by side, at the levels 0, 8 and 16.

A tile's row holds its nodes and the node above them, so that a proof in a log of ten million leaves reads a few rows.
Pure; the sequencer makes tiles, `audit.tree` answers from them, the scrubber checks them.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from kvcore.leaf import LEAF_BYTES
from kvcore.proofs import HASH_BYTES, Frontier, Node, node_hash

WIDE = 256
BITS = 8
LEVELS = (0, 8, 16)
ROW_BYTES = WIDE * HASH_BYTES
Hashes = Callable[[int, int], list[bytes]]
"""(first, last + 1) → hashes of these nodes of one level."""


class Tile(NamedTuple):
    """256 nodes of `level` from number `tile · 256` on, all of them there."""

    level: int
    tile: int
    hashes: bytes
    root: bytes


def leaf_hashes(leaves: bytes) -> list[bytes]:
    """The hash of each of the leaves that stand side by side."""
    count, step = len(leaves) // LEAF_BYTES, 1 + LEAF_BYTES
    rows = np.zeros((count, step), "u1")  # a zero before each: what is hashed is cut from one piece of memory
    rows[:, 1:] = np.frombuffer(leaves, "u1", count * LEAF_BYTES).reshape(count, LEAF_BYTES)
    blob = rows.tobytes()
    return [sha256(blob[at : at + step]).digest() for at in range(0, len(blob), step)]


def over(hashes: Sequence[bytes]) -> bytes:
    """The node over a power of two of nodes side by side."""
    row = hashes
    while len(row) > 1:
        row = [sha256(b"\x01" + a + b).digest() for a, b in zip(row[::2], row[1::2], strict=True)]
    return row[0]


def split(hashes: bytes) -> list[bytes]:
    """The nodes of a tile's row."""
    return [hashes[at : at + HASH_BYTES] for at in range(0, len(hashes), HASH_BYTES)]


def completed(old: int, leaves: Sequence[bytes], before: Hashes, roots: Callable[[int], Hashes]) -> list[Tile]:
    """The tiles that become complete when a tree of `old` leaves grows by `leaves` (their hashes).

    Args:
        old: size before.
        leaves: hashes of what is added.
        before: hashes of leaves that are in the tree already.
        roots: level → hashes of the nodes over complete tiles 8 levels below, of those in the tree already.
    """
    made: list[Tile] = []
    first, added, known = old, list(leaves), before
    for level in LEVELS:
        end = first + len(added)
        start = first // WIDE * WIDE
        if end // WIDE == start // WIDE:
            break
        row = (known(start, first) if start < first else []) + added
        above = []
        for number in range(start // WIDE, end // WIDE):
            at = number * WIDE - start
            nodes = row[at : at + WIDE]
            above.append(over(nodes))
            made.append(Tile(level, number, b"".join(nodes), above[-1]))
        first, added, known = start // WIDE, above, roots(level + BITS)
    return made


def node_of(tile: Callable[[int, int], bytes | None], edge: Callable[[int, int, int], list[bytes]]) -> Node:
    """The tree as the function that proofs are made from.

    Args:
        tile: (level, number) → the row of a complete tile, or None.
        edge: (level, first, last + 1) → nodes of the level, where their tile is not complete.
    """

    def node(level: int, index: int) -> bytes:
        base = min(level // BITS * BITS, LEVELS[-1] + BITS)
        first, count = index << (level - base), 1 << (level - base)
        row = tile(base, first // WIDE) if base in LEVELS else None
        if row is None:
            return over(edge(base, first, first + count))
        at = first % WIDE * HASH_BYTES
        return over(split(row[at : at + count * HASH_BYTES]))

    return node


def push(frontier: Frontier, level: int, node: bytes) -> None:
    """A perfect subtree of 2^level leaves is in the tree, whose size is a multiple of that."""
    hashes, size = frontier.hashes, frontier.size >> level
    while size & 1:
        node = node_hash(hashes.pop(), node)
        size >>= 1
    hashes.append(node)
    frontier.size += 1 << level
