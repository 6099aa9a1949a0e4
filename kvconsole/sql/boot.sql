-- What PostgreSQL is asked at start-up (kvconsole.infra.boot). Each answers the names of what is wrong; catalogs only.

-- name: privileged
-- The login role itself.
SELECT CASE WHEN r.rolsuper THEN 'is a superuser' WHEN r.rolbypassrls THEN 'bypasses row-level security'
            ELSE 'is a member of the owner kv_owner' END
FROM pg_roles r WHERE r.rolname = current_user
  AND (r.rolsuper OR r.rolbypassrls OR pg_has_role(current_user, 'kv_owner', 'MEMBER'))

-- name: tenant_role
-- The tenant's role.
SELECT 'is privileged, or a member of another role' FROM pg_roles r WHERE r.rolname = 'kv_tenant'
  AND (r.rolsuper OR r.rolbypassrls OR r.rolcreaterole OR r.rolcreatedb
       OR EXISTS (SELECT FROM pg_auth_members m WHERE m.member = r.oid))
UNION ALL
SELECT 'may make schemas' WHERE has_database_privilege('kv_tenant', current_database(), 'CREATE')
UNION ALL
SELECT 'may make temporary tables and types: run python -m kvconsole.roles again'
 WHERE has_database_privilege('kv_tenant', current_database(), 'TEMPORARY')
UNION ALL
SELECT 'may make tables in ' || n.nspname FROM pg_namespace n
 WHERE has_schema_privilege('kv_tenant', n.oid, 'CREATE')
UNION ALL
SELECT 'has a default of its own: ' || x FROM pg_db_role_setting s, unnest(s.setconfig) x
 WHERE s.setrole = 'kv_tenant'::regrole AND s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
   AND x <> 'track_activities=off'
UNION ALL
SELECT 'shows other sessions its queries: track_activities is not off' WHERE NOT EXISTS (
  SELECT FROM pg_db_role_setting s WHERE s.setrole = 'kv_tenant'::regrole AND 'track_activities=off' = ANY (s.setconfig))

-- name: unforced
-- Tables with a tenant (the column tenant_id, or the table of tenants) that are not under forced RLS.
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE 
n.nspname = 'public' AND c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND (c.relname = 'tenants_tenant' OR EXISTS (
        SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped))

  AND NOT (c.relrowsecurity AND c.relforcerowsecurity AND EXISTS (
        SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND NOT p.polpermissive))
ORDER BY 1

-- name: unsealed
-- Tables where a command that the tenant's role has lacks a restrictive policy on the sealed tenant.
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN (VALUES ('r', 'SELECT'), ('a', 'INSERT'), ('w', 'UPDATE'), ('d', 'DELETE')) AS x (cmd, privilege)
WHERE 
n.nspname = 'public' AND c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND (c.relname = 'tenants_tenant' OR EXISTS (
        SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped))

  AND CASE WHEN x.cmd = 'd' THEN has_table_privilege('kv_tenant', c.oid, 'DELETE')
           ELSE has_any_column_privilege('kv_tenant', c.oid, x.privilege) END
  AND NOT EXISTS (
        SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND NOT p.polpermissive AND p.polcmd::text IN (x.cmd, '*')
          AND coalesce(pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid))
              ~ 'tenant_(readable\(\)|sees\((true|false)\))')
GROUP BY c.relname ORDER BY 1

-- name: open
-- What the tenant's role can reach and no policy narrows.
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
  AND (has_any_column_privilege('kv_tenant', c.oid, 'SELECT, INSERT, UPDATE')
       OR has_table_privilege('kv_tenant', c.oid, 'DELETE, TRUNCATE'))
  AND (c.relname = 'tenant_seal' OR NOT (
 c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND (c.relname = 'tenants_tenant' OR EXISTS (
        SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped))
)
       AND NOT (c.relkind = 'v' AND coalesce(c.reloptions, '{}') && ARRAY['security_invoker=true', 'security_invoker=on']))
ORDER BY 1

-- name: oracles
-- Unique and foreign keys whose check the tenant's role can provoke and that do not begin with the tenant, unless a
-- trigger sees to it that the role can give only keys of its own (tenants/sql/own_names.sql).
SELECT c.relname || '.' || i.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_index x ON x.indrelid = c.oid AND x.indisunique JOIN pg_class i ON i.oid = x.indexrelid
WHERE 
n.nspname = 'public' AND c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND (c.relname = 'tenants_tenant' OR EXISTS (
        SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped))
 AND c.relname <> 'tenants_tenant'
  AND NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgname = 'own_names' AND t.tgenabled = 'O')
  AND (SELECT attname FROM pg_attribute WHERE attrelid = c.oid AND attnum = x.indkey[0]) IS DISTINCT FROM 'tenant_id'
  AND NOT EXISTS (
        SELECT FROM unnest(x.indkey::int2[]) k WHERE k > 0
           AND NOT has_column_privilege('kv_tenant', c.oid, k, 'INSERT')
           AND NOT has_column_privilege('kv_tenant', c.oid, k, 'UPDATE'))
UNION
SELECT c.relname || '.' || f.conname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_constraint f ON f.conrelid = c.oid AND f.contype = 'f'
WHERE 
n.nspname = 'public' AND c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND (c.relname = 'tenants_tenant' OR EXISTS (
        SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped))
 AND f.confrelid <> 'public.tenants_tenant'::regclass
  AND (SELECT attname FROM pg_attribute WHERE attrelid = c.oid AND attnum = f.conkey[1]) !~ 'tenant_id$'
  AND EXISTS (SELECT FROM unnest(f.conkey) k WHERE has_column_privilege('kv_tenant', c.oid, k, 'INSERT')
                                                OR has_column_privilege('kv_tenant', c.oid, k, 'UPDATE'))
ORDER BY 1

-- name: definers
-- Functions with their owner's rights that the tenant's role may call; trigger functions cannot be called.
SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = 'public' AND p.prosecdef AND p.prorettype <> 'trigger'::regtype
  AND has_function_privilege('kv_tenant', p.oid, 'EXECUTE') ORDER BY 1

-- name: unpinned
-- Functions with their owner's rights, and triggers, that look for names where the caller's search_path says.
SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = 'public' AND (p.prosecdef OR p.prorettype = 'trigger'::regtype)
  AND NOT coalesce(p.proconfig, '{}') && ARRAY['search_path=pg_catalog, pg_temp']
ORDER BY 1
