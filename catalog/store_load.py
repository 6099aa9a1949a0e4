"""Decides how the writer's memory is rebuilt: rows first, then the ledger from the redo point on.

Called by `Store` after it has taken the fence. Afterwards the memory is what the last committed transaction left.
"""

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import psycopg

from catalog.index import facts, keymap
from catalog.index.births import Births
from catalog.index.memory import Memory
from catalog.index.steps import Keyspace, Owner, SourceRow
from catalog.store_rows import SQL

CHUNK = 512
"""Segments that are taken over at a time: 2 MB of keys, so that loading needs no more memory than running."""
Dirty = dict[int, tuple[int, float, list[bytes]]]
"""Segment → (first ledger row its row lacks, when that was, keys the row lacks)."""
DirtyPlaces = dict[tuple[int, int], tuple[int, float]]


class Loaded:
    """A shard as it was loaded."""

    def __init__(self, connection: "psycopg.Connection[Any]", shard: int) -> None:
        self.memory, self.shard, self.connection = Memory(), shard, connection
        self.dirty_seg: Dirty = {}
        self.dirty_place: DirtyPlaces = {}
        self.births = Births()
        self.seq = self.redo = self.wanted = 0
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            self._numbers()
            self._segments()
            ghosts = self._placements()
            self._replay()
        m = self.memory
        m.ghosts.extend(ghosts.items())
        self._count_references(ghosts)

    def _rows(self, name: str) -> Iterator[tuple[Any, ...]]:
        yield from self.connection.execute(SQL[name], (self.shard,))

    def _copy(self, name: str, types: str) -> Iterator[tuple[Any, ...]]:
        query = SQL[name].replace("%s", str(int(self.shard)))
        with self.connection.cursor().copy(f"COPY ({query}) TO STDOUT (FORMAT BINARY)".encode()) as copy:
            copy.set_types(types.split())
            yield from copy.rows()

    def _numbers(self) -> None:
        m = self.memory
        numbers = next(self._rows("load_shard"))
        self.seq, self.redo, m.next_seg, m.next_owner, m.next_keyspace, m.next_source, self.wanted = numbers
        for r in self._rows("load_sources"):
            row = SourceRow(*r)
            row.old_boots = tuple(row.old_boots)
            m.keep_source(row)
        for r in self._rows("load_keyspaces"):
            m.keep_keyspace(Keyspace(r[0], r[1], r[2], bytes(r[3]), *r[4:]))
        for r in self._rows("load_owners"):
            owner = m.owners[r[0]] = Owner(*r)
            if not owner.retired:
                m.owner_of[owner.source, owner.tier] = owner.id
                m.place[owner.id], m.holding[owner.id] = {}, {}
        for ks, o, blocks, lo, hi in self._rows("load_holdings"):
            if o in m.holding:
                m.holding[o][ks] = [blocks, lo % 2**64, hi % 2**64]

    def _segments(self) -> None:
        m = self.memory
        m.reserve(0, m.next_seg + 1)
        m.reserve(int(next(self._rows("load_size"))[0]), 0)
        chunk: list[tuple[Any, ...]] = []
        for row in self._copy("load_segments", "int8 bytea int4 int8 int2 int8 bytea"):
            chunk.append(row)
            if len(chunk) == CHUNK:
                self._take(chunk)
                chunk = []
        self._take(chunk)
        self._find_orphans()

    def _take(self, chunk: list[tuple[Any, ...]]) -> None:
        if not chunk:
            return
        m = self.memory
        ids, blobs, keyspaces, ups, offs, families, parents = zip(*chunk, strict=True)
        keys = np.frombuffer(b"".join(blobs), np.uint64).reshape(-1, 2)
        n = np.fromiter((len(b) // 16 for b in blobs), np.int64)
        seg, ks = np.array(ids, np.int64), np.array(keyspaces, np.int64)
        roots = np.fromiter((p is None for p in parents), np.bool_)
        m.seg_n[seg], m.seg_ks[seg], m.seg_fam[seg] = n, ks, families
        m.seg_up[seg] = np.where(roots, keymap.ROOT, ups)
        m.seg_up_off[seg] = offs
        blob = b"".join(p or bytes(16) for p in parents)
        m.seg_parent[seg] = np.frombuffer(blob, np.uint64).reshape(-1, 2)
        m.used += keymap.bulk(m.tab, keys, np.cumsum(n) - n, n, ks, seg)

    def _find_orphans(self) -> None:
        """Segments whose parent is unknown, or was swept since."""
        m = self.memory
        up, here = m.seg_up[: m.next_seg], m.seg_n[: m.next_seg] > 0
        lost = here & ((up == keymap.ORPHAN) | ((up >= 0) & (m.seg_n[np.maximum(up, 0)] == 0)))
        m.seg_up[: m.next_seg][lost] = keymap.ORPHAN
        m.seg_up_off[: m.next_seg][lost] = -1
        m.orphans = {int(s) for s in np.flatnonzero(lost)}

    def _placements(self) -> dict[int, dict[int, int]]:
        """Placements of live owners are known; answers those of retired ones."""
        m = self.memory
        ghosts: dict[int, dict[int, int]] = {o.id: {} for o in m.owners.values() if o.retired}
        for o, s, ks, n, held, states in self._copy("load_placements", "int4 int8 int4 int2 bytea bytea"):
            mask = facts.unpack(n, held)
            m.seg_ks[s] = ks  # its segment's row may be gone while this one still has to be deleted
            if o in m.place:
                m.place[o][s] = mask
                if states:
                    m.states[o, s] = facts.unpack_states(states)
            else:
                ghosts.setdefault(o, {})[s] = mask
        return ghosts

    def _replay(self) -> None:
        cursor = self.connection.cursor(binary=True)
        for seq, at, body in cursor.execute(SQL["load_ledger"], (self.shard, self.redo)):
            self._redo(seq, cast(float, at), facts.decode(body))

    def _redo(self, seq: int, at: float, f: facts.Facts) -> None:
        m = self.memory
        for s, ks, up, up_off, family, parent in f.born:
            if not m.seg_n[s]:
                m.seg_ks[s], m.seg_fam[s], m.seg_up[s], m.seg_up_off[s] = ks, family, up, up_off
                if parent is not None:
                    m.seg_parent[s] = np.frombuffer(parent, np.uint64)
                if up == keymap.ORPHAN:
                    m.orphans.add(s)
        for s, off, keys in f.keys:
            self._grow(seq, at, s, off, keys)
        for s, up, up_off in f.up:
            if s in m.orphans and m.seg_n[s]:
                m.orphans.discard(s)
                m.seg_up[s], m.seg_up_off[s] = up, up_off
                self.dirty_seg.setdefault(s, (seq, at, []))
        for o, s, n, held, states in f.places:
            if o in m.place:
                self._hold(seq, at, o, s, facts.unpack(n, held), states)
        for o, s, before in f.heirs:
            for was in self.births.inherit((o, s), before):
                if self.dirty_place.pop((was, s), None) is not None:
                    self.dirty_place[was, s] = (seq, at)
        for s in f.dead:
            self.dirty_seg.pop(s, None)
        m.bury(f.dead)

    def _grow(self, seq: int, at: float, s: int, off: int, keys: bytes) -> None:
        m = self.memory
        have = int(m.seg_n[s])
        k = np.frombuffer(keys, np.uint64).reshape(-1, 2)[max(0, have - off) :]
        if have < off or not len(k):  # swept later in the ledger, or already in the row
            return
        m.reserve(len(k), 0)
        m.seg_n[s] += len(k)
        m.used += keymap.append(m.tab, k, int(m.seg_ks[s]), s, have)
        self.dirty_seg.setdefault(s, (seq, at, []))[2].append(k.tobytes())

    def _hold(self, seq: int, at: float, o: int, s: int, mask: int, states: bytes | None) -> None:
        m = self.memory
        if mask and s not in m.place[o]:
            self.births.begin((o, s), at)
        if mask:
            m.place[o][s] = mask
        else:
            m.place[o].pop(s, None)
        m.states.pop((o, s), None)
        if states:
            m.states[o, s] = facts.unpack_states(states)
        self.dirty_place.setdefault((o, s), (seq, at))

    def _count_references(self, ghosts: dict[int, dict[int, int]]) -> None:
        m = self.memory
        for held in (*m.place.values(), *ghosts.values()):
            for s, mask in held.items():
                m.refs[s] += 1
                fam = int(m.seg_fam[s])
                m.resident[fam] = m.resident.get(fam, 0) + mask.bit_count()
        here = np.flatnonzero(m.seg_n[: m.next_seg] > 0)
        m.unused = {int(s) for s in here[np.array(m.refs)[here] == 0]}
