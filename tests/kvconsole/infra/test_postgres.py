"""Connections that threads share: looked at without asking, and replaced when their server has gone."""

import time

import psycopg
import pytest
from django.db import connections
from django.db.utils import OperationalError

from kvconsole.embedded import Postgres
from kvconsole.infra.postgres.base import DatabaseWrapper, alive

pytestmark = pytest.mark.django_db


class Silent:
    """A connection that must not be asked."""

    def __init__(self, connection):
        self.fileno = connection.fileno

    def execute(self, text):
        raise AssertionError(text)


class Apart(DatabaseWrapper):
    """Shares no pool with the connections of this process."""

    _connection_pools = {}


def end(postgres: Postgres, *pids: int) -> None:
    """The server has ended these connections."""
    with psycopg.connect(postgres.superuser_dsn("postgres"), autocommit=True) as c:
        c.execute("SELECT pg_terminate_backend(pid, 5000) FROM unnest(%s::int[]) pid", (list(pids),))


def test_a_connection_that_was_ended_is_noticed_and_a_good_one_is_not_asked(postgres: Postgres) -> None:
    with psycopg.connect(postgres.superuser_dsn("postgres"), autocommit=True) as c:
        alive(Silent(c))
        c.execute("SELECT 1")
        alive(Silent(c))
        end(postgres, c.info.backend_pid)
        with pytest.raises(psycopg.OperationalError):
            alive(c)


def test_news_that_came_meanwhile_are_no_end(postgres: Postgres) -> None:
    dsn = postgres.superuser_dsn("postgres")
    with psycopg.connect(dsn, autocommit=True) as c, psycopg.connect(dsn, autocommit=True) as other:
        c.execute("LISTEN news")
        other.execute("NOTIFY news")
        time.sleep(0.1)
        alive(c)
        assert c.execute("SELECT 1").fetchone() == (1,)


@pytest.fixture
def pooled(django_db_setup):
    """Django's connection of the operator, over a pool of its own."""
    known = connections["default"].settings_dict
    options = {**known["OPTIONS"], "pool": {"min_size": 1, "max_size": 1, "timeout": 5}}
    made = Apart({**known, "OPTIONS": options, "CONN_MAX_AGE": 0}, alias="default")
    yield made
    made.close()
    made.close_pool()


def backend(wrapper: DatabaseWrapper) -> int:
    with wrapper.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def test_a_pooled_connection_is_used_again_and_replaced_after_its_end(pooled, postgres: Postgres) -> None:
    first = backend(pooled)
    pooled.close()
    assert backend(pooled) == first
    pooled.close()
    end(postgres, first)
    assert backend(pooled) != first
    with pytest.raises(OperationalError):
        end(postgres, backend(pooled)), backend(pooled)  # within a request nothing is repeated


LEFT = (
    "PREPARE _pg3_0 AS SELECT 'from another tenant'", "SET search_path = information_schema",
    "SET statement_timeout = 9999", "SET kv.context = 'x'", "DECLARE c CURSOR WITH HOLD FOR SELECT 1", "LISTEN news",
)  # fmt: skip


@pytest.mark.django_db(databases=["default", "tenant"])
def test_what_a_tenant_left_in_a_session_is_gone_for_the_next() -> None:
    known = connections["tenant"].settings_dict
    options = {**known["OPTIONS"], "pool": {"min_size": 1, "max_size": 1, "timeout": 5}}
    pooled = Apart({**known, "OPTIONS": options, "CONN_MAX_AGE": 0}, alias="tenant")
    try:
        with pooled.cursor() as cursor:
            before = settings_of(cursor)
            for statement in LEFT:
                cursor.execute(statement)
        pooled.close()
        with pooled.cursor() as cursor:
            assert settings_of(cursor) == before
            for left in ("pg_prepared_statements", "pg_cursors WHERE is_holdable", "pg_listening_channels() x (x)"):
                cursor.execute(f"SELECT count(*) FROM {left}")
                assert cursor.fetchone() == (0,), left
    finally:
        pooled.close()
        pooled.close_pool()


def settings_of(cursor):
    """What the session is set to, and whose it is."""
    cursor.execute(
        "SELECT pg_backend_pid(), current_setting('search_path'), current_setting('statement_timeout'),"
        " coalesce(current_setting('kv.context', true), ''), current_setting('timezone')"
    )
    return cursor.fetchone()
