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
-- Entries of the fence log; its trigger gives the numbers. The name is as in `fence_name`.
INSERT INTO tenants_fenceentry (seq, tenant_id, namespace_id, digest, min_gen, at, share_group)
SELECT 0, x.tenant, x.namespace, x.digest, x.gen, %s, n.share_group
  FROM unnest(%s::uuid[], %s::uuid[], %s::bytea[], %s::bigint[]) AS x (tenant, namespace, digest, gen)
  LEFT JOIN tenants_namespace n ON n.id = x.namespace
RETURNING digest, seq,
          encode(sha256(digest || convert_to(min_gen || '/' || extract(epoch FROM at), 'UTF8')), 'hex')

-- name: fences_of
-- From which entry on the log has all of these fences. Index: of namespaces.
SELECT coalesce(max(first), 0)::bigint
  FROM (SELECT min(e.seq) AS first
          FROM unnest(%s::uuid[], %s::bigint[]) AS x (namespace, min_gen)
          JOIN tenants_fenceentry e ON e.namespace_id = x.namespace AND e.min_gen >= x.min_gen
         GROUP BY x.namespace, x.min_gen) s

-- name: keys_out
-- By question: gateways that hold the key of a fenced generation and have not said that they applied the fence, and when
-- the last lease of such a key ends of anybody who has not: who applies it drops the key. Index: namespace.
SELECT t.at, count(DISTINCT l.holder) FILTER (WHERE l.holder_kind = 'gateway'), max(l.until)
  FROM unnest(%(at)s::int[], %(namespaces)s::uuid[], %(gens)s::bigint[], %(seqs)s::bigint[])
       AS t (at, namespace, min_gen, seq)
  JOIN tenants_keylease l ON l.namespace_id = t.namespace AND l.generation < t.min_gen
 WHERE l.until > %(now)s
   AND NOT EXISTS (SELECT FROM tenants_fenceack a
                    WHERE a.holder_kind = l.holder_kind AND a.holder = l.holder AND a.seq >= t.seq)
 GROUP BY t.at

-- name: node_leases
-- By question: when each node's last lease of these generations' keys ends or ended, of nodes that never said that they
-- applied the fence. Index: namespace.
SELECT t.at, l.holder, max(l.until)
  FROM unnest(%(at)s::int[], %(namespaces)s::uuid[], %(gens)s::bigint[], %(seqs)s::bigint[])
       AS t (at, namespace, min_gen, seq)
  JOIN tenants_keylease l ON l.namespace_id = t.namespace AND l.generation < t.min_gen
 WHERE l.holder_kind = 'node'
   AND NOT EXISTS (SELECT FROM tenants_fenceack a
                    WHERE a.holder_kind = 'node' AND a.holder = l.holder AND a.seq >= t.seq)
 GROUP BY t.at, l.holder

-- name: fence_acks
-- How far each node is.
SELECT holder, seq FROM tenants_fenceack WHERE holder_kind = 'node'

-- name: fence_life
-- Changes with each restore of the fence log (another table or file), with each copy (another database) and restart.
SELECT concat_ws('/', d.oid, c.oid, pg_relation_filenode(c.oid), extract(epoch FROM pg_postmaster_start_time()))
  FROM pg_database d, pg_class c
 WHERE d.datname = current_database() AND c.oid = 'tenants_fenceentry'::regclass

-- name: fences_whole
-- Whether the fences were compared in the present life. (one row)
SELECT EXISTS (SELECT FROM tenants_fencelife f, pg_database d, pg_class c
                WHERE f.whole AND d.datname = current_database() AND c.oid = 'tenants_fenceentry'::regclass
                  AND f.life = concat_ws('/', d.oid, c.oid, pg_relation_filenode(c.oid),
                                         extract(epoch FROM pg_postmaster_start_time())))

-- name: fence_name
-- What tells a fence from another one with its number. (primary key)
SELECT encode(sha256(digest || convert_to(min_gen || '/' || extract(epoch FROM at), 'UTF8')), 'hex')
  FROM tenants_fenceentry WHERE seq = %s

-- name: fence_marked
-- One row where this fence is there. (primary key)
SELECT 1 FROM tenants_fenceentry
 WHERE seq = %s
   AND encode(sha256(digest || convert_to(min_gen || '/' || extract(epoch FROM at), 'UTF8')), 'hex') = %s

-- name: fences_higher
-- Namespaces that are fenced less high than said. Index: digest.
SELECT n.digest FROM tenants_namespace n
  JOIN unnest(%s::bytea[], %s::bigint[]) AS x (digest, gen) ON x.digest = n.digest
 WHERE n.min_gen < x.gen

-- name: namespaces_refence
-- Fenced as high as said, and open under that generation; never lower. Index: digest.
UPDATE tenants_namespace n SET min_gen = x.gen,
       generation = CASE WHEN x.gen < c.closed THEN greatest(n.generation, x.gen) ELSE n.generation END,
       state = CASE WHEN x.gen < c.closed THEN n.state ELSE 'closed' END
  FROM (SELECT %s::bigint AS closed) c, unnest(%s::bytea[], %s::bigint[]) AS x (digest, gen)
 WHERE n.digest = x.digest AND n.min_gen < x.gen
RETURNING n.id, n.tenant_id, n.digest, n.generation, n.min_gen
