"""Decides who may work on a row now: a lease is three columns and one conditional UPDATE, nothing else.

The table has `lease_holder text`, `lease_until timestamptz` and `lease_token bigint`. The token grows with each taking:
whoever acts under a lease names it in the UPDATE that concludes, so a holder that was overtaken changes nothing.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connections
from psycopg import sql


@dataclass(frozen=True)
class Lease:
    """Leave to work on one row until `until`; `token` is the fence."""

    table: str
    column: str
    key: Any
    holder: str
    token: int
    until: datetime


def take(
    table: str, key: Any, *, holder: str, seconds: float, now: datetime, column: str = "id", using: str = "default"
) -> Lease | None:
    """The lease of the row, or None while somebody else's lasts (or the row is not there).

    Args:
        table: a table with the three lease columns.
        key: value of `column` in the row.
        holder: who takes it; the same holder takes it again with a new token.
        seconds: how long it lasts from `now`.
    """
    until = now + timedelta(seconds=seconds)
    statement = sql.SQL(
        "UPDATE {} SET lease_holder = %s, lease_until = %s, lease_token = lease_token + 1"
        " WHERE {} = %s AND (lease_until IS NULL OR lease_until <= %s OR lease_holder = %s) RETURNING lease_token"
    ).format(sql.Identifier(table), sql.Identifier(column))
    with connections[using].cursor() as cursor:
        cursor.execute(statement, (holder, until, key, now, holder))
        row = cursor.fetchone()
    return None if row is None else Lease(table, column, key, holder, row[0], until)


def renew(lease: Lease, *, seconds: float, now: datetime, using: str = "default") -> Lease | None:
    """The lease lasts from `now` again, or None: it was over and somebody else took it."""
    until = now + timedelta(seconds=seconds)
    statement = sql.SQL("UPDATE {} SET lease_until = %s WHERE {} = %s AND lease_token = %s RETURNING 1").format(
        sql.Identifier(lease.table), sql.Identifier(lease.column)
    )
    with connections[using].cursor() as cursor:
        cursor.execute(statement, (until, lease.key, lease.token))
        held = cursor.fetchone() is not None
    return Lease(lease.table, lease.column, lease.key, lease.holder, lease.token, until) if held else None


def release(lease: Lease, *, using: str = "default") -> bool:
    """Others may take the row now. False: it was no longer ours."""
    statement = sql.SQL("UPDATE {} SET lease_until = NULL WHERE {} = %s AND lease_token = %s RETURNING 1").format(
        sql.Identifier(lease.table), sql.Identifier(lease.column)
    )
    with connections[using].cursor() as cursor:
        cursor.execute(statement, (lease.key, lease.token))
        return cursor.fetchone() is not None
