"""The database alone: with every view's filter away, a tenant's role is shown nothing foreign, whatever it sets."""

import time
import uuid

import psycopg
import pytest
from django.apps import apps
from django.db import ProgrammingError, connections, transaction

from kvconsole.infra import sql
from kvconsole.infra.access import tenant_context
from tests.conftest import TEST_DATABASE
from tests.tenants import rows
from tests.tenants.making import principal

SHARED = sql.PLATFORM


class Somebody:
    """A tenant, as far as these tests need it."""

    def __init__(self):
        self.id, self.slug = uuid.uuid4(), uuid.uuid4().hex


@pytest.fixture(scope="module")
def filled(django_db_setup, postgres, copies):
    """Two tenants with a row in every table, in the test database for as long as this module runs.

    Events only grow, for everybody: the database is copied anew afterwards.
    """
    made = Somebody(), Somebody()
    rows.fill(postgres.superuser_dsn(TEST_DATABASE), [t.id for t in made])
    yield made
    connections.close_all()
    copies.drop(TEST_DATABASE)
    copies.make(TEST_DATABASE)


@pytest.fixture
def two(filled, db):
    return filled


committed = pytest.mark.django_db(databases=["default", "tenant"])


def readable(c, table):
    """The columns of a table that the role may read."""
    return [name for (name,) in c.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
        " AND has_column_privilege(attrelid, attnum, 'SELECT')", (table,))]  # fmt: skip


def seen(c, table):
    """Whose rows of the table the transaction shows; None = it may not read it."""
    if "tenant_id" not in readable(c, table):
        return None
    return {row[0] for row in c.execute(f"SELECT tenant_id FROM {table}")}


@committed
def test_every_table_shows_a_tenant_its_own_rows_and_nobody_elses(two):
    mine, other = two
    with sql.connect("tenant", autocommit=False) as c:
        names, read = rows.tables(c), 0
        for tenant in (mine, other):
            sql.enter(c, tenant.id)
            for table in names:
                found = seen(c, table)
                if found is not None:
                    assert found - {SHARED} == {tenant.id}, table
                    read += 1
            assert c.execute("SELECT id FROM tenants_tenant").fetchall() == [(tenant.id,)]
    assert read >= 2 * 10


@committed
def test_querysets_without_any_filter_answer_nothing_foreign(two):
    mine, _ = two
    looked = 0
    with tenant_context(principal(mine)):
        for model in apps.get_models():
            fields = {f.attname for f in model._meta.concrete_fields}
            if "tenant_id" not in fields:
                continue
            rows_ = model._base_manager.using("tenant").values_list("tenant_id", flat=True)
            try:
                with transaction.atomic(using="tenant"):
                    found = set(rows_)
            except ProgrammingError:  # the role may not read it at all
                continue
            assert found <= {mine.id, SHARED}, model
            looked += 1
    assert looked >= 8


def forged(mine, other, c):
    """Values that somebody with SQL in the tenant's transaction could try."""
    (own,) = c.execute("SELECT current_setting('kv.context', true)").fetchone()
    when, mac = own.split(":")[1:]
    now = f"{int(time.time() * 1000):016d}"
    yield from (
        str(other.id), f"{other.id}:{when}:{mac}", f"{other.id}:{now}:{mac}", f"{other.id}:{now}:{'0' * 64}",
        f"{other.id}:9999999999999999:{mac}", f"{other.id}::", f"{SHARED}:{when}:{mac}", "'", "%", own + "x",
        own.upper(), f"{mine.id}:{when}:{mac[:-1]}0" if mac[-1] != "0" else f"{mine.id}:{when}:{mac[:-1]}1",
    )  # fmt: skip


@committed
def test_an_injected_set_config_shows_nothing_foreign(two):
    mine, other = two
    with sql.connect("tenant", autocommit=False) as c:
        names = rows.tables(c)
        sql.enter(c, mine.id)
        attempts = list(forged(mine, other, c))
        for value in attempts:
            c.execute("SELECT set_config('kv.context', %s, true), set_config('kv.tenant', %s, true)",
                      (value, str(other.id)))  # fmt: skip
            for table in names:
                assert not seen(c, table), (value, table)
            assert c.execute("SELECT id FROM tenants_tenant").fetchall() == []


@committed
def test_a_seal_is_of_no_use_in_another_backend_or_later(two):
    mine, _ = two
    with sql.connect("tenant", autocommit=False) as c, sql.connect("tenant", autocommit=False) as thief:
        sql.enter(c, mine.id)
        (own,) = c.execute("SELECT current_setting('kv.context')").fetchone()
        thief.execute("SELECT set_config('kv.context', %s, true)", (own,))
        assert thief.execute("SELECT count(*) FROM tenants_namespace").fetchone() == (0,)


@committed
def test_an_old_seal_opens_no_new_transaction(two, monkeypatch):
    mine, _ = two
    with sql.connect("tenant", autocommit=False) as c:
        real = time.time
        monkeypatch.setattr(sql.time, "time", lambda: real() - 31)
        sql.enter(c, mine.id)
        assert c.execute("SELECT count(*) FROM tenants_namespace").fetchone() == (0,)
        monkeypatch.setattr(sql.time, "time", lambda: real() - 20)
        sql.enter(c, mine.id)
        assert c.execute("SELECT count(*) FROM tenants_namespace").fetchone() == (1,)


PAGES = {
    "tenants_token": "id", "tenants_model": "name, id", "tenants_namespace": "id", "tenants_fenceentry": "seq",
    "tenants_adapter": "id",
}  # fmt: skip


