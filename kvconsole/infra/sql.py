"""Decides how code reaches PostgreSQL beside the ORM, and what row-level security every table gets.

Called by migrations (`protect`, `tenant_keys`, `audited`, `script`), by processes that hold a connection of their own
(`connect`), and by whoever keeps SQL beyond a filter in `<package>/sql/queries.sql` (`named`).
"""

import hmac
import os
import re
import time
import uuid
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any, LiteralString, cast

import psycopg
from django.conf import settings
from django.db.migrations.operations import RunSQL
from psycopg.conninfo import make_conninfo

from kvconsole.infra import outage

PLATFORM = uuid.UUID("00000000-0000-7000-8000-000000000001")
"""The tenant that owns what belongs to nobody else; its shared rows are readable by all tenants."""
SEALERS = ("operator", "router")
"""Roles of processes that act for tenants."""
FLEET_ROLES = ("operator", "ingest", "router", "seq", "audit")
CONTEXT = "(SELECT (tenant_readable())[1])"
"""The tenant of this transaction, as `kvconsole/sql/seal.sql` verifies it; asked once a query, not once a row."""
READABLE = "ANY ((SELECT tenant_readable())::uuid[])"


def uuid7() -> uuid.UUID:
    """A new UUIDv7: milliseconds since 1970, then 74 random bits. Source: RFC 9562 section 5.7."""
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    return uuid.UUID(int=value & ~(0x3 << 62) | 0x2 << 62)


def dsn(role: str, **overrides: str) -> str:
    """The connection string of the login role `kv_<role>`, as the settings name it."""
    parts = {
        "host": settings.DB_HOST,
        "port": settings.DB_PORT,
        "dbname": settings.DB_NAME,
        "user": f"kv_{role}",
        "password": settings.DB_PASSWORDS[role],
        "application_name": f"kvc-{role}",
        "connect_timeout": "5",
        **settings.DB_SSL,
    }
    return make_conninfo("", **{**parts, **overrides})


def connect(role: str, *, autocommit: bool = True) -> psycopg.Connection:
    """A new connection as `kv_<role>`, outside Django's; the caller closes it."""
    connection = psycopg.connect(dsn(role), autocommit=autocommit)
    outage.connected()
    return connection


