-- The roles of one cluster, made once by a superuser; running it again sets the passwords, and takes back what a
-- database gives to everybody. Replace each {name_password} first. None may be superuser or bypass row-level security.
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
-- A role may set defaults for itself: they are forgotten here.
ALTER ROLE kv_tenant RESET ALL;
-- Sessions of tenants do not show each other the text of their queries (pg_stat_activity).
ALTER ROLE kv_tenant SET track_activities = off;

-- Of this database (and of those copied from it, where it is a template): nobody makes anything but kv_owner. A
-- temporary table or type is looked for before ours, also by whoever gets the session next.
DO $$
BEGIN
  EXECUTE format('REVOKE CREATE, TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
END $$;
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
-- Locks of two numbers are the writers' of shards, of sessions and of transactions alike: none but kv_ingest takes one.
-- All tenants are one role: it neither ends other sessions of its own, nor holds a lock beyond its transaction, nor
-- leaves large objects for others, which belong to the role and not to a tenant.
REVOKE EXECUTE ON FUNCTION
  pg_cancel_backend(integer), pg_terminate_backend(integer, bigint),
  pg_advisory_lock(bigint), pg_advisory_lock(integer, integer),
  pg_try_advisory_lock(bigint), pg_try_advisory_lock(integer, integer),
  pg_advisory_lock_shared(bigint), pg_advisory_lock_shared(integer, integer),
  pg_try_advisory_lock_shared(bigint), pg_try_advisory_lock_shared(integer, integer),
  pg_advisory_xact_lock(integer, integer), pg_try_advisory_xact_lock(integer, integer),
  pg_advisory_xact_lock_shared(integer, integer), pg_try_advisory_xact_lock_shared(integer, integer),
  lo_creat(integer), lo_create(oid), lo_from_bytea(oid, bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pg_try_advisory_lock(integer, integer) TO kv_ingest, kv_seq;
