"""Decides what the tree of the log is, and what proves that something is in it: RFC 6962 with SHA-256.

Callers give the tree as a function `node(level, index)`: the hash of the perfect subtree over the leaves
[index·2^level, (index + 1)·2^level). Where such hashes are kept is theirs.
Source: RFC 6962 §2.1, RFC 9162 §2.1.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence

HASH_BYTES = 32
EMPTY_ROOT = hashlib.sha256(b"").digest()
Node = Callable[[int, int], bytes]


def leaf_hash(data: bytes) -> bytes:
    """The hash by which a leaf stands in the tree."""
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash over two subtrees; leaves and nodes are hashed apart, so that one never stands for the other."""
    return hashlib.sha256(b"\x01" + left + right).digest()


class Frontier:
    """What must be kept of a tree so that it can grow: the hashes of its perfect subtrees, left to right.

    One hash for each bit set in `size`, at most 64.
    """

    def __init__(self, size: int = 0, hashes: Iterable[bytes] = ()) -> None:
        self.size = size
        self.hashes = list(hashes)
        if size < 0 or len(self.hashes) != size.bit_count() or any(len(h) != HASH_BYTES for h in self.hashes):
            raise ValueError(f"a tree of {size} leaves has {size.bit_count()} perfect subtrees")

    def append(self, leaf: bytes) -> None:
        """One more leaf is in the tree, given as its hash."""
        hashes, size = self.hashes, self.size
        while size & 1:
            leaf = node_hash(hashes.pop(), leaf)
            size >>= 1
        hashes.append(leaf)
        self.size += 1

    def root(self) -> bytes:
        """The hash of the whole tree."""
        return _folded(self.hashes) if self.hashes else EMPTY_ROOT

    def pack(self) -> bytes:
        """The hashes, one after the other; the size is kept beside."""
        return b"".join(self.hashes)

    @classmethod
    def unpack(cls, data: bytes, size: int) -> "Frontier":
        """The frontier that was packed.

        Raises:
            ValueError: the bytes are not those of a tree of this size.
        """
        return cls(size, (data[at : at + HASH_BYTES] for at in range(0, len(data), HASH_BYTES)))


def root_at(size: int, node: Node) -> bytes:
    """The root the tree had when it held `size` leaves."""
    return _root(0, size, node) if size else EMPTY_ROOT


def inclusion(index: int, size: int, node: Node) -> list[bytes]:
    """What proves that a leaf is the `index`-th of the first `size`, from the leaf upwards.

    Raises:
        ValueError: the tree has no such leaf.
    """
    if not 0 <= index < size:
        raise ValueError(f"no leaf {index} among {size}")
    low, high, path = 0, size, list[bytes]()
    while high - low > 1:
        middle = low + _split(high - low)
        if index < middle:
            path.append(_root(middle, high, node))
            high = middle
        else:
            path.append(_root(low, middle, node))
            low = middle
    return path[::-1]


def consistency(old: int, new: int, node: Node) -> list[bytes]:
    """What proves that the tree of `new` leaves begins with the tree of `old` leaves.

    Raises:
        ValueError: `old` is larger than `new`.
    """
    if not 0 <= old <= new:
        raise ValueError(f"{old} is not before {new}")
    if old in (0, new):
        return []
    low, high, path = 0, new, list[bytes]()
    while high != old:
        middle = low + _split(high - low)
        if old <= middle:
            path.append(_root(middle, high, node))
            high = middle
        else:
            path.append(_root(low, middle, node))
            low = middle
    if low:  # else the verifier has this hash: it is the old root
        path.append(_root(low, high, node))
    return path[::-1]


def verify_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Whether the proof shows the leaf (given as its hash) at this place of the tree with this root."""
    if not 0 <= index < size:
        return False
    at, last, found = index, size - 1, leaf
    for step in proof:
        if last == 0:
            return False
        if at & 1 or at == last:
            found = node_hash(step, found)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            found = node_hash(found, step)
        at, last = at >> 1, last >> 1
    return last == 0 and found == root


def verify_consistency(old: int, new: int, proof: Sequence[bytes], old_root: bytes, new_root: bytes) -> bool:
    """Whether the proof shows that the new tree begins with the old one."""
    if not 0 <= old <= new:
        return False
    if old == new:
        return not proof and old_root == new_root
    if old == 0:
        return not proof and old_root == EMPTY_ROOT
    steps = [old_root, *proof] if old & (old - 1) == 0 else list(proof)
    if len(steps) < 1 or not proof:
        return False
    at, last = old - 1, new - 1
    while at & 1:
        at, last = at >> 1, last >> 1
    before = after = steps[0]
    for step in steps[1:]:
        if last == 0:
            return False
        if at & 1 or at == last:
            before, after = node_hash(step, before), node_hash(step, after)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            after = node_hash(after, step)
        at, last = at >> 1, last >> 1
    return last == 0 and before == old_root and after == new_root


def range_edges(first: int, last: int, size: int, node: Node) -> tuple[list[bytes], list[bytes]]:
    """What, with the hashes of the leaves `first` … `last`, makes the root: the subtrees left and right of them.

    Args:
        first: first leaf of the run.
        last: last leaf of the run; `first - 1` for an empty run.
        size: leaves of the tree.
        node: the tree.

    Raises:
        ValueError: the run is not in the tree.
    """
    if not 0 <= first <= last + 1 <= size:
        raise ValueError(f"{first} to {last} are not among {size}")
    left = [node(level, at >> level) for at, level in _pieces(0, first)]
    return left, [node(level, at >> level) for at, level in _pieces(last + 1, size)]


def root_of_range(
    first: int, hashes: Sequence[bytes], size: int, left: Sequence[bytes], right: Sequence[bytes]
) -> bytes:
    """The root of the tree of `size` leaves in which a run of leaf hashes stands at `first`, between its edges.

    Raises:
        ValueError: the edges are not those of such a run; no root is right then.
    """
    end = first + len(hashes)
    if not 0 <= first <= end <= size:
        raise ValueError(f"{first} to {end - 1} are not among {size}")
    frontier = Frontier(first, left)
    for one in hashes:
        frontier.append(one)
    pieces = list(_pieces(end, size))
    if len(pieces) != len(right) or any(len(h) != HASH_BYTES for h in right):
        raise ValueError(f"{len(pieces)} subtrees stand to the right, not {len(right)}")
    stack = [(level, one) for (_, level), one in zip(_pieces(0, end), frontier.hashes, strict=True)]
    for (_, level), piece in zip(pieces, right, strict=True):
        one = piece
        while stack and stack[-1][0] == level:
            level, one = level + 1, node_hash(stack.pop()[1], one)
        stack.append((level, one))
    return _folded([one for _, one in stack]) if stack else EMPTY_ROOT


def _pieces(low: int, high: int) -> Iterator[tuple[int, int]]:
    """The largest perfect subtrees that together are [low, high), left to right: (first leaf, level)."""
    while low < high:
        level = (high - low).bit_length() - 1
        if low:
            level = min(level, (low & -low).bit_length() - 1)
        yield low, level
        low += 1 << level


def _root(low: int, high: int, node: Node) -> bytes:
    """The hash of a subtree of the RFC, which need not be perfect."""
    return _folded([node(level, at >> level) for at, level in _pieces(low, high)])


def _folded(hashes: Sequence[bytes]) -> bytes:
    found = hashes[-1]
    for one in reversed(hashes[:-1]):
        found = node_hash(one, found)
    return found


def _split(leaves: int) -> int:
    """The largest power of two below a number of leaves."""
    return 1 << ((leaves - 1).bit_length() - 1)
