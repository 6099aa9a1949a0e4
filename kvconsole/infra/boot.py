"""Decides what of the database a process must not serve on: privileged roles, and tables that could tell of others.

Asked at start-up of PostgreSQL itself, so that it holds whoever made the tables.
"""

from django.db import connections

_PRIVILEGED = """
SELECT CASE WHEN r.rolsuper THEN 'is a superuser' WHEN r.rolbypassrls THEN 'bypasses row-level security'
            ELSE 'is a member of the owner kv_owner' END
FROM pg_roles r WHERE r.rolname = current_user
  AND (r.rolsuper OR r.rolbypassrls OR pg_has_role(current_user, 'kv_owner', 'MEMBER'))
"""
# A table has a tenant when it has the column, or is the table of tenants.
_OF_TENANTS = """
n.nspname = 'public' AND c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND (c.relname = 'tenants_tenant' OR EXISTS (
        SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped))
"""
_UNFORCED = f"""
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE {_OF_TENANTS}
  AND NOT (c.relrowsecurity AND c.relforcerowsecurity AND EXISTS (
        SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND NOT p.polpermissive))
ORDER BY 1
"""
# Every command that the tenant's role has needs a restrictive policy that asks for the sealed tenant.
_UNSEALED = f"""
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN (VALUES ('r', 'SELECT'), ('a', 'INSERT'), ('w', 'UPDATE'), ('d', 'DELETE')) AS x (cmd, privilege)
WHERE {_OF_TENANTS}
  AND CASE WHEN x.cmd = 'd' THEN has_table_privilege('kv_tenant', c.oid, 'DELETE')
           ELSE has_any_column_privilege('kv_tenant', c.oid, x.privilege) END
  AND NOT EXISTS (
        SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND NOT p.polpermissive AND p.polcmd::text IN (x.cmd, '*')
          AND coalesce(pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid))
              ~ 'tenant_(now|readable)\\(\\)')
GROUP BY c.relname ORDER BY 1
"""
# What the tenant's role can reach and no policy narrows.
_OPEN = f"""
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
  AND (has_any_column_privilege('kv_tenant', c.oid, 'SELECT, INSERT, UPDATE')
       OR has_table_privilege('kv_tenant', c.oid, 'DELETE, TRUNCATE'))
  AND (c.relname = 'tenant_seal' OR NOT ({_OF_TENANTS.replace("n.nspname = 'public' AND", "")})
       AND NOT (c.relkind = 'v' AND coalesce(c.reloptions, '{{}}') && ARRAY['security_invoker=true', 'security_invoker=on']))
ORDER BY 1
"""
# A unique or foreign key whose check the tenant's role can provoke must begin with the tenant, or it is an oracle;
# or a trigger sees to it that the role can give only keys of its own (tenants/sql/own_names.sql).
_ORACLES = f"""
SELECT c.relname || '.' || i.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_index x ON x.indrelid = c.oid AND x.indisunique JOIN pg_class i ON i.oid = x.indexrelid
WHERE {_OF_TENANTS} AND c.relname <> 'tenants_tenant'
  AND NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgname = 'own_names' AND t.tgenabled = 'O')
  AND (SELECT attname FROM pg_attribute WHERE attrelid = c.oid AND attnum = x.indkey[0]) IS DISTINCT FROM 'tenant_id'
  AND NOT EXISTS (
        SELECT FROM unnest(x.indkey::int2[]) k WHERE k > 0
           AND NOT has_column_privilege('kv_tenant', c.oid, k, 'INSERT')
           AND NOT has_column_privilege('kv_tenant', c.oid, k, 'UPDATE'))
UNION
SELECT c.relname || '.' || f.conname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_constraint f ON f.conrelid = c.oid AND f.contype = 'f'
WHERE {_OF_TENANTS} AND f.confrelid <> 'public.tenants_tenant'::regclass
  AND (SELECT attname FROM pg_attribute WHERE attrelid = c.oid AND attnum = f.conkey[1]) !~ 'tenant_id$'
  AND EXISTS (SELECT FROM unnest(f.conkey) k WHERE has_column_privilege('kv_tenant', c.oid, k, 'INSERT')
                                                OR has_column_privilege('kv_tenant', c.oid, k, 'UPDATE'))
ORDER BY 1
"""
DEFINERS = frozenset({"tenants_lookup", "tenant_now"})
"""The functions with their owner's rights that the tenant's role may call. Trigger functions cannot be called."""
_DEFINERS = """
SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = 'public' AND p.prosecdef AND p.prorettype <> 'trigger'::regtype
  AND has_function_privilege('kv_tenant', p.oid, 'EXECUTE') ORDER BY 1
"""
_TENANT_ROLE = """
SELECT 'is privileged, or a member of another role' FROM pg_roles r WHERE r.rolname = 'kv_tenant'
  AND (r.rolsuper OR r.rolbypassrls OR r.rolcreaterole OR r.rolcreatedb
       OR EXISTS (SELECT FROM pg_auth_members m WHERE m.member = r.oid))
UNION ALL
SELECT 'may make schemas' WHERE has_database_privilege('kv_tenant', current_database(), 'CREATE')
UNION ALL
SELECT 'may make tables' WHERE has_schema_privilege('kv_tenant', 'public', 'CREATE')
"""
_ABOUT_TABLES = (
    (_UNFORCED, "table {} has a tenant but no forced row-level security"),
    (_UNSEALED, "table {} is open to kv_tenant without a policy on the sealed tenant"),
    (_OPEN, "{} is open to kv_tenant and no policy narrows it"),
    (_ORACLES, "key {} does not begin with the tenant and kv_tenant can provoke its check"),
)


def boot_problems(alias: str = "default") -> list[str]:
    """Why a process must not serve on this connection.

    Raises:
        django.db.OperationalError: PostgreSQL cannot be reached; nothing is known.
    """
    with connections[alias].cursor() as cursor:
        cursor.execute(_PRIVILEGED)
        problems = [f"the login role of {alias!r} {why}" for (why,) in cursor.fetchall()]
        cursor.execute(_TENANT_ROLE)
        problems += [f"kv_tenant {why}" for (why,) in cursor.fetchall()]
        for statement, words in _ABOUT_TABLES:
            cursor.execute(statement)
            problems += [words.format(name) for (name,) in cursor.fetchall()]
        cursor.execute(_DEFINERS)
        more = [name for (name,) in cursor.fetchall() if name not in DEFINERS]
        return problems + [f"kv_tenant may call {name}, which has its owner's rights" for name in more]
