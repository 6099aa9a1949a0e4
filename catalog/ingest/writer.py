"""Decides who writes the shard: whoever holds its session lock, fenced once more by the store in every transaction.

The lock only keeps a second process waiting; what keeps it honest is `shard.writer`. Called by `pipeline`.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import psycopg

from catalog.ingest.folding import Folder
from catalog.ingest.nodes import NodeBook
from catalog.ingest.pictures import Pictures
from catalog.ingest.registry import Registry
from catalog.store import Store
from kvconsole.infra import outage

LOCK_CLASS = 0x4B5643  # "KVC"


class Lock:
    """The session lock of one shard on a connection of its own; it ends with the process, however that ends."""

    def __init__(self, dsn: str, shard: int) -> None:
        self.dsn, self.shard = dsn, shard
        self.connection: psycopg.Connection | None = None

    def acquire(self) -> bool:
        """Whether the lock is held now. Asking again while it is held keeps it and checks the connection.

        Raises:
            psycopg.OperationalError: the database is away; nobody can hold the lock through it either.
        """
        if self.connection is not None:
            try:
                self.connection.execute("SELECT 1")
                return True
            except psycopg.OperationalError:
                self.release()
        connection = psycopg.connect(self.dsn, autocommit=True, connect_timeout=3)
        outage.connected()
        with contextlib.ExitStack() as stack:
            stack.callback(connection.close)
            connection.execute(
                "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 2"
            )
            row = connection.execute("SELECT pg_try_advisory_lock(%s, %s)", (LOCK_CLASS, self.shard)).fetchone()
            if row is None or not row[0]:
                return False
            stack.pop_all()
        self.connection = connection
        return True

    def release(self) -> None:
        """The lock is not held by this process."""
        if self.connection is not None:
            with contextlib.suppress(psycopg.Error):
                self.connection.close()
            self.connection = None


@dataclass(slots=True)
class Writer:
    """The store of a shard with everything that folds into it."""

    store: Store
    folder: Folder
    registry: Registry
    nodes: NodeBook

    def close(self) -> None:
        """The store's connection is closed; nothing more is written."""
        self.store.close()


def open_writer(dsn: str, shard: int, *, defer: float, now: float, url: str = "") -> Writer:
    """The shard is fenced for this process, its memory loaded, and its sources as the last writer left them.

    Raises:
        psycopg.Error, django.db.Error: the database is away or not migrated.
    """
    store = Store(dsn, shard, defer, url=url)
    try:
        pictures = Pictures(shard)
        with psycopg.connect(dsn, autocommit=True) as connection:
            pictures.restore(connection, datetime.fromtimestamp(now, UTC))
        registry, nodes = Registry(), NodeBook(started=now)
        nodes.refresh(now)
        registry.refresh(now)
        folder = Folder(store, registry, nodes, pictures, now=now)
        pictures.resident(_contents(store))
    except BaseException:
        store.close()
        raise
    return Writer(store, folder, registry, nodes)


def _contents(store: Store) -> Iterator[tuple[int, str, int, int, int]]:
    """(source, tier, keyspace, family, blocks) of everything that was loaded."""
    m = store.memory
    for owner, segment, mask in m.live():
        at = m.owners[owner]
        yield at.source, at.tier, int(m.seg_ks[segment]), int(m.seg_fam[segment]), mask.bit_count()