@committed
@pytest.mark.parametrize("table", PAGES)
def test_a_page_asks_for_the_seal_once(two, table):
    """Each look at the seal costs as much as reading some twenty rows."""
    mine, _ = two
    with sql.connect("tenant", autocommit=False) as c:
        sql.enter(c, mine.id)
        plan = c.execute(f"EXPLAIN SELECT tenant_id FROM {table} ORDER BY {PAGES[table]} LIMIT 50").fetchall()
    lines = "\n".join(line for (line,) in plan)
    assert lines.count("InitPlan") == lines.count("InitPlan 1") > 0, lines
    assert "SubPlan" not in lines, lines


REACHES = (
    "SELECT key FROM tenant_seal", "SELECT inner_key FROM tenant_seal", "SELECT * FROM tenant_seal",
    "UPDATE tenant_seal SET key = key", "COPY tenant_seal TO STDOUT", "SET track_activities = on",
    "CREATE OR REPLACE FUNCTION tenant_readable() RETURNS uuid[] LANGUAGE sql AS 'SELECT NULL::uuid[]'",
    "CREATE OR REPLACE FUNCTION tenant_now() RETURNS uuid LANGUAGE sql AS 'SELECT NULL::uuid'",
    "ALTER FUNCTION tenant_readable() SECURITY INVOKER", "ALTER FUNCTION tenant_sees(boolean) SECURITY INVOKER",
    "CREATE SCHEMA mine", "SET ROLE kv_owner",
)  # fmt: skip


def test_the_key_and_the_check_are_out_of_reach(db):
    with sql.connect("tenant") as c:
        for statement in REACHES:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                c.execute(statement)


def test_queries_of_other_sessions_are_not_shown(db):
    with sql.connect("tenant") as one, sql.connect("tenant") as two_:
        one.execute("SELECT 'a secret'")
        texts = [t for (t,) in two_.execute("SELECT query FROM pg_stat_activity WHERE usename = 'kv_tenant'")]
        assert not any("secret" in (t or "") for t in texts)


TEMPORARY = (
    "TEMP TABLE tenant_seal (key bytea)", "TEMP VIEW v AS SELECT 1", "TEMP SEQUENCE s", "DOMAIN pg_temp.uuid AS text",
    "TYPE pg_temp.t AS (a int)", "FUNCTION pg_temp.f() RETURNS int RETURN 1",
)  # fmt: skip


@committed
def test_a_search_path_of_the_tenants_own_changes_nothing(two):
    mine, _ = two
    with sql.connect("tenant", autocommit=False) as c:
        for what in TEMPORARY:
            with pytest.raises(psycopg.errors.InsufficientPrivilege), c.transaction():
                c.execute(f"CREATE {what}")
        c.execute("SET search_path = pg_temp, information_schema")
        sql.enter(c, mine.id)
        assert c.execute("SELECT count(*) FROM public.tenants_namespace").fetchone() == (1,)


@committed
def test_no_table_takes_a_write_for_another_tenant(two):
    mine, other = two
    with sql.connect("tenant", autocommit=False) as c:
        for table in rows.tables(c):
            for statement, privilege in (
                (f"UPDATE {table} SET tenant_id = tenant_id WHERE tenant_id = %s", "UPDATE"),
                (f"DELETE FROM {table} WHERE tenant_id = %s", "DELETE"),
                (f"INSERT INTO {table} (tenant_id) VALUES (%s)", "INSERT"),
            ):
                sql.enter(c, mine.id)
                try:
                    with c.transaction():
                        done = c.execute(statement, (other.id,))
                        assert privilege != "INSERT", table
                        assert done.rowcount == 0, (table, privilege)
                except psycopg.errors.InsufficientPrivilege:
                    continue  # of the role, or of the policy
                except (psycopg.errors.NotNullViolation, psycopg.errors.CheckViolation) as e:
                    # A BEFORE trigger or constraint spoke first; it must say the same for a tenant that does not exist.
                    sql.enter(c, mine.id)
                    with pytest.raises(type(e)), c.transaction():
                        c.execute(statement, (uuid.uuid4(),))


@committed
def test_unique_and_foreign_keys_tell_nothing_of_others(two):
    """Taking another tenant's key, and pointing to another tenant's row, end as with keys and rows of nobody."""
    mine, other = two
    fresh, other_fresh = sql.uuid7(), sql.uuid7()
    insert = (
        "INSERT INTO tenants_adapter (tenant_id, id, model_id, name, digest, epoch, created_at)"
        " VALUES (%s, %s, %s, 'a', %s, 1, now())"
    )
    theirs = "SELECT id, model_id FROM tenants_adapter WHERE tenant_id = %s"
    with sql.connect("operator") as o:
        foreign, model = o.execute(theirs, (other.id,)).fetchone()
    for pairs in (
        ((fresh, model), (other_fresh, uuid.uuid4())),
        ((foreign, model), (uuid.uuid4(), uuid.uuid4()), (foreign, uuid.uuid4())),
    ):
        assert len(set(outcomes_of(mine, insert, pairs))) == 1


def outcomes_of(mine, insert, pairs):
    """How each insertion of (id, id of the parent) ends, without the ids themselves."""
    outcomes = []
    with sql.connect("tenant", autocommit=False) as c:
        for row_id, model_id in pairs:
            sql.enter(c, mine.id)
            c.execute("SET CONSTRAINTS ALL IMMEDIATE")
            with pytest.raises(psycopg.Error) as caught:
                c.execute(insert, (mine.id, row_id, model_id, uuid.uuid4().hex))
            text = str(caught.value).replace(str(model_id), "M").replace(str(row_id), "R")
            outcomes.append((type(caught.value).__name__, text))
            c.rollback()
    return outcomes
