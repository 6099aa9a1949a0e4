"""What the store's tests share: a database emptied before each test, a store over it, and steps in a few words.

A module that needs the database imports `module_database_` and `store_database_`; making one costs a second, emptying
it does not.
"""

import random
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from catalog.index.steps import Touched, Work
from catalog.store import Store
from kvconsole.embedded import Postgres
from tests.conftest import Database
from tests.copies import Copies

TABLES = ("segment", "placement", "holding", "owner", "source", "keyspace", "ledger", "reader")
FRESH = """UPDATE catalog_shard SET writer = 0, seq = 0, redo = 1, next_seg = 0, next_owner = 1, next_keyspace = 1,
    next_source = 1, wanted = 0"""

TENANT = uuid.UUID("00000000-0000-7000-8000-000000000001")
OTHER = uuid.UUID("00000000-0000-7000-8000-0000000000aa")
NODE = uuid.UUID("00000000-0000-7000-8000-0000000000bb")


@pytest.fixture(scope="module", name="module_database")
def module_database_(postgres: Postgres, copies: Copies) -> Iterator[Database]:
    """A migrated database of this module."""
    name = f"kvc_{uuid.uuid4().hex[:12]}"
    copies.make(name)
    yield Database(postgres, name)
    copies.drop(name)


@pytest.fixture(name="store_database")
def store_database_(module_database: Database) -> Database:
    """The module's database, the store's tables empty."""
    wipe(module_database.dsn("ingest"))
    return module_database


def wipe(dsn: str) -> None:
    """The store's tables are as after the migration; `dsn` is the writer's."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for table in TABLES:
            connection.execute(f"DELETE FROM catalog_{table}")  # type: ignore[call-overload]
        connection.execute(FRESH)


def chain(n: int, seed: int = 0) -> list[bytes]:
    """Keys of a chain."""
    rnd = random.Random(seed)
    return [rnd.randbytes(32) for _ in range(n)]


class Rig:
    """A store with one source and one keyspace; `now` stands until it is set."""

    def __init__(self, dsn: str, **options: Any) -> None:
        self.dsn, self.now = dsn, 1_800_000_000.0
        self.store = Store(dsn, **{"grace": 0, **options})
        first = Touched()
        self.source = self.store.memory.source(NODE, "engine", 0, first, self.now).id
        self.ks = self.store.memory.keyspace(bytes(32), 1, 0, first, tenant_id=TENANT, namespace_id=OTHER,
                                             block_tokens=16, block_bytes=1024).id  # fmt: skip
        self.store.commit(first, now=self.now)

    def step(self, kind: str, keys: list[bytes] | None = None, tier: str = "hbm", **more: Any) -> Work:
        more = {"source": self.source, "keyspace": self.ks, **more}
        return Work(kind, tier=tier, keys=b"".join(keys or []), **more)

    def do(self, *work: Work, flush: bool = True, **more: Any) -> Touched:
        touched = self.store.memory.apply(list(work))
        self.store.commit(touched, now=self.now, flush=flush, **more)
        return touched

    def rows(self, query: str, *args: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return connection.execute(query, args).fetchall()  # type: ignore[call-overload]

    def sweep(self) -> None:
        while self.store.idle(self.now):
            pass
