"""Keeps this process's index current: loads it from PostgreSQL, follows the ledger, applies fences and says so.

Rows of segments and placements may lag behind the ledger, so a load replays it from `redo` on and needs no barrier. A
gap in the ledger means a new load while the old view goes on serving, marked. Fences are applied before they are
acknowledged; when the lease of 5 s is over, look-ups answer nothing and say `recompute`. Called by `services`.
"""

import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from django.conf import settings
from django.db import close_old_connections, connections
from django.db.utils import Error as DjangoError

from catalog.index import facts
from kvconsole.infra import nudge, sql
from routing.forms import best
from routing.index import UNLIMITED, DictIndex, Index, Runs
from routing.view import Space, View, Who
from tenants.selectors import fences_after

LEASE_SECONDS = 5.0
RENEW_SECONDS = 1.5
LOOK_SECONDS = 0.25
"""Where nobody wakes it: a fence is in force for look-ups within a second of its commit, also without Valkey."""
COLLECT_SECONDS = 10.0
BATCH = 200
BYTES_MAX = 2**30
"""Memory of the index and of what follows the ledger; beyond that keyspaces are evicted. About 25 million keys with two
owners each in the packed form, 5 million in the dict form."""
_log = logging.getLogger(__name__)

_RENEW = """
INSERT INTO routing_indexlease (name, fence_seq, seq, mode, until)
VALUES (%(name)s, %(fence_seq)s, %(seq)s, %(mode)s, now() + %(seconds)s * interval '1 second')
ON CONFLICT (name) DO UPDATE SET fence_seq = excluded.fence_seq, seq = excluded.seq, mode = excluded.mode,
    until = excluded.until"""
_SEGMENTS = """
SELECT id, keyspace, keys, CASE WHEN parent IS NULL THEN -2 ELSE coalesce(up, -1) END::int8, coalesce(up_off, -1::int2)
FROM catalog_segment"""
_READER = """
INSERT INTO catalog_reader (name, shard, seq, seen_at) SELECT %(name)s, shard, seq, now()
FROM unnest(%(shards)s::int2[], %(seqs)s::int8[]) AS x(shard, seq)
ON CONFLICT (name, shard) DO UPDATE SET seq = excluded.seq, seen_at = excluded.seen_at"""


@dataclass(frozen=True)
class Found:
    """What a look-up answers: runs of (depth, owners), and how good the index was.

    mode: live | partial (keyspaces were evicted for want of memory) | rebuilding (the old view serves) |
    loading (there is none yet) | recompute (the lease is over: nothing may be answered).
    form: packed | dict (numba is not there, or the process does without it), empty while there is none.
    """

    runs: list[tuple[int, list[Who]]]
    seq: int
    age_ms: int
    mode: str
    form: str = ""


