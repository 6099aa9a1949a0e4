"""Rows of two tenants in every table that has a tenant, made from the catalog: new tables are covered by themselves."""

import re
import secrets
import uuid

import psycopg
from psycopg.types.json import Jsonb

TABLES = """
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND a.attname = 'tenant_id'
ORDER BY 1
"""
COLUMNS = """
SELECT a.attname, format_type(a.atttypid, NULL), a.atttypmod - 4 FROM pg_attribute a
WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
  AND a.attidentity = '' AND (a.attnotnull OR a.attname = 'tenant_id') AND NOT a.atthasdef
"""
CHECKS = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %s::regclass AND contype = 'c'"
SPECIAL = {
    "audit_event": {"actor_ref": bytes(16), "outcome": 1, "flags": 0, "body": b"{}"},
    "catalog_operation": {"generation": 2, "observed_generation": 1},
    "routing_decision": {"slot": 0},
    "routing_losthit": {"available_tokens": 3, "achieved_tokens": 3},
    "catalog_pin": {"until": "2026-09-02T00:00:00Z"},
}
"""What no rule below can guess."""


def tables(c):
    """Names of the tables with a tenant."""
    return [name for (name,) in c.execute(TABLES)]


def value(kind, length):
    """A value of a type, different each time; `length` bounds text, below 1 it has no bound."""
    number = secrets.randbelow(2**15 - 2) + 1
    made = {
        "uuid": uuid.uuid4(), "bytea": secrets.token_bytes(32), "jsonb": Jsonb({}), "boolean": True,
        "timestamp with time zone": "2026-09-01T00:00:00Z", "date": "2026-09-01", "double precision": 1.0,
    }  # fmt: skip
    if kind.endswith("[]"):
        return []
    if kind in ("smallint", "integer", "bigint", "real", "numeric"):
        return number
    return made.get(kind, secrets.token_hex(8)[: length if length > 0 else 16])


def words(c, table):
    """Column → a word that the table's checks allow."""
    found = {}
    for (text,) in c.execute(CHECKS, (table,)):
        for column, word in re.findall(r"\(*(\w+)\)*(?:::text)? = ANY \(+(?:\()?ARRAY\['([^']+)'", text):
            found[column] = word
        for column, size in re.findall(r"octet_length\((\w+)\) = (\d+)", text):
            found[column] = secrets.token_bytes(int(size))
    return found


def owned(c, table):
    """The parents of which the table says whose they are."""
    sql = "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attname LIKE '%%\\_tenant_id'"
    return [name.removesuffix("_tenant_id") for (name,) in c.execute(sql, (table,))]


def fill(dsn, tenants):
    """One row of each tenant in each table; triggers and foreign keys rest meanwhile."""
    with psycopg.connect(dsn) as c:
        c.execute("SET session_replication_role = replica")
        for tenant in tenants:
            slug = tenant.hex
            c.execute(
                "INSERT INTO tenants_tenant (id, slug, lookalike, name, residency, isolation, classes, erasure_scope,"
                " retention, state, created_at)"
                " VALUES (%s, %s, %s, 'T', '', 'shared', '{}', 'label', '{}', 'active', now())",
                (tenant, slug, slug),
            )
        for table in tables(c):
            columns = {name: of for name, *of in c.execute(COLUMNS, (table,))}
            for tenant in tenants:
                row = {name: value(*of) for name, of in columns.items()}
                row |= {k: v for k, v in words(c, table).items() if k in row} | SPECIAL.get(table, {})
                row["tenant_id"] = tenant
                row |= {f"{n}_tenant_id": tenant for n in owned(c, table) if f"{n}_id" in row}
                if table == "audit_event":
                    row["body_hash"] = c.execute(
                        r"SELECT sha256('\x6b76636f6e736f6c652f61756469742d626f64792f763100'::bytea || %s)",
                        (row["body"],),
                    ).fetchone()[0]
                    row["pii_ct"] = row["pii_key"] = None
                    row["tenant_ref"] = tenant.bytes  # a trigger that never rests remembers it in audit_tenantref
                places = ", ".join(["%s"] * len(row))
                names_ = ", ".join(f'"{name}"' for name in row)
                c.execute(
                    f"INSERT INTO {table} ({names_}) VALUES ({places}) ON CONFLICT DO NOTHING", list(row.values())
                )
