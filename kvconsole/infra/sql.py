"""Decides how code reaches PostgreSQL beside the ORM, and what row-level security every table gets.

Called by migrations (`protect`, `audited`, `script`), by processes that hold a connection of their own (`connect`),
by whoever keeps SQL beyond a filter in `<package>/sql/queries.sql` (`named`), and at start-up (`boot_problems`).
"""

import os
import re
import time
import uuid
from functools import cache
from importlib import resources
from typing import LiteralString, cast

import psycopg
from django.conf import settings
from django.db import connections
from django.db.migrations.operations import RunSQL
from psycopg.conninfo import make_conninfo

from kvconsole.infra import outage

PLATFORM = uuid.UUID("00000000-0000-7000-8000-000000000001")
"""The tenant that owns what belongs to nobody else; its shared rows are readable by all tenants."""
FLEET_ROLES = ("operator", "ingest", "router", "seq", "audit")
CONTEXT = "NULLIF(current_setting('kv.tenant', true), '')::uuid"
"""The tenant of this transaction. After a local `set_config` the setting reads '', not NULL: hence NULLIF."""


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
    read = f"{tenant} IN ({CONTEXT}, '{PLATFORM}') AND {CONTEXT} IS NOT NULL"
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


_PRIVILEGED = """
SELECT CASE WHEN r.rolsuper THEN 'is a superuser' WHEN r.rolbypassrls THEN 'bypasses row-level security'
            ELSE 'is a member of the owner kv_owner' END
FROM pg_roles r WHERE r.rolname = current_user
  AND (r.rolsuper OR r.rolbypassrls OR pg_has_role(current_user, 'kv_owner', 'MEMBER'))
"""
_UNFORCED = """
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND (c.relname = 'tenants_tenant' OR EXISTS (
        SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped))
  AND NOT (c.relrowsecurity AND c.relforcerowsecurity AND EXISTS (
        SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND NOT p.polpermissive))
ORDER BY 1
"""


def boot_problems(alias: str = "default") -> list[str]:
    """Why a process must not serve on this connection: a privileged login role, or a tenant's table without FORCE RLS.

    Raises:
        django.db.OperationalError: PostgreSQL cannot be reached; nothing is known.
    """
    with connections[alias].cursor() as cursor:
        cursor.execute(_PRIVILEGED)
        problems = [f"the login role of {alias!r} {why}" for (why,) in cursor.fetchall()]
        cursor.execute(_UNFORCED)
        return problems + [f"table {name} has a tenant but no forced row-level security" for (name,) in cursor]
