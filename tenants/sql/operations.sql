-- Statements of what operations do to many namespaces at once.

-- name: namespaces_fence
-- The next generation of each, below which everything is fenced; what is closed for good stays so. (primary key)
UPDATE tenants_namespace SET generation = CASE WHEN min_gen < c.closed THEN generation + 1 ELSE generation END,
       min_gen = CASE WHEN min_gen < c.closed THEN generation + 1 ELSE min_gen END
  FROM (SELECT %s::bigint AS closed) c
 WHERE id = ANY(%s::uuid[]) RETURNING id, tenant_id, digest, generation, min_gen

-- name: namespaces_close
-- Fenced for ever and closed. (primary key)
UPDATE tenants_namespace SET min_gen = c.closed, state = 'closed'
  FROM (SELECT %s::bigint AS closed) c
 WHERE id = ANY(%s::uuid[]) RETURNING id, tenant_id, digest, generation, min_gen

-- name: fences_raise
-- Entries of the fence log; its trigger gives the numbers.
INSERT INTO tenants_fenceentry (seq, tenant_id, namespace_id, digest, min_gen, at, share_group)
SELECT 0, x.tenant, x.namespace, x.digest, x.gen, %s, n.share_group
  FROM unnest(%s::uuid[], %s::uuid[], %s::bytea[], %s::bigint[]) AS x (tenant, namespace, digest, gen)
  LEFT JOIN tenants_namespace n ON n.id = x.namespace
RETURNING digest, seq

-- name: gateways_waiting
-- Gateways that hold the key of a fenced generation and have not said that they applied the fence. Index: namespace.
SELECT count(DISTINCT l.holder) FROM tenants_keylease l
  JOIN unnest(%(namespaces)s::uuid[], %(gens)s::bigint[]) AS t (namespace, min_gen)
    ON l.namespace_id = t.namespace AND l.generation < t.min_gen
 WHERE l.holder_kind = 'gateway' AND l.until > %(now)s
   AND NOT EXISTS (SELECT FROM tenants_fenceack a
                    WHERE a.holder_kind = 'gateway' AND a.holder = l.holder AND a.seq >= %(seq)s)

-- name: lease_last
-- When the last lease of a fenced generation's key ends, of those who have not said that they applied the fence: who
-- applies it drops the key. Index: namespace.
SELECT max(l.until) FROM tenants_keylease l
  JOIN unnest(%(namespaces)s::uuid[], %(gens)s::bigint[]) AS t (namespace, min_gen)
    ON l.namespace_id = t.namespace AND l.generation < t.min_gen
 WHERE l.until > %(now)s
   AND NOT EXISTS (SELECT FROM tenants_fenceack a
                    WHERE a.holder_kind = l.holder_kind AND a.holder = l.holder AND a.seq >= %(seq)s)

-- name: fence_acks
-- How far each node is.
SELECT holder, seq FROM tenants_fenceack WHERE holder_kind = 'node'
