"""Copies of the migrated database, made while a test runs: a copy costs 0.3 s, and hundreds of tests need one."""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count

import psycopg
from psycopg import sql

from kvconsole.embedded import Postgres

AHEAD = 2


class Copies:
    """Databases that are copies of the template. Nobody may be connected to the template meanwhile."""

    def __init__(self, postgres: Postgres, template: str) -> None:
        self.postgres, self.template = postgres, template
        self._work = ThreadPoolExecutor(1, thread_name_prefix="copies")
        self._numbers = count()
        self._ready: deque[Future[str]] = deque()
        self._ahead()

    def make(self, name: str) -> None:
        """There is a copy of this name."""
        spare = self._ready.popleft().result()
        self._ahead()
        self._rename(spare, name)

    def drop(self, name: str) -> None:
        """The database is out of the way now, whoever was connected, and gone soon."""
        dying = f"kvc_dying_{next(self._numbers)}"
        with psycopg.connect(self.postgres.superuser_dsn(), autocommit=True) as c:
            c.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", (name,))
        self._rename(name, dying)
        self._work.submit(self.postgres.drop_database, dying)

    def close(self) -> None:
        """Nothing is made any more."""
        self._work.shutdown(cancel_futures=True)

    def _ahead(self) -> None:
        while len(self._ready) < AHEAD:
            self._ready.append(self._work.submit(self._copy, f"kvc_spare_{next(self._numbers)}"))

    def _copy(self, name: str) -> str:
        self.postgres.create_database(name, self.template)
        return name

    def _rename(self, old: str, new: str) -> None:
        with psycopg.connect(self.postgres.superuser_dsn(), autocommit=True) as c:
            c.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(sql.Identifier(old), sql.Identifier(new)))
