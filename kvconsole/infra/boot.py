"""Decides what of the database a process must not serve on: privileged roles, and tables that could tell of others.

Asked at start-up of PostgreSQL itself, so that it holds whoever made the tables.
"""

from django.db import connections

from kvconsole.infra import sql

DEFINERS = frozenset({"tenant_readable", "tenant_sees", "audit_indexes"})
"""The functions with their owner's rights that the tenant's role may call; the look-up is not among them."""
ABOUT_TABLES = (
    ("unforced", "table {} has a tenant but no forced row-level security"),
    ("unsealed", "table {} is open to kv_tenant without a policy on the sealed tenant"),
    ("open", "{} is open to kv_tenant and no policy narrows it"),
    ("oracles", "key {} does not begin with the tenant and kv_tenant can provoke its check"),
    ("unpinned", "function {} has no search_path of its own, which is pg_catalog, pg_temp"),
)


def boot_problems(alias: str = "default") -> list[str]:
    """Why a process must not serve on this connection.

    Raises:
        django.db.OperationalError: PostgreSQL cannot be reached; nothing is known.
    """
    ask = sql.named("kvconsole", "boot.sql")
    with connections[alias].cursor() as cursor:
        cursor.execute(ask["privileged"])
        problems = [f"the login role of {alias!r} {why}" for (why,) in cursor.fetchall()]
        cursor.execute(ask["tenant_role"])
        problems += [f"kv_tenant {why}" for (why,) in cursor.fetchall()]
        for name, words in ABOUT_TABLES:
            cursor.execute(ask[name])
            problems += [words.format(found) for (found,) in cursor.fetchall()]
        cursor.execute(ask["definers"])
        more = [name for (name,) in cursor.fetchall() if name not in DEFINERS]
        return problems + [f"kv_tenant may call {name}, which has its owner's rights" for name in more]
