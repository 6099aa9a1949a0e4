"""A database of the store's tests: made once a module, emptied before each test, since making one costs a second."""

import uuid
from collections.abc import Iterator

import psycopg
import pytest

from kvconsole.embedded import Postgres
from tests.conftest import Database
from tests.copies import Copies

TABLES = ("segment", "placement", "holding", "owner", "source", "keyspace", "ledger", "reader")
FRESH = """UPDATE catalog_shard SET writer = 0, seq = 0, redo = 1, next_seg = 0, next_owner = 1, next_keyspace = 1,
    next_source = 1, wanted = 0"""


@pytest.fixture(scope="module")
def module_database(postgres: Postgres, copies: Copies) -> Iterator[Database]:
    """A migrated database of this module."""
    name = f"kvc_{uuid.uuid4().hex[:12]}"
    copies.make(name)
    yield Database(postgres, name)
    copies.drop(name)


def wipe(dsn: str) -> None:
    """The store's tables are as after the migration; `dsn` is the writer's."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for table in TABLES:
            connection.execute(f"DELETE FROM catalog_{table}")  # type: ignore[call-overload]
        connection.execute(FRESH)


@pytest.fixture
def store_database(module_database: Database) -> Database:
    """The module's database, the store's tables empty."""
    wipe(module_database.dsn("ingest"))
    return module_database
