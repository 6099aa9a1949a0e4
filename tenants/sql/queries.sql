-- name: lookup
-- Who is behind a log-in name, a session's user or a token; the function is the only one that sees all tenants.
SELECT * FROM tenants_lookup(%s, %s, %s)

-- name: namespaces
-- What the other rooms need of a namespace. Joins by primary keys; the filter is added by the caller.
SELECT n.id, n.tenant_id, n.digest, n.generation, n.min_gen, n.label, m.name, n.model_epoch, t.slug, m.block_tokens,
       m.bytes_per_token, n.state, n.key_scheme,
       CASE WHEN jsonb_array_length(m.per_group) = 1 AND m.per_group->0->>'ratio' = '1'
            THEN (m.per_group->0->>'bytes_per_token')::bigint ELSE 0 END
  FROM tenants_namespace n
  JOIN tenants_model m ON m.id = n.model_id
  JOIN tenants_tenant t ON t.id = n.tenant_id

-- name: fences_after
-- The highest fence of each namespace behind a position, and the newest position. Index: primary key.
SELECT digest, max(min_gen), max(seq) FROM tenants_fenceentry WHERE seq > %s GROUP BY digest ORDER BY 3

-- name: fence_latest
-- The newest position. Index: primary key.
SELECT coalesce(max(seq), 0) FROM tenants_fenceentry

-- name: fence_raise
-- One entry of the fence log; its trigger gives the number.
INSERT INTO tenants_fenceentry (seq, tenant_id, namespace_id, digest, min_gen, at) VALUES (0, %s, %s, %s, %s, %s)
RETURNING seq

-- name: generation_bump
-- The next generation, below which everything is fenced.
UPDATE tenants_namespace SET generation = generation + 1, min_gen = generation + 1
 WHERE id = %s AND state = 'active' RETURNING generation

-- name: fence_acknowledge
-- How far a holder is; never back.
INSERT INTO tenants_fenceack (tenant_id, holder_kind, holder, seq, at) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (tenant_id, holder_kind, holder)
DO UPDATE SET seq = greatest(tenants_fenceack.seq, excluded.seq), at = excluded.at

-- name: lease_renew
-- The holder's leases last from now again; answers which ones are new. Index: tenants_keylease_once.
INSERT INTO tenants_keylease (tenant_id, namespace_id, holder_kind, holder, generation, granted_at, until)
SELECT x.tenant_id, x.namespace_id, %(kind)s, %(holder)s, x.generation, %(now)s, %(until)s
  FROM unnest(%(tenants)s::uuid[], %(namespaces)s::uuid[], %(generations)s::bigint[])
       AS x (tenant_id, namespace_id, generation)
ON CONFLICT (tenant_id, namespace_id, holder_kind, holder, generation) DO UPDATE SET until = excluded.until
RETURNING namespace_id, granted_at = %(now)s
