"""Puts a test's database back as it was: rows that were written go, rows that went or changed return.

A copy of the template costs many times as much, and hundreds of tests commit what they write.
"""

from typing import Any

import psycopg
from psycopg import sql

SHAPE = """
SELECT 'class', c.oid::regclass::text, concat_ws(' ', c.xmin, relkind, relacl, reltuples, relhastriggers)
  FROM pg_class c WHERE relnamespace = 'public'::regnamespace
UNION ALL SELECT 'attribute', count(*)::text, max(xmin::text::bigint)::text FROM pg_attribute
UNION ALL SELECT 'constraint', count(*)::text, max(xmin::text::bigint)::text FROM pg_constraint
UNION ALL SELECT 'default', count(*)::text, max(xmin::text::bigint)::text FROM pg_attrdef
UNION ALL SELECT 'policy', count(*)::text, max(xmin::text::bigint)::text FROM pg_policy
UNION ALL SELECT 'proc', count(*)::text, max(xmin::text::bigint)::text FROM pg_proc
UNION ALL SELECT 'rewrite', count(*)::text, max(xmin::text::bigint)::text FROM pg_rewrite
UNION ALL SELECT 'schema', count(*)::text, max(xmin::text::bigint)::text FROM pg_namespace
UNION ALL SELECT 'sequence', count(*)::text, max(xmin::text::bigint)::text FROM pg_sequence
UNION ALL SELECT 'statistic', count(*)::text, max(s.xmin::text::bigint)::text FROM pg_statistic s
  JOIN pg_class c ON c.oid = starelid WHERE relnamespace = 'public'::regnamespace
UNION ALL SELECT 'trigger', count(*)::text, max(xmin::text::bigint)::text FROM pg_trigger
UNION ALL SELECT 'type', count(*)::text, max(xmin::text::bigint)::text FROM pg_type
UNION ALL SELECT 'setting', count(*)::text, max(xmin::text::bigint)::text FROM pg_db_role_setting
UNION ALL SELECT 'database', datname, concat_ws(' ', xmin, datacl, datconnlimit) FROM pg_database
  WHERE datname = current_database()
"""
"""Whatever but rows a test can change in its own database, and what the planner was told of its tables."""
GUARDS = """
SELECT c.relname, t.tgname, CASE t.tgenabled WHEN 'A' THEN 'ALWAYS' WHEN 'R' THEN 'REPLICA' ELSE '' END
  FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
 WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND NOT t.tgisinternal AND t.tgenabled <> 'D'
   AND EXISTS (SELECT FROM pg_trigger a WHERE a.tgrelid = t.tgrelid AND a.tgenabled = 'A')
"""
"""Triggers of tables that only grow: they let nobody delete, whatever the session says that it is."""
MOST = 100
"""Uses of a database, as rows that went leave their room behind."""


class PutBack:
    """What a new copy of the template holds. Good for every database that is a copy of the same template."""

    def __init__(self, dsn: str) -> None:
        """Args:
        dsn: of a superuser, to a database that nobody has used yet.
        """
        self.dsn, self.used = dsn, 0
        with psycopg.connect(dsn, autocommit=True) as c:
            self.shape = sorted(c.execute(SHAPE).fetchall())
            found = c.execute(
                "SELECT relname, relkind FROM pg_class"
                " WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'S') ORDER BY 1"
            ).fetchall()
            self.tables = [name for name, kind in found if kind == "r"]
            self._numbers = _each(
                "SELECT {literal}, last_value, is_called FROM {name}", [name for name, kind in found if kind == "S"]
            )
            self.numbers = c.execute(self._numbers).fetchall()
            self._filled = _each("(SELECT {literal} FROM {name} LIMIT 1)", self.tables)
            self.guards: dict[str, list[tuple[str, str]]] = {}
            for name, *trigger in c.execute(GUARDS).fetchall():
                self.guards.setdefault(name, []).append(tuple(trigger))
            self.rows = {name: _out(c, name) for (name,) in c.execute(self._filled).fetchall()}

    def done(self) -> bool:
        """Everything is as it was, and nobody is connected; False: it cannot be, take another copy."""
        self.used += 1
        if self.used >= MOST:
            return False
        with psycopg.connect(self.dsn) as c:
            c.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
            c.commit()
            if sorted(c.execute(SHAPE).fetchall()) != self.shape:
                return False
            c.execute("SET LOCAL session_replication_role = replica")
            filled = {name for (name,) in c.execute(self._filled).fetchall()}
            for name in sorted(filled | set(self.rows)):
                if name not in self.rows or _out(c, name) != self.rows[name]:
                    self._fill(c, name)
            for was, now in zip(self.numbers, c.execute(self._numbers).fetchall(), strict=True):
                if was != now:
                    c.execute("SELECT setval(%s, %s, %s)", was)
            self.shape = sorted(c.execute(SHAPE).fetchall())  # guards that rested are other rows of the catalog now
        return True

    def _fill(self, c: psycopg.Connection[Any], name: str) -> None:
        table, guards = sql.Identifier(name), self.guards.get(name, [])
        if guards:
            c.execute(sql.SQL("ALTER TABLE {} DISABLE TRIGGER USER").format(table))
        c.execute(sql.SQL("DELETE FROM {}").format(table))
        if name in self.rows:
            with c.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(table)) as into:
                into.write(self.rows[name])
        for guard, state in guards:
            c.execute(sql.SQL(f"ALTER TABLE {{}} ENABLE {state} TRIGGER {{}}").format(table, sql.Identifier(guard)))


def _each(query: str, names: list[str]) -> sql.Composed:
    parts = [sql.SQL(query).format(literal=sql.Literal(name), name=sql.Identifier(name)) for name in names]  # type: ignore[arg-type]
    return sql.SQL(" UNION ALL ").join(parts)


def _out(c: psycopg.Connection[Any], name: str) -> bytes:
    with c.cursor().copy(sql.SQL("COPY {} TO STDOUT").format(sql.Identifier(name))) as out:
        return b"".join(bytes(part) for part in out)
