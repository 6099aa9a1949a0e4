"""Decides how a query that is asked again and again is asked: its SQL is made once, its rows are tuples, not objects.

To make SQL of a QuerySet, and model objects of its rows, costs several times what PostgreSQL needs for a page. `fetch`
runs a statement in one round trip; `Rows` makes the statement from the same QuerySets that everybody else uses, so
that what may be seen is said in one place. Row-level security is the connection's matter, as ever.
"""

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, LiteralString, cast
from weakref import WeakKeyDictionary

import psycopg
from django.core.exceptions import EmptyResultSet
from django.db import connections
from django.db.models import Expression, Q, QuerySet
from psycopg.adapt import AdaptersMap
from psycopg.types.datetime import TimestamptzLoader
from psycopg.types.json import JsonbLoader

from kvconsole.infra.access import FLEET_PLANE, plane
from kvconsole.infra.ending import Insert, Said
from kvconsole.infra.postgres.base import DatabaseWrapper

Shape = tuple[tuple[str, Any], ...]
REMEMBERED = 512
"""Statements that are kept: per list, filters, direction and length of a page."""

_row_class: Callable[..., Any] = namedtuple


def fetch(query: LiteralString, values: Sequence[Any] = (), *, using: str = "") -> list[tuple[Any, ...]]:
    """The rows of a statement, in the plane's transaction. Times are in UTC, jsonb is what it stands for.

    On the fleet's connections it is prepared once; a tenant's are cleaned between two uses, so there it would be
    prepared for nothing.

    Args:
        query: with `%s` where the values go.
        values: bound by the server.
        using: alias of the connection, the current plane's where it is not said.
    """
    alias = using or plane()
    connection = _connection(alias)
    connection.flush()
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    with connection.wrap_database_errors:
        return _Reader(connection.connection).execute(query, values, prepare=alias == FLEET_PLANE).fetchall()


class _Reader(psycopg.Cursor[tuple[Any, ...]]):
    """A cursor that reads times and jsonb as psycopg does: Django's own ways are slower by far."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        super().__init__(connection)
        kept = _adapters.get(connection)
        if kept is None:
            kept = self.adapters
            kept.register_loader("timestamptz", TimestamptzLoader)
            kept.register_loader("jsonb", JsonbLoader)
            _adapters[connection] = kept
        self._adapters = kept


_adapters: WeakKeyDictionary[psycopg.Connection[Any], AdaptersMap] = WeakKeyDictionary()
"""What was registered for a connection once, as that takes as long as to read a row."""


def put(insert: Insert, values: Sequence[bytes | None], told: Callable[[list[int]], None], *, using: str) -> None:
    """The row is written before the connection does anything else, at the latest with the COMMIT; prepared as in
    `fetch`.

    Args:
        insert: the statement.
        values: in PostgreSQL's binary form.
        told: hears what the statement returned, once it is done.
        using: alias of the connection, which is in a transaction.

    Raises:
        TransactionManagementError: the transaction can only be undone.
    """
    connection = _connection(using)
    connection.validate_no_broken_transaction()
    connection.says(Said(insert, values, told, using == FLEET_PLANE))


def put_now(using: str) -> None:
    """What was `put` is written."""
    _connection(using).flush()


def _connection(using: str) -> DatabaseWrapper:
    return cast(DatabaseWrapper, connections[using])


class Given(Expression):
    """Stands in a QuerySet for a value that is bound when the statement is run."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        """A place for it, and itself as what has to be put there."""
        return "%s", (self,)


class Rows:
    """Rows of a QuerySet in the order of a key, whose statements are made once."""

    def __init__(
        self,
        queryset: Callable[..., QuerySet[Any]],
        *,
        columns: Sequence[str],
        key: Sequence[str],
        newest: bool = False,
        kept: bool = True,
    ) -> None:
        """What can be asked for.

        Args:
            queryset: what may be seen, by filters that are keywords. A filter that is None, a bool or "" decides what
                the statement is; any other may be an expression, and is bound each time.
            columns: what the rows have as attributes, as `values_list` takes them; those of the key are among them.
            key: columns it is ordered by; together unique.
            newest: from the greatest key on.
            kept: its statements are remembered; no use where nearly every question has a shape of its own.
        """
        self.queryset, self.columns, self.key = queryset, tuple(columns), tuple(key)
        self.newest, self.kept = newest, kept
        self._row = _row_class("Row", self.columns)

    def page(self, filters: Mapping[str, Any], *, limit: int, backwards: bool, behind: Sequence[Any]) -> list[Any]:
        """So many rows at most, in the order of the list or against it.

        Args:
            filters: as `queryset` takes them.
            limit: of rows.
            backwards: from the end.
            behind: values of the key; only rows behind them in this order. () = from the first.
        """
        shape = tuple((name, value if _decides(value) else Given) for name, value in sorted(filters.items()))
        made = _statement if self.kept else _statement.__wrapped__
        try:
            query, places = made(self, plane(), shape, limit, backwards != self.newest, bool(behind))
        except EmptyResultSet:  # the filters leave nothing, whatever the table holds
            return []
        bound = {**filters, **{f"key {i}": value for i, value in enumerate(behind)}}
        values = [bound[p.name] if isinstance(p, Given) else p for p in places]
        return [self._row(*row) for row in fetch(query, values)]


def _decides(value: Any) -> bool:
    return value is None or isinstance(value, bool) or value == ""


@lru_cache(REMEMBERED)
def _statement(
    rows: Rows, using: str, shape: Shape, limit: int, down: bool, behind: bool
) -> tuple[LiteralString, tuple[Any, ...]]:
    queryset = rows.queryset(**{name: Given(name) if value is Given else value for name, value in shape})
    if behind:
        values = [Given(f"key {i}") for i in range(len(rows.key))]
        queryset = queryset.filter(beyond(rows.key, values, "lt" if down else "gt"))
    queryset = queryset.order_by(*(f"-{k}" if down else k for k in rows.key)).values_list(*rows.columns)
    query, values = queryset[:limit].query.get_compiler(using).as_sql()
    return cast(LiteralString, query), tuple(values)


def beyond(key: Sequence[str], values: Sequence[Any], op: str) -> Q:
    """Rows behind these values. That the first field is not before is said by itself: an index takes up from there."""
    found = Q()
    for i, name in enumerate(key):
        found |= Q(**dict(zip(key[:i], values[:i], strict=True)), **{f"{name}__{op}": values[i]})
    return found if len(key) == 1 else Q(**{f"{key[0]}__{op}e": values[0]}) & found
