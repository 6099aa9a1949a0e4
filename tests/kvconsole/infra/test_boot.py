"""What of a database ends the start: each weakening is made for real, in a database of its own."""

import psycopg
import pytest

from kvconsole.infra import boot, sql


@pytest.fixture
def superuser(db, postgres):
    """A superuser in a transaction on the test database that is rolled back."""
    with psycopg.connect(postgres.superuser_dsn("kvc_test")) as c:
        yield c
        c.rollback()


def found(c):
    """The problems that a process of this database would be told."""
    ask = sql.named("kvconsole", "boot.sql")
    given = [(words, c.execute(ask[name]).fetchall()) for name, words in boot.ABOUT_TABLES]
    given.append(("kv_tenant {}", c.execute(ask["tenant_role"]).fetchall()))
    given.append(("{}", [row for row in c.execute(ask["definers"]) if row[0] not in boot.DEFINERS]))
    return [words.format(*row) for words, rows in given for row in rows]


def test_the_database_as_migrated_is_sound(db):
    assert "\n".join(boot.boot_problems()) == ""


WEAKENED = {
    "ALTER TABLE tenants_namespace NO FORCE ROW LEVEL SECURITY": "tenants_namespace has a tenant but no forced",
    "CREATE TABLE loose (tenant_id uuid)": "loose has a tenant but no forced",
    "DROP POLICY own ON tenants_token": "tenants_token is open to kv_tenant without a policy",
    "ALTER POLICY own ON tenants_token USING (true) WITH CHECK (true)": "tenants_token is open to kv_tenant without",
    "ALTER POLICY own ON tenants_token USING (tenant_id = current_setting('kv.tenant')::uuid)": "tenants_token is open",
    "DROP POLICY own_delete ON tenants_model; GRANT DELETE ON tenants_model TO kv_tenant": "tenants_model is open",
    "GRANT SELECT ON catalog_node TO kv_tenant": "catalog_node is open to kv_tenant and no policy narrows it",
    "GRANT SELECT ON tenant_seal TO kv_tenant": "tenant_seal is open to kv_tenant and no policy narrows it",
    "GRANT SELECT (key) ON tenant_seal TO PUBLIC": "tenant_seal is open to kv_tenant and no policy narrows it",
    "CREATE VIEW v AS SELECT * FROM tenants_user; GRANT SELECT ON v TO kv_tenant": "v is open to kv_tenant",
    "CREATE MATERIALIZED VIEW m AS SELECT 1 AS a; GRANT SELECT ON m TO kv_tenant": "m is open to kv_tenant",
    "CREATE UNIQUE INDEX oracle ON tenants_adapter (name)": "tenants_adapter.oracle does not begin with the tenant",
    "ALTER TABLE tenants_adapter ADD UNIQUE (id); ALTER TABLE tenants_adapter ADD COLUMN e uuid CONSTRAINT up "
    "REFERENCES tenants_adapter (id)": "tenants_adapter.up does not begin with the tenant",
    "CREATE FUNCTION leak() RETURNS int LANGUAGE sql SECURITY DEFINER AS 'SELECT 1'; "
    "GRANT EXECUTE ON FUNCTION leak() TO kv_tenant": "leak",
    "GRANT CREATE ON SCHEMA public TO kv_tenant": "may make tables",
    "GRANT TEMPORARY ON DATABASE kvc_test TO PUBLIC": "may make temporary tables",
    "ALTER ROLE kv_tenant SET search_path = x": "has a default of its own: search_path=x",
    "ALTER ROLE kv_tenant RESET ALL": "shows other sessions its queries",
    "ALTER FUNCTION tenant_readable() RESET search_path": "function tenant_readable has no search_path",
    "ALTER FUNCTION tenants_user_own() SET search_path = public": "function tenants_user_own has no search_path",
    "GRANT EXECUTE ON FUNCTION tenants_lookup(text, text, bytea) TO kv_tenant": "tenants_lookup",
}  # fmt: skip


@pytest.mark.parametrize("weakening", WEAKENED)
def test_a_weakened_table_ends_the_start(superuser, weakening):
    superuser.execute(weakening)
    assert any(WEAKENED[weakening] in problem for problem in found(superuser)), found(superuser)


def test_a_view_with_the_callers_rights_is_fine(superuser):
    before = found(superuser)
    superuser.execute("CREATE VIEW v WITH (security_invoker=true) AS SELECT * FROM tenants_model")
    superuser.execute("GRANT SELECT ON v TO kv_tenant")
    assert found(superuser) == before


@pytest.mark.parametrize("role", ["superuser", "migrate"])
def test_a_privileged_login_ends_the_start(fresh_database, role):
    with psycopg.connect(fresh_database.dsn(role)) as c:
        assert c.execute(sql.named("kvconsole", "boot.sql")["privileged"]).fetchone() is not None
