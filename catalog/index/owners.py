"""Decides who the owners are and how they come and go; what they hold is in `placements`.

An owner is one incarnation of (source, tier). Retiring one takes the same time whatever it holds: its placements become
ghosts, which `drain` takes away in bounded pieces.
"""

from collections import deque
from collections.abc import Iterator

import numpy as np

from catalog.index.steps import NO_FAMILY, Owner, Touched
from kvcore.blocks import TIERS

Mask = int


class Owners:
    """The owners of a shard, their masks, and how often each segment is held."""

    def __init__(self) -> None:
        self.owners: dict[int, Owner] = {}
        self.owner_of: dict[tuple[int, str], int] = {}
        """(source, tier) → number of the live owner."""
        self.next_owner = 1
        self.place: dict[int, dict[int, Mask]] = {}
        """Live owner → segment → mask; never an empty mask."""
        self.states: dict[tuple[int, int], dict[str, Mask]] = {}
        """(owner, segment) → state → mask, where some are not committed."""
        self.holding: dict[int, dict[int, list[int]]] = {}
        """Live owner → keyspace → [blocks, lo, hi], the sums of `kvcore.keys.digest_add`."""
        self.resident: dict[int, int] = {}
        """Family → (key, owner) pairs; those of retired owners leave it as they are drained."""
        self.refs: list[int] = []
        """Placements by segment, retired and undrained ones included."""
        self.unused: set[int] = set()
        """Segments that nobody holds."""
        self.ghosts: deque[tuple[int, dict[int, Mask]]] = deque()
        """What retired owners held and was not drained."""
        self.seg_ks = np.zeros(1024, np.int32)
        self.seg_fam = np.zeros(1024, np.int32)

    def owner(self, source: int, tier: str, t: Touched) -> int:
        """The live owner, made if there is none."""
        o = self.owner_of.get((source, tier))
        if o is None:
            o = self.owner_of[source, tier] = self.next_owner
            self.next_owner += 1
            self.owners[o] = Owner(o, source, tier, 0.0)
            self.place[o], self.holding[o] = {}, {}
            t.owners.add(o)
        return o

    def retire(self, source: int, tier: str, reason: str, t: Touched) -> None:
        """What the owner held is void at once, however much it is; `drain` takes it away later."""
        o = self.owner_of.pop((source, tier), None)
        if o is None:
            return
        self.owners[o].retired = True
        t.owners.add(o)
        self.ghosts.append((o, self.place.pop(o)))
        for ks, (blocks, _, _) in self.holding.pop(o).items():
            t.held.add((ks, o))
            if blocks:
                t.dropped[source, tier, reason, ks, NO_FAMILY] += blocks

    def drain(self, limit: int) -> tuple[list[tuple[int, int]], list[int]]:
        """Up to `limit` placements of retired owners are gone: ((owner, segment) …, owners of which none is left)."""
        gone: list[tuple[int, int]] = []
        over: list[int] = []
        while self.ghosts and len(gone) < limit:
            o, held = self.ghosts[0]
            while held and len(gone) < limit:
                seg, mask = held.popitem()
                gone.append((o, seg))
                self._released(o, seg, mask)
            if not held:
                self.ghosts.popleft()
                over.append(o)
        return gone, over

    def give_up(self, o: int, segs: list[int]) -> None:
        """The owner holds nothing of these segments; its holdings are the caller's affair."""
        for seg in segs:
            self._released(o, seg, self.place[o].pop(seg))

    def _released(self, o: int, seg: int, mask: Mask) -> None:
        """A placement is gone from the books."""
        self.states.pop((o, seg), None)
        self._resident(int(self.seg_fam[seg]), -mask.bit_count())
        self._unref(seg)

    def _unref(self, seg: int) -> None:
        self.refs[seg] -= 1
        if not self.refs[seg]:
            self.unused.add(seg)

    def _ref(self, seg: int) -> None:
        self.refs[seg] += 1
        self.unused.discard(seg)

    def _resident(self, family: int, blocks: int) -> None:
        n = self.resident.get(family, 0) + blocks
        if n:
            self.resident[family] = n
        else:
            self.resident.pop(family, None)

    def others(self, o: int) -> list[int]:
        """The live owners of the same source, on other tiers."""
        source = self.owners[o].source
        found = (self.owner_of.get((source, tier)) for tier in TIERS)
        return [other for other in found if other is not None and other != o]

    def tiers(self, source: int) -> list[str]:
        """Tiers of which the source has a live owner."""
        return [tier for s, tier in self.owner_of if s == source]

    def live(self) -> Iterator[tuple[int, int, Mask]]:
        """All placements of live owners: (owner, segment, mask)."""
        for o, held in self.place.items():
            for seg, mask in held.items():
                yield o, seg, mask
