"""The log-in roles and the database, made by a superuser once: `python -m kvconsole.roles`.

Reads KVC_DB_HOST, KVC_DB_PORT, KVC_DB_NAME, KVC_DB_SUPERUSER, and the passwords of all of them, each also as
`<NAME>_FILE`. Running it again sets the passwords, and takes back what a database gives to everybody by itself
(temporary tables, above all: a process does not start where kv_tenant could make one).
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from kvconsole.settings import outside
from kvconsole.settings.env import Env

ROLES = ("migrate", "tenant", "operator", "ingest", "router", "seq", "audit")
ROLES_SQL = Path(__file__).resolve().parent / "sql" / "roles.sql"


def statements(passwords: Mapping[str, str]) -> str:
    """`roles.sql` with the password of every role in its place.

    Args:
        passwords: role (without `kv_`) → password.

    Raises:
        ValueError: a password is missing or cannot stand in a statement; nothing was done.
    """
    text = ROLES_SQL.read_text()
    for role in ROLES:
        password = passwords.get(role, "")
        if not password or re.search(r"['\\{}\s]", password):
            raise ValueError(f"the password of kv_{role} is empty, or holds a quote, brace, backslash or blank")
        text = text.replace(f"{{kv_{role}_password}}", password)
    return text


def make(env: Env) -> list[str]:
    """Roles and database exist as the environment says; returns what is wrong with it, then nothing was done."""
    name = env.text("KVC_DB_NAME", "kvconsole")
    host = env.text("KVC_DB_HOST", "127.0.0.1")
    server = {"host": host, "port": env.text("KVC_DB_PORT", "5432"), **outside.database(env, host)}
    user, password = env.text("KVC_DB_SUPERUSER", "postgres"), env.text("KVC_DB_SUPERUSER_PASSWORD", None)
    passwords = {role: env.text(f"KVC_DB_{role.upper()}_PASSWORD", None) for role in ROLES}
    if env.problems:
        return env.problems
    try:
        text = statements(passwords)
    except ValueError as e:
        return [str(e)]
    with psycopg.connect(make_conninfo("", **server, dbname="postgres", user=user, password=password)) as c:
        c.autocommit = True
        c.execute(text)
        if not c.execute("SELECT FROM pg_database WHERE datname = %s", (name,)).rowcount:
            c.execute(sql.SQL("CREATE DATABASE {} OWNER kv_owner TEMPLATE template0").format(sql.Identifier(name)))
    # Privileges are those of one database, so the script runs there too.
    with psycopg.connect(make_conninfo("", **server, dbname=name, user=user, password=password)) as c:
        c.execute(text)
    return []


def main() -> int:
    """The command line."""
    problems = make(Env())
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
