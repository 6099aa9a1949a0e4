"""Decides how the writer remembers its shard: sources, keyspaces, segments, and the fold of steps into runs.

Called by `catalog.ingest.pipeline` (steps) and `catalog.store` (rows). Everything here can be rebuilt from the tables
(`catalog.store_load`). One thread at a time; the process should run with the cyclic collector off
(`gc.freeze(); gc.disable()` in its entry): folding makes many small objects and no cycles, and looking for some costs
up to six times the fold.
"""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from catalog.index import keymap
from catalog.index.placements import Placements
from catalog.index.steps import ADD, ADDS, MOVE, Keyspace, SourceRow, Touched, Work
from kvcore.keys import ROOT

U = np.uint64
FILL = 0.75
"""How full the key map may be before it grows by `GROWTH`."""
GROWTH = 1.4
_SEGMENT_ARRAYS = ("seg_n", "seg_ks", "seg_up", "seg_up_off", "seg_fam", "seg_parent")
_KINDS = {ADD: keymap.ADDING, ADDS: keymap.ADDING, MOVE: keymap.MOVING}
_NO_KEY = bytes(16)


class Memory(Placements):
    """Everything the writer of one shard knows."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: dict[int, SourceRow] = {}
        self.source_of: dict[tuple[UUID, str, int], SourceRow] = {}
        self.keyspaces: dict[int, Keyspace] = {}
        self.keyspace_of: dict[tuple[bytes, int, int], Keyspace] = {}
        self.next_source = self.next_keyspace = 1
        self.next_seg = 0
        self.orphans: set[int] = set()
        """Segments whose parent has no place yet."""
        self.tab: NDArray[np.uint64] = np.zeros((1 << 12, 2), U)
        self.used = 0
        self.seg_n = np.zeros(1024, np.int16)
        self.seg_up = np.zeros(1024, np.int32)
        self.seg_up_off = np.zeros(1024, np.int16)
        self.seg_parent = np.zeros((1024, 2), U)
        self.refs = [0] * 1024
        self.unprepared = 0
        """1 between `apply` and the store's `prepare`: what is in between may neither be folded on nor swept."""
        self._scratch: tuple[Any, ...] = ()

    # ---------------------------------------------------------------- growth
    def reserve(self, keys: int, segs: int) -> None:
        """There is room for so many more keys, and for segments below `segs`."""
        if self.used + keys > FILL * len(self.tab):
            live = int(self.seg_n[: self.next_seg].sum(dtype=np.int64)) + keys
            new = np.zeros((max(len(self.tab), int(live / FILL * GROWTH)), 2), U)
            self.used, self.tab = keymap.rehash(self.tab, new, self.seg_n), new
        if segs >= len(self.seg_n):
            size = int(segs * GROWTH) + 1024
            for name in _SEGMENT_ARRAYS:
                old = getattr(self, name)
                new = np.zeros((size, *old.shape[1:]), old.dtype)
                new[: len(old)] = old
                setattr(self, name, new)
            self.refs += [0] * (size - len(self.refs))

    def nbytes(self) -> int:
        """Bytes of the key map and the segments' columns (placements come on top, about 1 byte a block)."""
        return int(self.tab.nbytes) + sum(int(getattr(self, f).nbytes) for f in _SEGMENT_ARRAYS) + 8 * len(self.refs)

    def blocks(self) -> int:
        """Distinct keys that have a place, held or not yet swept."""
        return int(self.seg_n[: self.next_seg].sum(dtype=np.int64))

    # ----------------------------------------------------------------- names
    def source(self, node_id: UUID, name: str, dp_rank: int, touched: Touched, now: float) -> SourceRow:
        """The source's row, made if it is new."""
        row = self.source_of.get((node_id, name, dp_rank))
        if row is None:
            row = SourceRow(self.next_source, node_id, name, dp_rank, since=now)
            self.next_source += 1
            self.keep_source(row)
            touched.sources.add(row.id)
        return row

    def keep_source(self, row: SourceRow) -> None:
        """The source is known."""
        self.sources[row.id] = self.source_of[row.node_id, row.name, row.dp_rank] = row

    def keyspace(
        self,
        digest: bytes,
        generation: int,
        group: int,
        touched: Touched,
        *,
        tenant_id: UUID,
        namespace_id: UUID | None = None,
        block_tokens: int = 0,
        block_bytes: int = 0,
        claimed: bool = True,
    ) -> Keyspace:
        """The keyspace, made if it is new; a later call with `claimed` gives an unclaimed one to its tenant."""
        row = self.keyspace_of.get((digest, generation, group))
        if row is None:
            row = Keyspace(self.next_keyspace, tenant_id, namespace_id, digest, generation, group, block_tokens,
                           block_bytes, claimed)  # fmt: skip
            self.next_keyspace += 1
            self.keep_keyspace(row)
            touched.keyspaces.add(row.id)
        elif claimed and not row.claimed:
            row.tenant_id, row.namespace_id, row.claimed = tenant_id, namespace_id, True
            row.block_tokens, row.block_bytes = block_tokens or row.block_tokens, block_bytes or row.block_bytes
            touched.keyspaces.add(row.id)
            touched.claimed.add(row.id)
        return row

    def keep_keyspace(self, row: Keyspace) -> None:
        """The keyspace is known."""
        self.keyspaces[row.id] = self.keyspace_of[row.digest, row.generation, row.group] = row

    def digests(self, source: int) -> dict[tuple[int, str], tuple[int, int, int]]:
        """(keyspace, tier) → (blocks, lo, hi) of everything the source is believed to hold."""
        return {
            (ks, tier): (h[0], h[1], h[2])
            for tier in self.tiers(source)
            for ks, h in self.holding[self.owner_of[source, tier]].items()
            if h[0]
        }

    def known(self, keyspace: int, keys: bytes) -> NDArray[np.int64]:
        """(segment, offset) of each key of 32 bytes, (−1, −1) where it has no place."""
        k = _halves(keys)
        out = np.empty((len(k), 2), np.int64)
        keymap.find_all(self.tab, self.seg_n, k, np.full(len(k), keyspace, np.int32), out)
        return out

    # ------------------------------------------------------------------ fold
    def apply(self, work: list[Work]) -> Touched:
        """The steps are folded in order; nothing is durable yet. `Store.prepare` must take each batch over.

        Raises:
            RuntimeError: the batch before has not been prepared; nothing was folded.
        """
        if self.unprepared:
            raise RuntimeError("the store has not taken over the batch before this one")
        t = Touched()
        steps, blobs, at, parents = _lay_out(work)
        n, m = at[-1], len(steps)
        if not m:
            return t
        self.unprepared = 1
        keys = _halves(b"".join(blobs))
        parent = np.frombuffer(b"".join(p[:16] if p else _NO_KEY for p in parents), U).reshape(-1, 2)
        root = np.fromiter((p is None for p in parents), np.bool_, m)
        kind = np.fromiter((_KINDS.get(w.kind, 0) for w in steps), np.int8, m)
        ks = np.fromiter((w.keyspace for w in steps), np.int32, m)
        missing, wrong = np.zeros(m, np.int32), np.zeros(m, np.int32)
        self.reserve(n, self.next_seg + n + 1)
        runs, masks, sums, offs, grow, born = self._room(n)
        nr, ng, nb, self.next_seg, used = keymap.resolve(
            self.tab, self.seg_n, self.seg_ks, self.seg_up, self.seg_up_off, self.seg_fam, self.next_seg, keys,
            np.array(at), kind, ks, parent, root, runs, masks, sums, offs, grow, born, missing, wrong)  # fmt: skip
        self.used += used
        t.pairs = n
        self._born(born[:nb].tolist(), at, keys, parent, t)
        packed = keys.tobytes()
        t.grown = [(s, off, packed[16 * i : 16 * (i + ln)]) for s, off, ln, i in grow[:ng].tolist()]
        for e in np.flatnonzero(missing).tolist():
            t.unheld[steps[e].source, steps[e].tag] += int(missing[e])
        for e in np.flatnonzero(wrong).tolist():
            t.mismatched[steps[e].source, steps[e].tag] += int(wrong[e])
        self._offs, self._keys = offs, keys
        self.fold(steps, runs[:nr].tolist(), masks[:nr].tobytes(), sums[:nr].tolist(), t)
        return t

    def _room(self, n: int) -> tuple[Any, ...]:
        """Scratch kept between batches: fresh pages cost more than the work on them."""
        if not self._scratch or len(self._scratch[3]) < n + 1:
            size = int(n * 1.5) + 64
            shapes = ((5, np.int64), (4, U), (2, U), (0, np.uint8), (4, np.int64), (5, np.int64))
            self._scratch = tuple(np.empty((size, w) if w else size, d) for w, d in shapes)
        return self._scratch

    def _born(
        self, born: list[list[int]], at: list[int], keys: NDArray[np.uint64], parent: NDArray[np.uint64], t: Touched
    ) -> None:
        for seg, e, i, up, _ in born:
            self.unused.add(seg)
            t.born.append(seg)
            if up != keymap.ROOT:
                self.seg_parent[seg] = keys[i - 1] if i > at[e] else parent[e]
            if up == keymap.ORPHAN:
                self.orphans.add(seg)

    def adopt(self) -> list[tuple[int, int, int]]:
        """Orphans whose parent has got a place since: (segment, up, offset)."""
        if not self.orphans:
            return []
        segs = np.fromiter(sorted(self.orphans), np.int64, len(self.orphans))
        out = np.empty((len(segs), 3), np.int64)
        n = keymap.adopt(self.tab, self.seg_n, self.seg_ks, self.seg_up, self.seg_up_off, self.seg_parent, segs, out)
        got: list[tuple[int, int, int]] = [(s, up, off) for s, up, off in out[:n].tolist()]
        self.orphans.difference_update(s for s, _, _ in got)
        return got

    def parent_of(self, seg: int) -> bytes | None:
        """The 16 bytes of the key before the segment's first, None at a root."""
        return None if self.seg_up[seg] == keymap.ROOT else self.seg_parent[seg].tobytes()

    def bury(self, segs: Iterable[int]) -> None:
        """Segments that nobody holds leave the key map; what hangs below them waits for its parent again."""
        dead = list(segs)
        if not dead:
            return
        self.seg_n[dead] = 0
        self.unused.difference_update(dead)
        self.orphans.difference_update(dead)
        below = np.flatnonzero(np.isin(self.seg_up[: self.next_seg], dead) & (self.seg_n[: self.next_seg] > 0))
        self.seg_up[below], self.seg_up_off[below] = keymap.ORPHAN, -1
        self.orphans.update(below.tolist())

    def keyspace_segments(self, keyspaces: tuple[int, ...]) -> list[int]:
        """Segments of the keyspaces that are in the map."""
        n = self.next_seg
        return [int(s) for s in np.flatnonzero(np.isin(self.seg_ks[:n], keyspaces) & (self.seg_n[:n] > 0))]


def _lay_out(work: list[Work]) -> tuple[list[Work], list[bytes], list[int], list[bytes | None]]:
    """Steps by event (an `adds` is one event a key), their keys, where each event's keys begin, their parents."""
    steps: list[Work] = []
    blobs: list[bytes] = []
    at: list[int] = [0]
    parents: list[bytes | None] = []
    n = 0
    for w in work:
        keys = w.keys
        blobs.append(keys)
        if w.kind == ADDS:
            m = len(keys) // 32
            steps.extend([w] * m)
            at.extend(range(n + 1, n + m + 1))
            n += m
            pairs = (w.parents[i : i + 32] for i in range(0, 32 * m, 32))
            parents.extend(None if p == ROOT else p for p in pairs)
        else:
            steps.append(w)
            n += len(keys) // 32
            at.append(n)
            parents.append(w.parent)
    return steps, blobs, at, parents


def _halves(keys: bytes) -> NDArray[np.uint64]:
    """The first 16 bytes of each key of 32, as two u64."""
    return np.ascontiguousarray(np.frombuffer(keys, U).reshape(-1, 4)[:, :2])
