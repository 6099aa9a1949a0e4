"""Decides how the threads of a process share connections; Django loads it by the name of its package (`ENGINE`)."""

import select
from typing import Any

import psycopg
from django.db import NO_DB_ALIAS  # type: ignore[attr-defined]
from django.db.backends.postgresql import base
from psycopg_pool import ConnectionPool


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


class DatabaseWrapper(base.DatabaseWrapper):  # type: ignore[misc]
    """As Django's, but for the check of pooled connections."""

    @property
    def pool(self) -> ConnectionPool[Any] | None:
        """The pool that all threads share, made when it is first asked for; None where the settings name none."""
        options = self.settings_dict["OPTIONS"].get("pool")
        if self.alias == NO_DB_ALIAS or not options:
            return None
        pools: dict[str, ConnectionPool[Any]] = self._connection_pools
        if self.alias not in pools:
            arguments = self.get_connection_params() | {"autocommit": True}
            made: ConnectionPool[Any] = ConnectionPool(
                kwargs=arguments, open=False, configure=self._configure_connection, check=alive, **options
            )
            pools.setdefault(self.alias, made)
        return pools[self.alias]
