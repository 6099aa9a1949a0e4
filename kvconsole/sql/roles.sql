-- The roles of one cluster, made once by a superuser; running it again sets the passwords.
-- Replace each {name_password} first. None may be superuser or bypass row-level security.
-- kv_owner owns database and tables and cannot log in; kv_migrate becomes it for `manage.py migrate`.
DO $$
DECLARE
  name text;
BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'kv_owner') THEN
    CREATE ROLE kv_owner NOLOGIN;
  END IF;
  FOREACH name IN ARRAY ARRAY['migrate', 'tenant', 'operator', 'ingest', 'router', 'seq', 'audit'] LOOP
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'kv_' || name) THEN
      EXECUTE format('CREATE ROLE %I LOGIN', 'kv_' || name);
    END IF;
  END LOOP;
END $$;

ALTER ROLE kv_owner NOSUPERUSER NOBYPASSRLS NOCREATEROLE NOCREATEDB NOLOGIN;
ALTER ROLE kv_migrate NOSUPERUSER NOBYPASSRLS NOCREATEROLE NOCREATEDB LOGIN PASSWORD '{kv_migrate_password}';
ALTER ROLE kv_tenant NOSUPERUSER NOBYPASSRLS NOCREATEROLE NOCREATEDB LOGIN PASSWORD '{kv_tenant_password}';
ALTER ROLE kv_operator NOSUPERUSER NOBYPASSRLS NOCREATEROLE NOCREATEDB LOGIN PASSWORD '{kv_operator_password}';
ALTER ROLE kv_ingest NOSUPERUSER NOBYPASSRLS NOCREATEROLE NOCREATEDB LOGIN PASSWORD '{kv_ingest_password}';
ALTER ROLE kv_router NOSUPERUSER NOBYPASSRLS NOCREATEROLE NOCREATEDB LOGIN PASSWORD '{kv_router_password}';
ALTER ROLE kv_seq NOSUPERUSER NOBYPASSRLS NOCREATEROLE NOCREATEDB LOGIN PASSWORD '{kv_seq_password}';
ALTER ROLE kv_audit NOSUPERUSER NOBYPASSRLS NOCREATEROLE NOCREATEDB LOGIN PASSWORD '{kv_audit_password}';
GRANT kv_owner TO kv_migrate;
-- Sessions of tenants do not show each other the text of their queries (pg_stat_activity).
ALTER ROLE kv_tenant SET track_activities = off;
