"""The two sides of the store's bench: our runs, and one guarded row per (block, owner). Both read the same frames."""

import contextlib
import gc
import pathlib
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
import psycopg

from bench.store_streams import Batch
from catalog.index.steps import Touched, Work
from catalog.store import Store
from kvconsole.embedded import Postgres
from kvcore.events import Add, Adds, Drop, decode_frame, decode_item
from kvcore.fold import Cursor, Next, Reset

TENANT = uuid.UUID("00000000-0000-7000-8000-000000000001")
NODES = uuid.UUID("00000000-0000-7000-8000-0000000000ff")


@dataclass
class Cost:
    """What some pairs took. CPU is client and server together."""

    pairs: int = 0
    wall: float = 0.0
    client: float = 0.0
    server: float = 0.0
    wal: int = 0

    @property
    def per_cpu(self) -> float:
        """Pairs per CPU-second."""
        return self.pairs / max(1e-9, self.client + self.server)

    @property
    def wal_per_pair(self) -> float:
        """Bytes of write-ahead log per pair."""
        return self.wal / max(1, self.pairs)


class Cluster:
    """A PostgreSQL of the bench's own, set up as in production, with migrated databases to throw away."""

    def __init__(self) -> None:
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="kvc-bench-"))
        self.postgres = Postgres(self.base / "pg")
        self.postgres.start()
        self.postgres.create_database("template")
        migrate(self.postgres, "template")
        self.made = 0

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """Name of a fresh migrated database."""
        self.made += 1
        name = f"bench{self.made}"
        self.postgres.create_database(name, "template")
        try:
            yield name
        finally:
            self.postgres.drop_database(name)

    def close(self) -> None:
        """Server and files are gone."""
        self.postgres.remove()

    def dsn(self, name: str) -> str:
        """As the role that writes in production."""
        return self.postgres.dsn("ingest", name)

    def admin(self, name: str, query: str, *args: Any) -> Any:
        """First row of a query by the superuser."""
        with psycopg.connect(self.postgres.superuser_dsn(name), autocommit=True) as c:
            cursor = c.execute(query, args or None)  # type: ignore[call-overload]
            return cursor.fetchone() if cursor.description else None

    def lsn(self) -> int:
        """Bytes of write-ahead log so far."""
        return int(self.admin("postgres", "SELECT pg_current_wal_lsn() - '0/0'")[0])

    def cpu(self) -> float:
        """CPU seconds of the server and its children so far."""
        total, post = 0.0, psutil.Process(self.postgres.pid)
        for p in (post, *post.children()):
            with contextlib.suppress(psutil.Error):
                t = p.cpu_times()
                total += t.user + t.system
        return total

    @contextlib.contextmanager
    def measured(self, cost: Cost, wal: bool = True) -> Iterator[None]:
        """What happens inside is added to the cost."""
        lsn = self.lsn() if wal else 0
        server, client, wall = self.cpu(), time.process_time(), time.perf_counter()
        yield
        cost.wall += time.perf_counter() - wall
        cost.client += time.process_time() - client
        cost.server += self.cpu() - server
        cost.wal += self.lsn() - lsn if wal else 0


def migrate(postgres: Postgres, name: str) -> None:
    """The database has the product's tables."""
    import os
    import subprocess
    import sys

    env = os.environ | postgres.env(name) | {"KVC_ENV": "test", "KVC_DB_ROLE": "migrate"}
    root = pathlib.Path(__file__).parents[1]
    subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity", "0"], check=True, cwd=root, env=env)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """The cyclic collector is off, as in the writer's process."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


class Runs:
    """Our side: frame → items → steps → fold → one transaction."""

    def __init__(self, dsn: str, defer: float = 2.0) -> None:
        self.store = Store(dsn, defer=defer)

    def take(self, frames: list[bytes], source: str = "") -> None:
        """The frames are durable."""
        self.store.commit(self.fold(frames))

    def fold(self, frames: list[bytes]) -> Touched:
        """The frames are in memory."""
        m, first, work = self.store.memory, Touched(), list[Work]()
        for body in frames:
            frame = decode_frame(body)
            row = m.source(uuid.uuid5(NODES, frame.node), frame.source, 0, first, 0.0)
            cursor, verdict = Cursor(row.boot, row.stream, row.seq, row.old_boots).advance(
                frame.boot, frame.stream, frame.seq
            )
            if not isinstance(verdict, Next | Reset):
                raise RuntimeError(f"the bench's frames are not in order: {verdict}")
            row.boot, row.stream, row.seq, row.old_boots = cursor.boot, cursor.stream, cursor.seq, cursor.old_boots
            first.sources.add(row.id)
            for raw in frame.items:
                item = decode_item(raw)
                ks = m.keyspace(item.ns, item.gen, item.group, first, tenant_id=TENANT).id
                if isinstance(item, Add):
                    work.append(Work("add", row.id, item.tier, ks, item.keys, item.parent))
                elif isinstance(item, Adds):
                    work.append(Work("adds", row.id, item.tier, ks, item.keys, parents=item.parents))
                elif isinstance(item, Drop):
                    work.append(Work("drop", row.id, item.tier, ks, item.keys, reason=item.reason))
        touched = m.apply(work)
        touched.sources |= first.sources
        touched.keyspaces |= first.keyspaces
        return touched

    def finish(self) -> None:
        """Nothing lags behind any more."""
        self.store.commit(Touched(), flush=True)

    def close(self) -> None:
        """The connection is closed."""
        self.store.close()