@cache
def named(package: str, file: str = "queries.sql") -> dict[str, LiteralString]:
    """The statements of `<package>/sql/<file>`, by the name in their `-- name: x` header."""
    text = resources.files(package).joinpath("sql", file).read_text()
    parts = re.split(r"^-- name: *(\w+).*$", text, flags=re.MULTILINE)
    return {name: cast(LiteralString, body.strip()) for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def script(package: str, name: str) -> RunSQL:
    """A migration step that runs the file `<package>/sql/<name>`."""
    return RunSQL(resources.files(package).joinpath("sql", name).read_text(), RunSQL.noop)


def protect(
    table: str,
    *,
    tenant: str | None = "tenant_id",
    tenant_may: str = "",
    shared: bool = False,
    operator: str = "",
    ingest: str = "",
    router: str = "",
    seq: str = "",
    audit: str = "",
) -> list[RunSQL]:
    """The table is reachable as far as said here and no further; where it has a tenant, under FORCE RLS.

    For `kv_tenant` a permissive policy opens the table and a RESTRICTIVE one narrows it to the tenant of the
    transaction: a permissive policy that somebody adds later cannot widen it. The owner has a policy of its own, as
    FORCE holds for it too.

    Args:
        table: name of the table, as in the database.
        tenant: its column that names the tenant; None = it has none, and is then never granted to `kv_tenant`.
        tenant_may: privileges of `kv_tenant`, as in GRANT ("SELECT, INSERT, UPDATE (label)"); "" = none.
        shared: rows of the platform tenant can be read (never written) by every tenant.
        operator, ingest, router, seq, audit: privileges of the fleet's roles, over all tenants.

    Raises:
        ValueError: `tenant_may` for a table without a tenant.
    """
    grants = dict(zip(FLEET_ROLES, (operator, ingest, router, seq, audit), strict=True))
    lines = [f"REVOKE ALL ON {table} FROM PUBLIC"]
    lines += [f"GRANT {may} ON {table} TO kv_{role}" for role, may in grants.items() if may]
    if tenant is None:
        if tenant_may:
            raise ValueError(f"{table} has no tenant, so kv_tenant gets nothing of it")
    else:
        lines += _policies(table, tenant, shared, [role for role, may in grants.items() if may])
        if tenant_may:
            lines.append(f"GRANT {tenant_may} ON {table} TO kv_tenant")
    return [RunSQL(";\n".join(lines) + ";", RunSQL.noop)]


def _policies(table: str, tenant: str, shared: bool, roles: list[str]) -> list[str]:
    own = f"{tenant} = {CONTEXT}"
    lines = [f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY", f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY"]
    lines += [
        f"CREATE POLICY {role} ON {table} TO kv_{role} USING (true) WITH CHECK (true)"
        for role in ("owner", *roles, "tenant")
    ]
    if not shared:
        return [*lines, f"CREATE POLICY own ON {table} AS RESTRICTIVE TO kv_tenant USING ({own}) WITH CHECK ({own})"]
    read = f"{tenant} = {READABLE}"
    restrictive = f"ON {table} AS RESTRICTIVE"
    return [
        *lines,
        f"CREATE POLICY own_or_shared {restrictive} FOR SELECT TO kv_tenant USING ({read})",
        f"CREATE POLICY own_insert {restrictive} FOR INSERT TO kv_tenant WITH CHECK ({own})",
        f"CREATE POLICY own_update {restrictive} FOR UPDATE TO kv_tenant USING ({own}) WITH CHECK ({own})",
        f"CREATE POLICY own_delete {restrictive} FOR DELETE TO kv_tenant USING ({own})",
    ]


def audited(table: str, when: str = "INSERT OR UPDATE OR DELETE") -> RunSQL:
    """A transaction that changes the table so cannot commit without an audit event of its own.

    Args:
        table: name of the table.
        when: the events of the trigger, e.g. "INSERT OR UPDATE OF state".
    """
    return RunSQL(
        f"CREATE CONSTRAINT TRIGGER audited AFTER {when} ON {table} DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION audit_required();",
        f"DROP TRIGGER audited ON {table};",
    )


def tenant_keys(
    table: str, *, tenant: str = "tenant_id", also_shared: Sequence[str] = (), **parents: tuple[str, str]
) -> list[RunSQL]:
    """The table's primary key and foreign keys begin with the tenant: no check of one tells of another tenant's rows.

    Ids alone stay indexed for the fleet. Django's own fields to the parents have `db_constraint=False`.

    Args:
        table: name of the table; its primary key so far is `id`.
        tenant: its column that names the tenant.
        also_shared: names of parents that may belong to the platform instead; a column `<name>_tenant_id`, which a
            trigger fills, says whose they are.
        parents: name → (column, table of the parent).
    """
    lines = [
        f"ALTER TABLE {table} DROP CONSTRAINT {table}_pkey",
        f"ALTER TABLE {table} ADD CONSTRAINT {table}_pkey PRIMARY KEY ({tenant}, id)",
        f"CREATE INDEX {table}_by_id ON {table} (id)",
    ]
    for name, (column, parent) in parents.items():
        lines += parent_key(table, name, column, parent, tenant, shared=name in also_shared)
    return [RunSQL(";\n".join(lines) + ";", RunSQL.noop)]


def parent_key(
    table: str, name: str, column: str, parent: str, tenant: str = "tenant_id", *, shared: bool = False,
    parents_tenant: str = "tenant_id",
) -> list[str]:  # fmt: skip
    """Statements of one foreign key that begins with the tenant; see `tenant_keys`."""
    owner, lines = tenant, []
    if shared:
        owner = f"{name}_tenant_id"
        lines = [
            f"ALTER TABLE {table} ADD COLUMN {owner} uuid",
            f"UPDATE {table} SET {owner} = p.{parents_tenant} FROM {parent} p WHERE p.id = {column}",  # noqa: S608
            f"ALTER TABLE {table} ADD CONSTRAINT {table}_{name}_tenant CHECK"
            f" (({column} IS NULL) = ({owner} IS NULL) AND {owner} IN ({tenant}, '{PLATFORM}'))",
            f"CREATE TRIGGER {name}_tenant BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW"
            f" EXECUTE FUNCTION tenant_of_parent('{column}', '{owner}', '{parent}', '{parents_tenant}')",
        ]
    return [
        *lines,
        f"ALTER TABLE {table} ADD CONSTRAINT {table}_{name}_fk FOREIGN KEY ({owner}, {column})"
        f" REFERENCES {parent} ({parents_tenant}, id) DEFERRABLE INITIALLY DEFERRED",
        f"CREATE INDEX {table}_by_{name} ON {table} ({owner}, {column})",
    ]


# --- the tenant of a transaction -------------------------------------------------------

SEAL_SECONDS = 600
"""The key and the difference of the clocks are asked again after this long."""
_seals: dict[tuple[str, int, str], tuple[float, bytes, float]] = {}


def enter(connection: psycopg.Connection[Any], tenant_id: uuid.UUID | None) -> None:
    """Until the end of the transaction (or savepoint) the database shows this tenant's rows; None = no rows.

    The value goes as a bound parameter, so that it is in no text of a query that others could see.

    Args:
        connection: as kv_tenant, in a transaction, to PostgreSQL itself: the seal is bound to its backend.
        tenant_id: of the tenant.
    """
    said = ""
    if tenant_id is not None:
        key, ahead = _seal(connection.info.host, connection.info.port, connection.info.dbname)
        said = f"{tenant_id}:{int((time.time() + ahead) * 1000):016d}:"
        said += hmac.digest(key, f"{said}{connection.info.backend_pid}".encode(), "sha256").hex()
    psycopg.Cursor(connection).execute("SELECT set_config('kv.context', %s, true)", (said,))


def _seal(host: str, port: int, name: str) -> tuple[bytes, float]:
    """The key, and by how much the database's clock is ahead; asked over the process's own role."""
    now, place = time.monotonic(), (host, port, name)
    asked, key, ahead = _seals.get(place, (-SEAL_SECONDS, b"", 0.0))
    if now - asked >= SEAL_SECONDS:
        role = settings.DB_ROLE if settings.DB_ROLE in SEALERS else "operator"
        with psycopg.connect(dsn(role, host=host, port=str(port), dbname=name)) as c:
            row = c.execute("SELECT key, extract(epoch FROM clock_timestamp())::float8 FROM tenant_seal").fetchone()
        if row is None:
            raise psycopg.DataError("the database has no key for tenants")
        key, ahead = bytes(row[0]), row[1] - time.time()
        _seals[place] = (now, key, ahead)
    return key, ahead
