"""A database that was put back is as a new copy of the template, whatever was done to it; else it says so."""

import psycopg
import pytest

from tests.frontend import plant_audit
from tests.putback import PutBack

TOLD = """SELECT relname, relkind FROM pg_class
 WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'S') ORDER BY 1"""


def contents(dsn):
    with psycopg.connect(dsn) as c:
        return {
            name: sorted(c.execute(f'SELECT {"*" if kind == "r" else "last_value, is_called"} FROM "{name}"'), key=str)
            for name, kind in c.execute(TOLD).fetchall()
        }


def guards(dsn):
    with psycopg.connect(dsn) as c:
        return sorted(c.execute("SELECT tgrelid, tgname, tgenabled FROM pg_trigger"))


@pytest.fixture
def dsn(fresh_database):
    """Nobody but the test tells the planner anything of its tables meanwhile."""
    dsn = fresh_database.dsn("superuser")
    with psycopg.connect(dsn, autocommit=True) as c:
        c.execute("ALTER SYSTEM SET autovacuum = off")
        c.execute("SELECT pg_reload_conf()")
    yield dsn
    with psycopg.connect(dsn, autocommit=True) as c:
        c.execute("ALTER SYSTEM RESET autovacuum")
        c.execute("SELECT pg_reload_conf()")


def test_rows_that_came_changed_and_went_are_as_they_were(dsn):
    kept, before, guarded = PutBack(dsn), contents(dsn), guards(dsn)
    with psycopg.connect(dsn) as c:
        c.execute("SET session_replication_role = replica")
        c.execute("INSERT INTO django_session VALUES ('a', 'b', now())")
        c.execute("UPDATE tenants_tenant SET name = 'another'")
        c.execute("DELETE FROM django_content_type")
        c.execute("SELECT nextval(oid::regclass) FROM pg_class WHERE relkind = 'S'")
    plant_audit.log(dsn)  # events, which nobody may delete
    left = psycopg.connect(dsn)
    left.execute("SELECT 1 FROM tenants_tenant FOR UPDATE")  # somebody who never ended their transaction
    assert contents(dsn) != before
    assert kept.done()
    assert contents(dsn) == before
    with pytest.raises(psycopg.OperationalError):
        left.execute("SELECT 1")
    left.close()
    assert guards(dsn) == guarded
    assert kept.done()


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE another (id int)",
        "ALTER TABLE tenants_tenant ADD COLUMN another int",
        "ALTER TABLE tenants_tenant DISABLE TRIGGER ALL",
        "ALTER TABLE tenants_tenant NO FORCE ROW LEVEL SECURITY",
        "DROP POLICY IF EXISTS x ON tenants_tenant; GRANT ALL ON tenants_tenant TO kv_tenant",
        "CREATE OR REPLACE FUNCTION tenants_lookup(kind text, key text, proof bytea DEFAULT NULL) RETURNS text"
        " LANGUAGE sql AS 'SELECT NULL'",
        "ANALYZE",
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET work_mem = 64', current_database()); END $$",
    ],
)
def test_what_is_no_row_is_not_put_back_and_noticed(dsn, change):
    kept = PutBack(dsn)
    with psycopg.connect(dsn) as c:
        c.execute(change)
    assert not kept.done()
