"""Decides how the last statements of a transaction travel: together with its COMMIT, in one round trip.

What is said last in nearly every transaction is its audit event. To wait for the answer to it before COMMIT is said
costs each transaction as much as to write the event. So it is kept until the connection is used for anything else, or
the transaction ends: then it goes ahead of that. If it fails, PostgreSQL passes over the COMMIT behind it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg import generators
from psycopg.abc import PQGen
from psycopg.pq import ConnStatus, ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGresult


class Insert(NamedTuple):
    """A statement that inserts one row and returns whole numbers of it."""

    name: bytes
    """Under which it is prepared; no two statements have the same."""
    query: bytes
    """With $1 … where the values go."""
    types: tuple[int, ...]
    """oid of each value."""


class Said(NamedTuple):
    """One that is on its way."""

    insert: Insert
    values: Sequence[bytes | None]
    """In PostgreSQL's binary form."""
    told: Callable[[list[int]], None]
    """Hears what it returned."""
    prepared: bool
    """Whether the session keeps it, for the next one."""


_BINARY = 32 * (Format.BINARY,)


def write(connection: psycopg.Connection[Any], waiting: Sequence[Said], *, commit: bool) -> None:
    """All of them are written, in this order, and with `commit` the transaction has ended well.

    Raises:
        psycopg.Error: the first of them that failed; nothing behind it was done.
    """
    pgconn = connection.pgconn
    with connection.lock:
        begins = pgconn.transaction_status == TransactionStatus.IDLE and not connection.autocommit
        for said in waiting:
            if said.prepared:
                _prepare(connection, said.insert)
        pgconn.enter_pipeline_mode()
        try:
            if begins:
                pgconn.send_query_params(b"BEGIN", None)
            for said in waiting:
                values, forms = said.values, _BINARY[: len(said.values)]
                if said.prepared:
                    pgconn.send_query_prepared(said.insert.name, values, forms, Format.BINARY)
                else:
                    pgconn.send_query_params(said.insert.query, values, said.insert.types, forms, Format.BINARY)
            if commit:
                pgconn.send_query_params(b"COMMIT", None)
            pgconn.pipeline_sync()
            answers = connection.wait(_answers(connection))
            pgconn.exit_pipeline_mode()
        except psycopg.DatabaseError as e:
            connection.close()
            raise psycopg.OperationalError(str(e)) from e  # of an answer nothing is raised: the server has gone
        except BaseException:
            connection.close()  # what comes now would be taken for the answer to something else
            raise
    for answer in answers:
        if answer.status == ExecStatus.FATAL_ERROR:
            raise _why(connection, answer)
    for said, answer in zip(waiting, answers[begins:], strict=False):
        said.told([int.from_bytes(answer.get_value(0, at) or b"", signed=True) for at in range(answer.nfields)])


def _prepare(connection: psycopg.Connection[Any], insert: Insert) -> None:
    """The session knows the statement.

    psycopg keeps account of what is prepared, and has all of it forgotten after a ROLLBACK, so this is in its account.
    """
    known, key = connection._prepared._names, (insert.query, insert.types)
    if key not in known:
        answer = connection.pgconn.prepare(insert.name, insert.query, insert.types)
        if answer.status != ExecStatus.COMMAND_OK:
            raise _why(connection, answer)
        known[key] = insert.name


def _why(connection: psycopg.Connection[Any], answer: PGresult) -> psycopg.Error:
    """The error of a statement; of one that found no server it has no code."""
    if connection.pgconn.status == ConnStatus.BAD:
        return psycopg.OperationalError(answer.get_error_message(connection.info.encoding))
    return psycopg.errors.error_from_result(answer, connection.info.encoding)


def _answers(connection: psycopg.Connection[Any]) -> PQGen[list[PGresult]]:
    """The answers to all statements of a pipeline."""
    pgconn = connection.pgconn
    yield from generators.send(pgconn)
    found: list[PGresult] = []
    while True:
        answer = yield from generators.fetch(pgconn)
        if answer is None:
            continue
        if answer.status == ExecStatus.PIPELINE_SYNC:
            return found
        found.append(answer)


def numbered(query: str) -> bytes:
    """The statement with $1 … instead of %s."""
    parts: Iterator[str] = iter(query.split("%s"))
    return (next(parts) + "".join(f"${at}{part}" for at, part in enumerate(parts, 1))).encode()
