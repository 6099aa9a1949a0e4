"""Binary arrays as PostgreSQL reads them."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from catalog import store_rows
from tests.catalog.stored import module_database_, store_database_

__all__ = ["module_database_", "store_database_"]


@pytest.fixture
def ask(store_database: Any) -> Iterator[Any]:
    with psycopg.connect(store_database.dsn("ingest"), autocommit=True) as connection:
        store_rows.register(connection)
        yield lambda kind, array: connection.execute(f"SELECT %b::{kind}[]", (array,)).fetchone()[0]


@pytest.mark.parametrize("kind", ["int2", "int4", "int8"])
def test_integers(ask: Any, kind: str) -> None:
    most = 2 ** (8 * int(kind[3:]) - 1)
    assert ask(kind, store_rows.ints(kind, [0, -1, 7, most - 1, -most])) == [0, -1, 7, most - 1, -most]
    assert ask(kind, store_rows.ints(kind, [])) == []


def test_values_and_nulls(ask: Any) -> None:
    assert ask("bytea", store_rows.values("bytea", [b"", None, b"\0\xff" * 900])) == [b"", None, b"\0\xff" * 900]
    assert ask("bytea", store_rows.values("bytea", [None])) == [None]
    u = uuid.uuid4()
    assert ask("uuid", store_rows.values("uuid", [u.bytes, None])) == [u, None]
    assert ask("text", store_rows._texts(["", "ä'\\", "null"])) == ["", "ä'\\", "null"]
    assert ask("bool", store_rows._bools([True, False])) == [True, False]


def test_times(ask: Any) -> None:
    when = datetime(2026, 11, 29, 21, 0, 0, 250_000, UTC)
    got = ask("timestamptz", store_rows.times([when.timestamp(), None, 0.25]))
    assert got == [when, None, datetime(1970, 1, 1, 0, 0, 0, 250_000, UTC)]
    assert ask("timestamptz[]::text", store_rows.times([store_rows.NEVER])) == ["-infinity"]


def test_every_statement_says_what_it_is_for() -> None:
    for file in ("store.sql", "store_reads.sql"):
        for name, body in store_rows.named("catalog", file).items():
            assert body.startswith("-- "), name
