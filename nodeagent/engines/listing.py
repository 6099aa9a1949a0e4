"""Decides what a listener says an engine holds: all that it could key and the engine has not removed since.

It repairs what got lost between listener and console. What got lost between engine and listener no listing repairs:
`gap` says so with every inventory and digest, until the engine begins anew or has emptied all its tiers. Used by
`nodeagent.listen`, which holds `lock` while it changes the map and puts items.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from kvcore.blocks import Tier
from kvcore.events import Add, Adds, Clear, Drop, Gap, Item
from kvcore.keys import KEY_BYTES, ROOT, pack
from kvcore.messages import DigestLine
from nodeagent.keymap import KeyMap, Known, Space
from nodeagent.tiers.base import sums

SMALL_BLOCKS = 8
"""Chains of at most this many blocks are listed packed."""
ITEM_BLOCKS = 4096
_MASK = 2**64 - 1
Line = tuple[bytes, int, int, str]


class Listing:
    """One (source, dp_rank) of an engine as its listener knows it: the lister of its outbox.

    Args:
        keymap: what the engine holds.
        bytes_per_token: what a token costs on this rank.
        settle: puts what is held back, so that digests are of all that is in the map at the latest one frame later.
    """

    def __init__(self, keymap: KeyMap, *, bytes_per_token: int, settle: Callable[[], None]) -> None:
        self.lock = threading.RLock()
        self.gap = ""
        """Why the engine may hold something else than what is listed; "" = it does not."""
        self._map, self._bytes_per_token, self._settle = keymap, bytes_per_token, settle
        self._lines: dict[Line, tuple[int, int, int]] = {}
        self._tiers: set[str] = set()

    def told(self, items: Iterable[Item]) -> None:
        """These items are put into the outbox: digests and `gap` are as of behind them."""
        for item in items:
            match item:
                case Add() | Adds():
                    self._tiers.add(item.tier)
                    self._count(item, 1)
                case Drop():
                    self._count(item, -1)
                case Clear():
                    self._lines = {at: x for at, x in self._lines.items() if at[3] not in item.tiers}
                    if self._tiers <= set(item.tiers):
                        self.gap = ""
                case Gap():
                    self.gap = item.reason
                case _:
                    pass

    def forget(self) -> None:
        """A new life of the engine begins: nothing was told of it, and nothing of it is lost."""
        self._lines.clear()
        self._tiers.clear()
        self.gap = ""

    def inventory(self) -> Iterable[Item]:
        """See `kvcore.messages.InventoryPage`; nothing is held back any more."""
        self._settle()
        return [item for space, tier, held in self._map.places() for item in self._listed(space, tier, held)]

    def digests(self) -> Sequence[DigestLine]:
        """See `kvcore.messages.DigestReport`: of what was told."""
        return [DigestLine(*at, *total) for at, total in self._lines.items()]

    def _count(self, item: Add | Adds | Drop, sign: int) -> None:
        at = (item.ns, item.gen, item.group, item.tier)
        blocks, lo, hi = self._lines.get(at, (0, 0, 0))
        more_lo, more_hi = sums(item.keys)
        blocks += sign * (len(item.keys) // KEY_BYTES)
        if blocks:
            self._lines[at] = blocks, (lo + sign * more_lo) & _MASK, (hi + sign * more_hi) & _MASK
        else:
            self._lines.pop(at, None)

    def _listed(self, space: Space, tier: Tier, held: Collection[Known]) -> Iterator[Item]:
        """Long chains one by one, the others packed."""
        keys: list[bytes] = []
        parents: list[bytes] = []
        common = dict(ns=space.ns, gen=space.gen, group=space.group, tier=tier.value, tokens=space.block_tokens,
                      bytes=self._bytes_per_token * space.block_tokens)  # fmt: skip

        def packed() -> Adds:
            item = Adds(keys=pack(keys), parents=pack(parents), **common)  # type: ignore[arg-type]
            keys.clear()
            parents.clear()
            return item

        for chain in _chains(held):
            parent = chain[0].parent
            if len(chain) > SMALL_BLOCKS:
                if keys:
                    yield packed()
                yield Add(keys=pack(k.key for k in chain), parent=parent, **common)  # type: ignore[arg-type]
                continue
            keys += [k.key for k in chain]
            parents += [parent or ROOT, *(k.key for k in chain[:-1])]
            if len(keys) >= ITEM_BLOCKS:
                yield packed()
        if keys:
            yield packed()


def _chains(held: Iterable[Known]) -> Iterator[list[Known]]:
    """The blocks, cut where one is not the child of the one before it."""
    chain: list[Known] = []
    for known in held:
        if chain and (known.parent != chain[-1].key or len(chain) >= ITEM_BLOCKS):
            yield chain
            chain = []
        chain.append(known)
    if chain:
        yield chain
