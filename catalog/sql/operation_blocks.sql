-- Statements of deletions that are finer than a namespace. Segments and placements lag behind the ledger: who reads them
-- for a plan waits for the barrier first (catalog/store_reads.py).

-- name: spaces
-- The keyspaces of these namespaces below a generation. (catalog_keyspace's digest)
SELECT k.id, k.digest, k.cache_group, k.block_bytes
  FROM unnest(%s::bytea[], %s::bigint[]) AS x (digest, gen)
  JOIN catalog_keyspace k ON k.digest = x.digest AND k.generation < x.gen

-- name: segments
-- The segments of keyspaces, and what each continues. A key may stand anywhere in one, so they are read whole: 16 bytes
-- a block. (the partitions of the keyspaces)
SELECT keyspace, id, up, up_off, keys FROM catalog_segment WHERE keyspace = ANY(%s)

-- name: placed
-- Who holds what of the keyspaces, and whether its first block was committed there before a time. (the partitions)
SELECT p.keyspace, p.seg, o.source_id, o.tier, p.n, p.held, p.born < %s
  FROM catalog_placement p
  JOIN catalog_owner o ON o.id = p.owner AND NOT o.retired
 WHERE p.keyspace = ANY(%s)

-- name: hiding
-- Open orders that reach single keys. Index: catalog_operation_due, few rows.
SELECT o.id FROM catalog_operation o
 WHERE o.concluded_at IS NULL AND o.fenced_at IS NOT NULL
   AND EXISTS (SELECT FROM catalog_operationtarget t WHERE t.operation = o.id AND t.keys_hash <> '')

-- name: hidden_keys
-- Their keys. Index: catalog_target_operation.
SELECT operation, digest, min_gen, cache_group, keys FROM catalog_operationtarget
 WHERE operation = ANY(%s) AND keys_hash <> ''

-- name: moving
-- Open operations that move blocks of these namespaces. Indexes: catalog_target_digest, primary key.
SELECT o.id, o.kind, t.digest
  FROM catalog_operationtarget t
  JOIN catalog_operation o ON o.id = t.operation AND o.concluded_at IS NULL
 WHERE t.digest = ANY(%s) AND o.kind IN ('migration', 'drain', 'prefetch')
 ORDER BY o.id, t.digest LIMIT 1000

-- name: hits
-- Tokens read from these namespaces since a time, in columns of ten minutes; and whether anything was told at all.
-- (catalog_keyspace's digest, usage's primary key)
SELECT (SELECT sum(u.hit_tokens) FROM catalog_keyspace k
          JOIN catalog_usage u ON u.keyspace = k.id AND u.tier = '' AND u.layer = 2 AND u.t0 >= %s
         WHERE k.digest = ANY(%s))::bigint,
       EXISTS (SELECT FROM catalog_usage u WHERE u.keyspace = -1 AND u.tier = '' AND u.layer = 2 AND u.t0 >= %s)

-- name: map_row
-- What a row of the map stands for, with the first keys of its family. (primary keys)
SELECT r.tenant_id, k.digest, substring(s.keys FOR %s)
  FROM catalog_heatrow r
  JOIN catalog_keyspace k ON k.id = r.keyspace
  LEFT JOIN catalog_segment s ON s.keyspace = r.keyspace AND s.id = r.family
 WHERE r.id = %s
