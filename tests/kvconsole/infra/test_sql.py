"""Row-level security as the migrations made it, asked of PostgreSQL itself as each login role."""

import uuid

import psycopg
import pytest

from catalog.ingest import writer
from kvconsole.infra import sql
from tests.tenants.making import a_namespace, a_tenant, a_user

ROLES = ("tenant", "operator", "ingest", "router", "seq", "audit")


@pytest.fixture
def rows(db):
    """Committed rows of two tenants."""
    mine, other = a_tenant(), a_tenant()
    for tenant in (mine, other):
        a_namespace(tenant)
        a_user(tenant=tenant)
    return mine, other


def tables(role="operator"):
    with sql.connect(role) as c:
        return [
            row[0]
            for row in c.execute(
                "SELECT DISTINCT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid "
                "WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND a.attname = 'tenant_id'"
            )
        ]


def test_uuid7_is_a_version_7_in_order_of_time():
    made = [sql.uuid7() for _ in range(50)]
    assert {u.version for u in made} == {7}
    assert {u.variant for u in made} == {uuid.RFC_4122}
    assert len(set(made)) == 50
    assert made[0].int >> 80 <= made[-1].int >> 80


def test_named_statements_are_found_by_their_header():
    assert sql.named("tenants")["fences_after"].startswith("-- The newest position")
    assert "nodes_reconcile" in sql.named("catalog", "fleet.sql")


def test_nothing_without_a_tenant_is_granted_to_tenants():
    with pytest.raises(ValueError, match="no tenant"):
        sql.protect("x", tenant=None, tenant_may="SELECT")


@pytest.mark.django_db(transaction=True)
def test_without_a_context_a_tenant_sees_no_row_anywhere(rows):
    with sql.connect("tenant") as c:
        for table in [*tables(), "tenants_tenant"]:
            try:
                assert c.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
            except psycopg.errors.InsufficientPrivilege:
                continue  # not even that


@pytest.mark.django_db(transaction=True)
def test_with_a_context_a_tenant_sees_only_its_own(rows):
    mine, other = rows
    with sql.connect("tenant", autocommit=False) as c:
        for tenant in (mine, other):
            sql.enter(c, tenant.id)
            for table in ("tenants_namespace", "audit_event"):
                got = {r[0] for r in c.execute(f"SELECT tenant_id FROM {table}")}
                assert got == {tenant.id}, table
            assert c.execute("SELECT slug FROM tenants_tenant").fetchall() == [(tenant.slug,)]
            assert c.execute("SELECT count(id) FROM tenants_user").fetchone() == (1,)
        c.rollback()
        assert c.execute("SELECT count(*) FROM tenants_namespace").fetchone() == (0,)


@pytest.mark.django_db(transaction=True)
def test_a_setting_of_the_transaction_does_not_outlive_it(rows):
    mine, _ = rows
    with sql.connect("tenant", autocommit=False) as c:
        sql.enter(c, mine.id)
        assert c.execute("SELECT count(*) FROM tenants_namespace").fetchone() == (1,)
        c.commit()
        assert c.execute("SELECT current_setting('kv.context', true)").fetchone() == ("",)
        assert c.execute("SELECT count(*) FROM tenants_namespace").fetchone() == (0,)


@pytest.mark.django_db(transaction=True)
def test_a_tenant_cannot_write_for_another(rows):
    mine, other = rows
    with sql.connect("tenant", autocommit=False) as c:
        sql.enter(c, mine.id)
        changed = c.execute(
            "UPDATE tenants_namespace SET generation = 9, min_gen = 9 WHERE tenant_id = %s", (other.id,)
        )
        assert changed.rowcount == 0
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            c.execute(
                "INSERT INTO tenants_fenceack (tenant_id, holder_kind, holder, seq, at)"
                " VALUES (%s, 'x', 'x', 0, now())",
                (other.id,),
            )


@pytest.mark.django_db(transaction=True)
def test_shared_rows_of_the_platform_are_read_and_not_written(rows):
    mine, _ = rows
    with sql.connect("tenant", autocommit=False) as c:
        sql.enter(c, mine.id)
        assert {r[0] for r in c.execute("SELECT tenant_id FROM tenants_model")} == {sql.PLATFORM}
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            c.execute("UPDATE tenants_epoch SET note = 'x'")


@pytest.mark.django_db(transaction=True)
def test_no_session_settings_help_a_tenant(rows):
    with sql.connect("tenant") as c:
        for statement in (
            "SET row_security = off",
            "SET ROLE kv_operator",
            "SET SESSION AUTHORIZATION kv_operator",
            "SET session_replication_role = replica",
            "ALTER TABLE tenants_namespace DISABLE ROW LEVEL SECURITY",
            "DROP POLICY own ON tenants_token",
            "CREATE POLICY more ON tenants_namespace USING (true)",
            "TRUNCATE tenants_namespace",
        ):
            try:
                c.execute(statement)
                assert c.execute("SELECT count(*) FROM tenants_namespace").fetchone() == (0,)
            except (psycopg.errors.InsufficientPrivilege, psycopg.errors.InvalidParameterValue):
                continue


def test_a_permissive_policy_added_later_does_not_widen_what_a_tenant_sees(fresh_database):
    with psycopg.connect(fresh_database.dsn("superuser"), autocommit=True) as c:
        c.execute("CREATE POLICY careless ON tenants_tenant TO kv_tenant USING (true)")
    with psycopg.connect(fresh_database.dsn("tenant")) as c:
        assert c.execute("SELECT count(*) FROM tenants_tenant").fetchone() == (0,)


@pytest.mark.parametrize("role", ROLES)
def test_no_login_role_is_privileged_or_may_make_tables(db, role):
    with sql.connect(role) as c:
        privileged = c.execute("SELECT rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb FROM pg_roles "
                               "WHERE rolname = current_user").fetchone()  # fmt: skip
        assert privileged == (False,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            c.execute("CREATE TABLE public.mine (x int)")


@pytest.mark.parametrize("table", ["django_session", "catalog_node", "catalog_ledger", "catalog_owner"])
def test_what_has_no_tenant_is_not_granted_to_tenants(db, table):
    with sql.connect("tenant") as c, pytest.raises(psycopg.errors.InsufficientPrivilege):
        c.execute(f"SELECT * FROM {table}")


LOCKS = [f"pg_{hold}advisory_{life}lock{kind}" for hold in ("", "try_") for life in ("", "xact_")
         for kind in ("", "_shared")]  # fmt: skip


def test_none_but_the_writer_can_hold_a_writers_lock(db):
    """Neither for a session nor for a transaction; kv_owner is what kv_migrate becomes."""
    held = set()
    for role in (*ROLES, "migrate"):
        with sql.connect(role) as c:
            if role == "migrate":
                c.execute("SET ROLE kv_owner")
            for lock in LOCKS:
                try:
                    c.execute(f"SELECT {lock}(%s, 91)", (writer.LOCK_CLASS,))
                    held.add((role, lock))
                except psycopg.errors.InsufficientPrivilege:
                    pass
    assert held == {("ingest", "pg_try_advisory_lock")}
