"""Decides how an order binds what it orders: a root over its targets, and what proves that some of them are of it.

The root is that of RFC 6962 over the hashes of the targets, sorted. It stands in the order's event; a command carries a
run of the targets and the edges of that run, so that the signer, the agent and whoever checks a certificate make the
same root of it. Keys travel beside a command: a target names them by their hash.
Source: RFC 6962 §2.1; `kvcore.proofs`.
"""

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import rfc8785

from kvcore.proofs import leaf_hash, node_hash, range_edges, root_at, root_of_range
from kvcore.receipts import EraseTarget, TargetsPart

KEY = 16
"""Bytes of a key by which an order names a block: the first of the 32 that agents have."""
MOST_TARGETS = 500
"""In one command."""
MOST_KEYS = 2**16
"""In one target."""
MOST_PART_KEYS = 2**17
"""In one command: what is sent beside it stays far below an agent's longest body."""


def packed(keys: Iterable[bytes]) -> bytes:
    """The keys as they travel: 16 bytes each, sorted, each once."""
    return b"".join(sorted({key[:KEY] for key in keys}))


def keys_hash(keys: bytes) -> str:
    """The hash (hex) by which a target names packed keys.

    Raises:
        ValueError: they are not packed.
    """
    found = [keys[at : at + KEY] for at in range(0, len(keys), KEY)]
    if len(keys) % KEY or any(one >= two for one, two in itertools.pairwise(found)):
        raise ValueError("keys are sorted, each once, of 16 bytes")
    return hashlib.sha256(b"kvconsole/keys/v1\n" + keys).hexdigest()


def named(target: EraseTarget) -> dict[str, Any]:
    """What a target says, in the form that is hashed and that certificates show.

    Raises:
        ValueError: its keys are no keys.
    """
    found: dict[str, Any] = {"gen_upto": target.gen_upto, "namespace_ref": target.ns}
    if target.group is not None:
        found["group"] = target.group
    if target.attached is not None:
        found["keys"] = {"count": target.count, "sha256": target.attached}
    elif target.keys is not None:
        keys = packed(bytes.fromhex(key) for key in target.keys)
        found["keys"] = {"count": len(keys) // KEY, "sha256": keys_hash(keys)}
    if target.below:
        found["below"] = True
    return found


def target_hash(target: EraseTarget) -> bytes:
    """The hash by which a target stands in the tree of its order.

    Raises:
        ValueError: it cannot be written down in one way.
    """
    return leaf_hash(rfc8785.dumps(named(target)))


class Bound:
    """The targets of an order in the order of their hashes, each once, and their root (hex)."""

    def __init__(self, targets: Iterable[EraseTarget]) -> None:
        by_hash = {target_hash(target): target for target in targets}
        self._hashes = sorted(by_hash)
        self.targets = tuple(by_hash[one] for one in self._hashes)
        self._levels = [self._hashes]
        while len(self._levels[-1]) > 1:
            below = self._levels[-1]
            self._levels.append([node_hash(below[at], below[at + 1]) for at in range(0, len(below) - 1, 2)])
        self.root = root_at(len(self._hashes), self._node).hex()

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._hashes)

    def _node(self, level: int, index: int) -> bytes:
        return self._levels[level][index]

    def parts(self, most: int = MOST_TARGETS) -> list[TargetsPart]:
        """The runs in which they are sent, one after the other; one that is empty where there are none."""
        starts, keys = [0], 0
        for at, target in enumerate(self.targets):
            keys += target.count
            if at - starts[-1] >= most or (keys > MOST_PART_KEYS and at > starts[-1]):
                starts.append(at)
                keys = target.count
        ends = [*starts[1:], self.count]
        return [self._part(first, end) for first, end in zip(starts, ends, strict=True)]

    def _part(self, first: int, end: int) -> TargetsPart:
        left, right = range_edges(first, end - 1, self.count, self._node)
        return TargetsPart(
            first=first, length=end - first, count=self.count, left=[h.hex() for h in left],
            right=[h.hex() for h in right],
        )  # fmt: skip


def part_root(targets: Sequence[EraseTarget], part: TargetsPart) -> str:
    """The root (hex) that an order has if these targets are the ones at the part's place.

    Raises:
        ValueError: they cannot be such a run; no root is right then.
    """
    hashes = [target_hash(target) for target in targets]
    if len(hashes) != part.length or any(one >= two for one, two in itertools.pairwise(hashes)):
        raise ValueError("not a run of sorted targets")
    left, right = ([bytes.fromhex(one) for one in side] for side in (part.left, part.right))
    return root_of_range(part.first, hashes, part.count, left, right).hex()


def attached_of(targets: Iterable[EraseTarget]) -> set[str]:
    """The hashes of the keys that have to travel beside these targets."""
    return {target.attached for target in targets if target.attached is not None}


def check_attached(targets: Iterable[EraseTarget], keys: dict[str, bytes]) -> bool:
    """Whether these are the keys that the targets name, all of them and no others."""
    wanted = {target.attached: target.count for target in targets if target.attached is not None}
    try:
        found = {keys_hash(one): len(one) // KEY for one in keys.values()}
    except ValueError:
        return False
    return set(keys) == set(found) and wanted == found


class ArgsBound(msgspec.Struct, frozen=True, kw_only=True):
    """What of the arguments of a command its order binds; the others are of no account there."""

    operation: str
    targets: list[EraseTarget]
    part: TargetsPart
    force: bool = False
    deadline: float = 0.0
    fencing: bool = False
