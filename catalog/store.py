"""The only writer of segments, placements, holdings, owners, cursors and the ledger: one transaction per batch.

What is durable when: the ledger row (absolute facts), cursors, owners and holdings with the batch; segment and
placement rows up to `defer` seconds later, together for many batches. `shard.redo` says from which ledger row on they
may lag; loading = rows + replay (`catalog.store_load`). Called by `catalog.ingest` only.
"""

import contextlib
import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg

from catalog import store_rows as rows
from catalog.index.facts import Facts, encode, pack, pack_states
from catalog.index.memory import Memory
from catalog.index.steps import Touched
from catalog.store_load import Loaded
from catalog.store_rows import SQL, Statement

Extras = Sequence[tuple[str, Sequence[Any]]]
"""(SQL, parameters) of statements that run in the same transaction."""
SWEEP = 5_000
"""Rows that one sweep takes away at most, of each kind."""
GRACE = 5.0
"""Seconds a segment stays after nobody holds it: a prefix that is dropped and computed again keeps its place."""
LEDGER_KEPT = 1_000
"""Ledger rows kept behind the last, for readers that are slow to begin."""
TRIES = 5
RECONNECT_SECONDS = 60.0


class Deposed(Exception):
    """Another writer holds the shard, or this one lost track: drop the store with its memory and open a new one."""


@dataclass(slots=True)
class Prepared:
    """One transaction, ready to be sent. It holds no reference into the memory, so that folding may go on."""

    seq: int
    guard: tuple[Any, ...]
    statements: list[Statement] = field(default_factory=list)
    more: bool = False


