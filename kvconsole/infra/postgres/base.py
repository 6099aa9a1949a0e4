"""Decides how the threads of a process share connections; Django loads it by the name of its package (`ENGINE`)."""

import select
from typing import Any

import psycopg
from django.db.backends.base.base import NO_DB_ALIAS
from django.db.backends.postgresql import base
from django.db.backends.utils import debug_transaction
from psycopg_pool import ConnectionPool

from kvconsole.infra import ending


def alive(connection: psycopg.Connection[Any]) -> None:
    """Raises psycopg.OperationalError if the server has gone since the connection was used.

    A server that ends, or whose machine does so in good order, closes the socket, which can then be read. To ask the
    server itself, as Django's pools do, costs each request a round trip per connection. One that has gone without a
    word is noticed by neither before it is asked for something.
    """
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    if poll.poll(0):  # a farewell, or only news of a setting
        connection.execute("")


CLEAN = "RESET ALL; CLOSE ALL; DEALLOCATE ALL; UNLISTEN *; SELECT pg_advisory_unlock_all()"


def cleaned(connection: psycopg.Connection[Any]) -> None:
    """Nothing that was left in the session is there for whoever uses it next.

    All tenants are one role and share its connections: a prepared statement, a setting or an open cursor that somebody
    left behind would take part in another tenant's transaction. Run by the pool's own threads, between two uses.
    """
    connection.autocommit = True
    connection.execute(CLEAN)


class DatabaseWrapper(base.DatabaseWrapper):
    """As Django's, but for how pooled connections are checked, and that of a tenant's role are cleaned.

    What a transaction says last waits here (`infra.ending`) until the connection is used again or commits. All of it
    was said since the innermost savepoint was set, as to set one is a use.
    """

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._last: list[ending.Said] = []

    def says(self, said: ending.Said) -> None:
        """It goes ahead of the next statement, or together with the COMMIT; undone with the transaction it is in."""
        self._last.append(said)

    def flush(self) -> None:
        """What waited is written.

        Raises:
            django.db.Error: it cannot be; the transaction can only be undone.
        """
        if self._last:
            self._write(commit=False)

    def _write(self, *, commit: bool) -> None:
        last, self._last = self._last, []
        with self.wrap_database_errors:
            ending.write(self.connection, last, commit=commit)

    def _cursor(self, name: str | None = None) -> Any:
        self.flush()
        return super()._cursor(name)  # type: ignore[misc]

    def _commit(self) -> None:
        if not self._last:
            return super()._commit()  # type: ignore[misc,no-any-return]
        with debug_transaction(self, "COMMIT"):
            return self._write(commit=True)

    def _rollback(self) -> None:
        self._last = []
        super()._rollback()  # type: ignore[misc]

    def _savepoint_rollback(self, sid: str) -> None:
        self._last = []
        super()._savepoint_rollback(sid)  # type: ignore[misc]

    def _close(self) -> None:
        self._last = []
        super()._close()  # type: ignore[misc]

    @property
    def pool(self) -> ConnectionPool[Any] | None:
        """The pool that all threads share, made when it is first asked for; None where the settings name none."""
        options = self.settings_dict["OPTIONS"].get("pool")
        if self.alias == NO_DB_ALIAS or not options:
            return None
        pools: dict[str, ConnectionPool[Any]] = self._connection_pools  # type: ignore[attr-defined]
        if self.alias not in pools:
            arguments = self.get_connection_params() | {"autocommit": True}
            made: ConnectionPool[Any] = ConnectionPool(
                kwargs=arguments,
                open=False,
                configure=self._configure_connection,  # type: ignore[attr-defined]
                check=alive,
                reset=cleaned if self.settings_dict["USER"] == "kv_tenant" else None,
                **options,
            )
            pools.setdefault(self.alias, made)
        return pools[self.alias]
