-- Statements of rules that open operations.

-- name: oldest
-- Since when the oldest block of each namespace lies where it is, of generations that are not fenced. Rows may lag by
-- what the writer defers. (catalog_keyspace_namespace, the partitions of the keyspaces)
SELECT k.namespace_id, min(p.born)
  FROM unnest(%s::uuid[], %s::bigint[]) AS x (namespace, min_gen)
  JOIN catalog_keyspace k ON k.namespace_id = x.namespace AND k.generation >= x.min_gen
  JOIN catalog_placement p ON p.keyspace = k.id
  JOIN catalog_owner o ON o.id = p.owner AND NOT o.retired
 GROUP BY k.namespace_id

-- name: shared_where
-- What these namespaces of share groups hold, by namespace and place's row: exact. Indexes: namespace of keyspaces,
-- holding's primary key.
SELECT k.namespace_id, k.digest, s.node_id, s.name, s.dp_rank, o.tier, sum(h.blocks)::bigint
  FROM catalog_keyspace k
  JOIN catalog_holding h ON h.keyspace = k.id AND h.blocks > 0
  JOIN catalog_owner o ON o.id = h.owner AND NOT o.retired
  JOIN catalog_source s ON s.id = o.source_id
 WHERE k.namespace_id = ANY(%s)
 GROUP BY k.namespace_id, k.digest, s.node_id, s.name, s.dp_rank, o.tier

-- name: held_where
-- What each tenant's own namespaces hold, by namespace and place's row: exact. Indexes: of tenants, primary keys.
SELECT h.tenant_id, k.namespace_id, k.digest, s.node_id, s.name, s.dp_rank, o.tier, sum(h.blocks)::bigint
  FROM catalog_holding h
  JOIN catalog_keyspace k ON k.id = h.keyspace AND k.namespace_id IS NOT NULL
  JOIN catalog_owner o ON o.id = h.owner AND NOT o.retired
  JOIN catalog_source s ON s.id = o.source_id
 WHERE h.tenant_id = ANY(%s) AND h.blocks > 0
 GROUP BY h.tenant_id, k.namespace_id, k.digest, s.node_id, s.name, s.dp_rank, o.tier

-- name: over_quota
-- Tenants that hold more on a tier than they may, by how much, with what namespaces (ids) of share groups hold that they
-- (owners, beside) own. Indexes: of tenants, primary keys, namespace of keyspaces; as many rows as quotas.
WITH g AS MATERIALIZED (
    SELECT x.owner, o.tier, sum(h.blocks * k.block_bytes)::bigint AS bytes
      FROM unnest(%s::uuid[], %s::uuid[]) AS x (namespace, owner)
      JOIN catalog_keyspace k ON k.namespace_id = x.namespace
      JOIN catalog_holding h ON h.keyspace = k.id AND h.blocks > 0
      JOIN catalog_owner o ON o.id = h.owner AND NOT o.retired
     GROUP BY x.owner, o.tier)
SELECT q.tenant_id, q.tier, q.limit_bytes, u.bytes
  FROM catalog_quota q
  JOIN LATERAL (
    SELECT coalesce(sum(h.blocks * k.block_bytes)::bigint, 0)
           + coalesce((SELECT g.bytes FROM g WHERE g.owner = q.tenant_id AND g.tier = q.tier), 0) AS bytes
      FROM catalog_holding h
      JOIN catalog_keyspace k ON k.id = h.keyspace
      JOIN catalog_owner o ON o.id = h.owner AND NOT o.retired AND o.tier = q.tier
     WHERE h.tenant_id = q.tenant_id AND h.blocks > 0) u ON u.bytes > q.limit_bytes
 WHERE q.limit_bytes IS NOT NULL

-- name: warmth
-- A tenant's own namespaces and these others on a tier, with when they were last read or grew. Indexes: of tenants,
-- primary keys of holding, placement and usage.
SELECT k.digest, sum(h.blocks)::bigint, sum(h.blocks * k.block_bytes)::bigint, max(k.block_bytes),
       greatest(max((SELECT max(p.born) FROM catalog_placement p WHERE p.keyspace = k.id AND p.owner = h.owner)),
                max((SELECT max(u.t0) FROM catalog_usage u WHERE u.keyspace = k.id AND u.hit_tokens > 0)))
  FROM catalog_holding h
  JOIN catalog_keyspace k ON k.id = h.keyspace AND k.namespace_id IS NOT NULL
  JOIN catalog_owner o ON o.id = h.owner AND NOT o.retired AND o.tier = %s
 WHERE (h.tenant_id = %s OR k.namespace_id = ANY(%s)) AND h.blocks > 0
 GROUP BY k.digest

-- name: leaves
-- Keys of a namespace that lie on a tier, the ends of chains first: numbers of segments grow from a prompt's start on.
-- Rows may lag: it is a choice, and who does not hold them erases nothing. (digest of keyspaces, the partitions)
SELECT g.keys, p.n, p.held
  FROM catalog_keyspace k
  JOIN catalog_placement p ON p.keyspace = k.id
  JOIN catalog_owner o ON o.id = p.owner AND NOT o.retired AND o.tier = %s
  JOIN catalog_segment g ON g.keyspace = p.keyspace AND g.id = p.seg
 WHERE k.digest = %s
 ORDER BY k.generation, p.seg DESC LIMIT %s