class Store:
    """Single writer of one shard.

    `commit` = `write(prepare(…))`. `prepare` belongs to the thread that folds and takes milliseconds; `write` waits
    for the network and may run in another thread while the next batch is folded: one write at a time, in order.
    """

    def __init__(self, dsn: str, shard: int = 0, defer: float = 2.0, *, url: str = "", grace: float = GRACE) -> None:
        """The shard is fenced for this writer (whoever wrote before is deposed) and its memory is loaded.

        Args:
            dsn: of `kv_ingest`.
            shard: number of the shard; its row exists.
            defer: seconds by which segment and placement rows may lag behind the ledger.
            url: where the writer can be reached, for readers of the shard's row.
            grace: seconds a segment that nobody holds stays.
        """
        self.dsn, self.shard, self.defer, self.grace = dsn, shard, defer, grace
        self.stats = dict.fromkeys(("segment_rows", "placement_rows", "ledger_bytes", "swept"), 0)
        self._connect()
        taken = self.connection.execute(SQL["take_over"], (url, shard)).fetchone()
        if taken is None:
            self.close()
            raise LookupError(f"there is no shard {shard}")
        self.writer: int = taken[0]
        loaded = Loaded(self.connection, shard)
        self.memory: Memory = loaded.memory
        self.seq, self.redo, self.wanted = loaded.seq, loaded.redo, loaded.wanted
        self._dirty_seg, self._dirty_place, self._births = loaded.dirty_seg, loaded.dirty_place, loaded.births
        self._told = {s.id: s.state for s in self.memory.sources.values()}
        self._aging: set[int] = set()
        self._aged_at = 0.0
        self._lost = False

    def _connect(self) -> None:
        self.connection = psycopg.connect(self.dsn, autocommit=True)
        rows.register(self.connection)

    def close(self) -> None:
        """The connection is closed."""
        self.connection.close()

    # --------------------------------------------------------------- prepare
    def prepare(
        self,
        touched: Touched,
        extras: Extras = (),
        now: float | None = None,
        flush: bool = False,
        vacated: tuple[int, ...] = (),
    ) -> Prepared:
        """The transaction for what was touched; `flush` also writes every row that lags behind.

        `vacated` are keyspaces that no owner holds any more: all their rows go with it, in one delete.

        Raises:
            Deposed: an earlier transaction of this store failed for good.
        """
        now = time.time() if now is None else now
        if self._lost:
            raise Deposed
        self.memory.unprepared = 0
        self._note(touched, self.seq + 1, now)
        facts, statements = self._through(touched, now)
        if vacated:
            statements += self._vacate(vacated, facts)
        return self._close_batch(facts, statements, extras, now, flush)

    def _vacate(self, keyspaces: tuple[int, ...], facts: Facts) -> list[Statement]:
        """Segments and placements of these keyspaces are gone, whatever of them was still to be written."""
        facts.dead = self.memory.keyspace_segments(keyspaces)
        self.memory.bury(facts.dead)
        dead = set(facts.dead)
        for s in dead & self._dirty_seg.keys():
            del self._dirty_seg[s]
        gone = [at for at in self._dirty_place if at[1] in dead]
        for at in gone:
            del self._dirty_place[at]
        self._births.forget(gone)
        numbers = rows.ints("int4", keyspaces)
        return [(SQL[f"keyspace_{table}_delete"], (numbers,)) for table in ("placements", "segments")]

    def _note(self, t: Touched, seq: int, now: float) -> None:
        """Rows that lag behind from this batch on."""
        segs, places = self._dirty_seg, self._dirty_place
        for seg, _, keys in t.grown:
            if (entry := segs.get(seg)) is None:
                entry = segs[seg] = (seq, now, [])
            entry[2].append(keys)
        place, beside = self.memory.place, dict[int, list[int]]()
        for o, s in t.fresh:
            self._births.begin((o, s), now)
            if (near := beside.get(o)) is None:
                near = beside[o] = self.memory.others(o)
            t.heirs.update((o, s, other) for other in near if s in place[other] and (other, s) not in t.fresh)
        for o, s, before in t.heirs:
            for was in ((one, s) for one in self._births.inherit((o, s), before)):
                if places.pop(was, None) is not None:  # its row waits for the one that follows, and is told anew
                    t.placed.add(was)
        for at in t.placed:
            if at not in places:
                places[at] = (seq, now)
        for o in t.owners:
            owner = self.memory.owners[o]
            owner.born = owner.born or now

    def _through(self, t: Touched, now: float) -> tuple[Facts, list[Statement]]:
        """The ledger's facts, and the rows that are written with them."""
        m, out = self.memory, list[Statement]()
        if t.keyspaces:
            out.append(rows.keyspaces(m, sorted(t.keyspaces), self.shard))
        if t.sources:
            out.append(rows.sources(m, sorted(t.sources), self.shard))
        if t.owners:
            out.append(rows.owners(m, sorted(t.owners), self.shard))
        merged, holdings = rows.holdings(m, t.held)
        out += merged
        if retired := [o for o in t.owners if m.owners[o].retired]:
            out.append((SQL["holding_retire"], (rows.ints("int4", retired),)))
        for ks in t.claimed:
            tenant = m.keyspaces[ks].tenant_id
            out += [(SQL[f"claim_{table}"], (tenant, ks)) for table in ("segments", "placements", "holdings")]
        up, up_off, fam, of = m.seg_up, m.seg_up_off, m.seg_fam, m.seg_ks
        facts = Facts(
            keyspaces=[
                (k.id, k.tenant_id.bytes, k.digest, k.generation, k.group)
                for k in map(m.keyspaces.__getitem__, sorted(t.keyspaces))
            ],
            sources=self._changed_sources(t),
            owners=[(o.id, o.source, o.tier, o.retired) for o in map(m.owners.__getitem__, sorted(t.owners))],
            born=[(s, int(of[s]), int(up[s]), int(up_off[s]), int(fam[s]), m.parent_of(s)) for s in t.born],
            keys=t.grown,
            places=list(self._places(t.placed)),
            holdings=holdings,
            heirs=sorted(t.heirs),
        )
        return facts, out

    def _changed_sources(self, t: Touched) -> list[tuple[int, bytes, str, int, str]]:
        out = []
        for i in sorted(t.sources):
            s = self.memory.sources[i]
            if self._told.get(i) != s.state:
                self._told[i] = s.state
                out.append((i, s.node_id.bytes, s.name, s.dp_rank, s.state))
        return out

    def _places(self, placed: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int, bytes | None, bytes | None]]:
        place, states = self.memory.place, self.memory.states
        for o, s in placed:
            held = place.get(o)
            if held is not None:  # the owner's retirement says it all
                n, mask = pack(held.get(s, 0))
                yield o, s, n, mask, pack_states(states.get((o, s))) if states else None

    def _close_batch(
        self, facts: Facts, statements: list[Statement], extras: Extras, now: float, flush: bool
    ) -> Prepared:
        """Adds what is due of the rows behind, and numbers the transaction."""
        m, seq = self.memory, self.seq + 1
        for adopted in m.adopt():
            facts.up.append(adopted)
            self._dirty_seg.setdefault(adopted[0], (seq, now, []))
        due = float("inf") if flush or self.wanted >= self.redo else now - self.defer
        statements += self._behind(due)
        redo = min((at for at, _ in self._oldest()), default=seq + 1)
        body = encode(facts)
        numbers = (m.next_seg, m.next_owner, m.next_keyspace, m.next_source)
        guard = (seq, redo, *numbers, self.shard, self.writer, self.seq, now, body)
        statements += [(sql, tuple(params)) for sql, params in extras]
        self.seq, self.redo = seq, redo
        self.stats["ledger_bytes"] += len(body)
        return Prepared(seq, guard, statements)

    def _behind(self, due: float) -> list[Statement]:
        """Rows first dirtied at or before `due`; they are not behind any more."""
        m, out = self.memory, list[Statement]()
        segs = [(s, b"".join(keys)) for s, (_, _, keys) in _until(self._dirty_seg, due)]
        places = [at for at, _ in _until(self._dirty_place, due)]
        for s, _ in segs:
            del self._dirty_seg[s]
        for at in places:
            del self._dirty_place[at]
        held, gone, moved = [], [], []
        for o, s in places:
            born, before = self._births.take((o, s))
            mask = m.place.get(o, {}).get(s)
            if mask is None:
                gone.append((o, s))
            else:
                held.append((o, s, mask, born))
                moved += [(o, s, was) for was in before]
        if segs:
            out.append(rows.segments(m, segs))
        if held:
            out.append(rows.placements(m, held))
        if moved:
            out.append(rows.placements_older(m, moved))
        if gone:
            out.append(rows.placements_gone(m, gone))
        self.stats["segment_rows"] += len(segs)
        self.stats["placement_rows"] += len(held)
        return out

    def _oldest(self) -> list[tuple[int, float]]:
        """(ledger row, since when) of what has lagged longest, among segments and among placements."""
        segs = [(at, since) for at, since, _ in itertools.islice(self._dirty_seg.values(), 1)]
        return segs + list(itertools.islice(self._dirty_place.values(), 1))

    # ----------------------------------------------------------------- write
    def write(self, prepared: Prepared) -> int:
        """Durable when it returns: the ledger's number. After a lost connection the same transaction is sent again,
        unless it had got through.

        Raises:
            Deposed: another writer has the shard, or PostgreSQL stayed away; the transaction may not be in.
            psycopg.Error: a statement was refused; nothing of the transaction is in, and the store is lost.
        """
        if self._lost:
            raise Deposed
        try:
            for _ in range(TRIES):
                try:
                    self._send(prepared)
                    return prepared.seq
                except psycopg.OperationalError:
                    if self._landed(prepared.seq):
                        return prepared.seq
            raise Deposed("the transaction could not be sent")
        except BaseException:
            self._lost = True
            raise

    def _send(self, prepared: Prepared) -> None:
        """One round trip. The fence is read last, so the ledger's row hangs on it in one statement."""
        with self.connection.transaction(), self.connection.pipeline(), self.connection.cursor(binary=True) as guard:
            guard.execute(SQL["guard"], prepared.guard)
            cursor = self.connection.cursor()
            for statement, parameters in prepared.statements:
                cursor.execute(statement, parameters)
            row = guard.fetchone()
            if row is None:
                raise Deposed("another writer has the shard")  # rolls everything back
        self.wanted = row[0]

    def _landed(self, seq: int) -> bool:
        """After a lost connection: True if the transaction is in, False to send it again."""
        deadline = time.monotonic() + RECONNECT_SECONDS
        while True:
            try:
                self.close()
                self._connect()
                row = self.connection.execute(SQL["position"], (self.shard,)).fetchone()
                break
            except psycopg.OperationalError as e:
                if time.monotonic() > deadline:
                    raise Deposed("PostgreSQL stays away") from e
                time.sleep(0.05)
        if row is None or row[0] != self.writer or row[1] not in (seq, seq - 1):
            raise Deposed("another writer has the shard")
        return bool(row[1] == seq)

    def commit(self, touched: Touched, extras: Extras = (), now: float | None = None, flush: bool = False) -> int:
        """Durable when it returns: the ledger's number."""
        return self.write(self.prepare(touched, extras, now, flush))

    # ------------------------------------------------------------- housework
    def idle(self, now: float | None = None) -> bool:
        """Housework is done, one bounded piece of it. True = there is more."""
        prepared = self.prepare_idle(now)
        if prepared is not None:
            self.write(prepared)
        return prepared is not None and prepared.more

    def prepare_idle(self, now: float | None = None) -> Prepared | None:
        """The transaction of the housework, None if there is nothing to do; not between `apply` and `prepare`.

        To be called a few times a second, and between batches under load: it writes rows that are due or that a
        barrier waits for, drains retired owners, sweeps segments that nobody holds and prunes the ledger.
        """
        now = time.time() if now is None else now
        if self._lost:
            raise Deposed
        if self.memory.unprepared:
            return None
        self._look_for_barrier()
        m = self.memory
        gone, over = m.drain(SWEEP)
        dead = self._dead(now)
        late = any(since <= now - self.defer for _, since in self._oldest())
        if not (gone or over or dead or late or self.wanted >= self.redo):
            return None
        out: list[Statement] = []
        if gone:
            out.append(rows.placements_gone(m, gone))
        if dead:
            out.append(rows.segments_gone(m, dead))
            m.bury(dead)
            for s in dead:
                self._dirty_seg.pop(s, None)
        if over:
            out.append((SQL["owner_delete"], (rows.ints("int4", over),)))
            for o in over:
                m.owners.pop(o, None)  # not known where a writer died before it could delete the row
        out.append((SQL["ledger_prune"], self._prune()))
        self.stats["swept"] += len(dead)
        prepared = self._close_batch(Facts(dead=dead), out, (), now, False)
        prepared.more = bool(m.ghosts) or len(dead) == SWEEP
        return prepared

    def _look_for_barrier(self) -> None:
        with contextlib.suppress(psycopg.OperationalError):  # the next write mends the connection
            row = self.connection.execute(SQL["wanted"], (self.shard, self.writer)).fetchone()
            self.wanted = row[0] if row else self.wanted

    def _dead(self, now: float) -> list[int]:
        """Segments that nobody has held for `grace` seconds or longer."""
        if now - self._aged_at < self.grace:
            return []
        unused = self.memory.unused
        dead = list(itertools.islice((s for s in (self._aging if self.grace else unused) if s in unused), SWEEP))
        if len(dead) < SWEEP:
            self._aging, self._aged_at = unused.difference(dead), now
        return dead

    def _prune(self) -> tuple[int, ...]:
        return (self.shard, self.shard, self.redo, self.seq, LEDGER_KEPT, self.shard, self.redo, SWEEP)

    def prepare_removal(self, keyspaces: tuple[int, ...], now: float | None = None) -> Prepared:
        """The transaction that takes whole keyspaces out of the catalog; their numbers stay."""
        now = time.time() if now is None else now
        m, facts = self.memory, Facts()
        held = [(ks, o) for o, by_ks in m.holding.items() for ks in keyspaces if ks in by_ks]
        for o in m.place:
            gone = m.segments(o, keyspaces)
            m.give_up(o, gone)
            facts.places += [(o, s, 0, None, None) for s in gone]
        for ks, o in held:
            del m.holding[o][ks]
        statements, facts.holdings = rows.holdings(m, held)
        statements += self._vacate(keyspaces, facts)
        return self._close_batch(facts, statements, (), now, False)


def _until(dirty: dict[Any, Any], due: float) -> Iterator[tuple[Any, Any]]:
    """Leading entries first dirtied at or before `due`; a dictionary keeps that order."""
    return itertools.takewhile(lambda entry: bool(entry[1][1] <= due), dirty.items())