class Rows:
    """The layout we refused: one guarded row per (block, owner), COPY to a temporary table and ON CONFLICT.

    Its table has no row-level security, no tenant and no digest, which is to its advantage.
    """

    TABLE = """CREATE TABLE bench_rows (keyspace int, key uuid, owner int, pos bigint, held boolean,
        PRIMARY KEY (keyspace, key, owner)); GRANT ALL ON bench_rows TO kv_ingest"""
    MERGE = """INSERT INTO bench_rows SELECT DISTINCT ON (keyspace, key, owner) * FROM arrived
        ORDER BY keyspace, key, owner, pos DESC ON CONFLICT (keyspace, key, owner)
        DO UPDATE SET pos = excluded.pos, held = excluded.held WHERE excluded.pos > bench_rows.pos"""
    FORMAT = np.dtype([("fields", ">i2"), ("l0", ">i4"), ("keyspace", ">i4"), ("l1", ">i4"), ("key", "V16"),
                       ("l2", ">i4"), ("owner", ">i4"), ("l3", ">i4"), ("pos", ">i8"), ("l4", ">i4"),
                       ("held", "i1")])  # fmt: skip

    def __init__(self, cluster: Cluster, name: str) -> None:
        cluster.admin(name, self.TABLE)
        self.connection = psycopg.connect(cluster.dsn(name), autocommit=True)
        self.connection.execute("CREATE TEMP TABLE arrived (LIKE bench_rows) ON COMMIT DELETE ROWS")
        self.owners: dict[tuple[str, str], int] = {}
        self.keyspaces: dict[bytes, int] = {}
        self.cursors: dict[str, Cursor] = {}
        self.pos = 0

    def take(self, frames: list[bytes]) -> None:
        """The frames are durable."""
        parts = []
        for body in frames:
            frame = decode_frame(body)
            cursor = self.cursors.get(frame.node) or Cursor()
            self.cursors[frame.node], _ = cursor.advance(frame.boot, frame.stream, frame.seq)
            for raw in frame.items:
                parts.append(self._rows(frame.node, decode_item(raw)))
        head = b"PGCOPY\n\xff\r\n\0" + bytes(8)
        with self.connection.transaction(), self.connection.cursor() as cursor:
            with cursor.copy("COPY arrived FROM STDIN (FORMAT BINARY)") as copy:
                copy.write(head + b"".join(parts) + b"\xff\xff")
            cursor.execute(self.MERGE)

    def _rows(self, node: str, item: Any) -> bytes:
        keys = np.frombuffer(item.keys, "V32").view([("k", "V16"), ("x", "V16")])["k"]
        r = np.zeros(len(keys), self.FORMAT)
        self.pos += 1
        r["fields"], r["l0"], r["l1"], r["l2"], r["l3"], r["l4"] = 5, 4, 16, 4, 8, 1
        r["keyspace"] = self.keyspaces.setdefault(item.ns, len(self.keyspaces))
        r["owner"] = self.owners.setdefault((node, item.tier), len(self.owners))
        r["key"], r["pos"], r["held"] = keys, self.pos, not isinstance(item, Drop)
        return r.tobytes()

    def finish(self) -> None:
        """Nothing lags behind."""

    def close(self) -> None:
        """The connection is closed."""
        self.connection.close()


def feed(cluster: Cluster, side: Runs | Rows, stream: Iterator[Batch], *, skip: int = 0, limit: float = 1e18) -> Cost:
    """The stream up to `limit` pairs, the first `skip` batches and the making of frames not counted."""
    cost = Cost()
    for _ in range(skip):
        side.take(next(stream)[1])
    side.finish()  # rows of what is not counted that lag behind belong to what is not counted
    before = cluster.lsn()
    for pairs, frames in stream:
        with cluster.measured(cost, wal=False):
            side.take(frames)
        cost.pairs += pairs
        if cost.pairs >= limit:
            break
    with cluster.measured(cost, wal=False):
        side.finish()
    cost.wal = cluster.lsn() - before
    return cost
