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
    options = {**known["OPTIONS"], "pool": {"min_size": 1, "max_size": 2, "timeout": 2}}
    made = DatabaseWrapper({**known, "OPTIONS": options, "CONN_MAX_AGE": 0}, alias="pooled")
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