class Replica:
    """One process's index and the thread that keeps it. `start` once; look-ups come from any thread."""

    def __init__(
        self,
        *,
        make: Callable[[], Index] = best,
        keys_max: int = UNLIMITED,
        bytes_max: int = BYTES_MAX,
        role: str = "",
    ) -> None:
        self.name = f"{socket.gethostname()}/{secrets.token_hex(4)}"
        self._make, self._keys_max, self._bytes_max, self._role = make, keys_max, bytes_max, role or settings.DB_ROLE
        self.view: View | None = None
        self.fence_seq = 0
        self.rebuilding = False
        self.loads = 0
        self.leased_until = 0.0
        self.checked_at = 0.0
        self.renewed_at = self.collected_at = 0.0
        self.stop = threading.Event()
        self.fresh = threading.Event()
        """Set when a load has ended."""
        self._thread: threading.Thread | None = None
        self._connection: psycopg.Connection[Any] | None = None
        self._lock = threading.Lock()

    # ---------------------------------------------------------------- for everybody
    def start(self) -> None:
        """The thread runs; calling again is free."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="routing-replica", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """The thread has ended; its lease runs out by itself."""
        self.stop.set()
        if self._thread:
            self._thread.join(10)

    @property
    def mode(self) -> str:
        """See `Found`."""
        if self.view is None:
            return "loading"
        if time.monotonic() >= self.leased_until:
            return "recompute"
        if self.rebuilding:
            return "rebuilding"
        return "partial" if self.view.evicted else "live"

    @property
    def form(self) -> str:
        """See `Found`."""
        return self.view.index.form if self.view else ""

    def lookup(self, space: Space, fingerprints: bytes, window: int = 0) -> Found:
        """Who holds how much of the chain; nothing where the space is fenced, unknown, or the lease is over.

        Args:
            space: whose chain it is.
            fingerprints: packed, in the prompt's order.
            window: blocks that the group's layers look back on; 0 = all. See `Index.lookup`.
        """
        view, mode, now = self.view, self.mode, time.monotonic()
        seq = sum(view.at.values()) if view else 0
        age = int(max(0.0, now - self.checked_at) * 1000) if view else 0
        keyspace = view.number.get(space) if view else None
        runs: Runs = []
        if view is not None and keyspace is not None and mode != "recompute" and view.routable(keyspace):
            view.used[keyspace] = now
            runs = view.index.lookup(keyspace, fingerprints, window)
            if not view.routable(keyspace):  # fenced while we walked
                runs = []
        return Found(_named(view, runs) if view else [], seq, age, mode, self.form)

    # ---------------------------------------------------------------- the thread
    def _run(self) -> None:
        while not self.stop.is_set():
            try:
                with sql.connect(self._role) as self._connection:
                    self._load()
                    for _ in nudge.listen((nudge.LEDGER, nudge.FENCES), stop=self.stop, every=LOOK_SECONDS):
                        self._turn()
            except (psycopg.Error, DjangoError, OSError):
                _log.warning("PostgreSQL is away; the index serves until its lease ends", exc_info=True)
                self.stop.wait(1.0)
            except Exception:
                _log.exception("the index is loaded again")
                self.stop.wait(1.0)
            finally:
                self._connection = None
                connections.close_all()  # this thread's own

    def _turn(self) -> None:
        """One wake-up: fences first, then the ledger, then what is due."""
        close_old_connections()
        self._fences()
        if not self._follow():
            self._load()
        now = time.monotonic()
        if self.view and now - self.collected_at > COLLECT_SECONDS:
            self.view.index.collect()
            self.collected_at = now
        if now - self.renewed_at > RENEW_SECONDS:
            self._renew()

    @property
    def _cx(self) -> psycopg.Connection[Any]:
        assert self._connection is not None
        return self._connection

    def _fences(self) -> None:
        """Every fence that was raised holds in the view; a new position is acknowledged at once."""
        latest, fences = fences_after(self.fence_seq)
        if self.view:
            for fence in fences:
                self.view.fence(bytes(fence.ns), fence.min_gen)
        if latest != self.fence_seq:
            self.fence_seq = latest
            self._renew()

    def _renew(self) -> None:
        """The lease runs from now on, and the ledger is kept for us from where we are."""
        started = time.monotonic()
        view = self.view
        if view is None:
            return
        mode = "live" if self.mode == "recompute" else self.mode
        row = {"name": self.name, "fence_seq": self.fence_seq, "seq": sum(view.at.values()), "mode": mode}
        with self._cx.transaction():
            self._cx.execute(_RENEW, {**row, "seconds": LEASE_SECONDS})
            self._cx.execute(_READER, {"name": self.name, "shards": list(view.at), "seqs": list(view.at.values())})
            if not int(started) % 60:
                self._cx.execute("DELETE FROM routing_indexlease WHERE until < now() - interval '1 day'")
        self.renewed_at, self.leased_until = started, started + LEASE_SECONDS

    def _follow(self) -> bool:
        """The view has every ledger row there is; False = some are gone, it must be loaded again."""
        view = self.view
        if view is None:
            return False
        started = time.monotonic()
        for shard, at, newest in self._positions(view):
            while at < newest:
                rows = self._cx.execute(
                    "SELECT seq, body FROM catalog_ledger WHERE shard = %s AND seq > %s ORDER BY seq LIMIT %s",
                    (shard, at, BATCH),
                    binary=True,
                ).fetchall()
                if not rows or [r[0] for r in rows] != list(range(at + 1, at + 1 + len(rows))):
                    return False
                for seq, body in rows:
                    view.apply(facts.decode(body))
                    view.at[shard] = at = seq
                view.shed()
                self._keep_lease()
            if newest < at:
                return False
        self.checked_at = started
        return True

    def _positions(self, view: View) -> Iterator[tuple[int, int, int]]:
        rows = self._cx.execute("SELECT id, seq FROM catalog_shard ORDER BY id").fetchall()
        for shard, newest in rows:
            yield shard, view.at.get(shard, 0), newest

    # ---------------------------------------------------------------- a load
    def _load(self) -> None:
        """A new view serves. The old one does until then, without following, and its fences are kept up."""
        self.rebuilding = self.view is not None
        view = View(self._make(), self._keys_max, self._bytes_max, used=dict(self.view.used) if self.view else {})
        started = time.monotonic()
        with sql.connect(self._role) as reading, reading.transaction():
            reading.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            for _ in self._rows(reading, view):
                self._keep_lease()
        for _ in view.fill():
            self._keep_lease()
        self._fence_new(view)
        self.view, self.rebuilding, self.checked_at = view, False, started
        self.loads += 1
        self._renew()
        self.fresh.set()

    def _keep_lease(self) -> None:
        """Long work does not cost the old view its lease."""
        if self.view is not None and time.monotonic() - self.renewed_at > RENEW_SECONDS:
            self._fences()
            self._renew()

    def _fence_new(self, view: View) -> None:
        latest, fences = fences_after(0)
        for fence in fences:
            view.fence(bytes(fence.ns), fence.min_gen)
        self.fence_seq = latest

    def _rows(self, cx: psycopg.Connection[Any], view: View) -> Iterator[None]:
        """Names, then segments and placements as far as they are written, then the ledger from `redo` on."""
        self._fence_new(view)
        shards: Sequence[tuple[int, int, int]] = cx.execute("SELECT id, seq, redo FROM catalog_shard").fetchall()
        for number, digest, generation, group in cx.execute(
            "SELECT id, digest, generation, cache_group FROM catalog_keyspace"
        ):
            view.keyspace(number, bytes(digest), generation, group)
        for source in cx.execute("SELECT id, node_id, name, dp_rank, state FROM catalog_source"):
            view.source(*source)
        for number, of, tier in cx.execute("SELECT id, source_id, tier FROM catalog_owner WHERE NOT retired"):
            view.owner(number, of, tier, False)
        for i, segment in enumerate(_copy(cx, _SEGMENTS, "int8 int4 bytea int8 int2")):
            view.segment(*segment)
            if not i % 5000:
                view.shed()
                yield
        placements = "SELECT owner, seg, n, held, states FROM catalog_placement"
        for i, place in enumerate(_copy(cx, placements, "int4 int8 int2 bytea bytea")):
            if place[0] in view.owners:
                view.place(*place)
            if not i % 5000:
                yield
        for shard, newest, redo in shards:
            ledger = "SELECT body FROM catalog_ledger WHERE shard = %s AND seq >= %s AND seq <= %s ORDER BY seq"
            for (body,) in cx.execute(ledger, (shard, redo, newest), binary=True):
                view.apply(facts.decode(body))
                yield
            view.at[shard] = newest


def _copy(cx: psycopg.Connection[Any], query: Any, types: str) -> Iterator[tuple[Any, ...]]:
    with cx.cursor().copy(f"COPY ({query}) TO STDOUT (FORMAT BINARY)") as copy:
        copy.set_types(types.split())
        yield from copy.rows()


def _named(view: View, runs: Runs) -> list[tuple[int, list[Who]]]:
    named = ((depth, [who for o in owners if (who := view.who(o))]) for depth, owners in runs)
    return [(depth, whos) for depth, whos in named if whos]


_replica: Replica | None = None
_making = threading.Lock()


def replica() -> Replica:
    """This process's replica, started. In the dict form: pages and REST do without numba; routers have their own."""
    global _replica
    with _making:
        if _replica is None:
            _replica = Replica(make=DictIndex)
    _replica.start()
    return _replica
