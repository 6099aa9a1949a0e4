-- Reads of the block catalog (catalog/store_reads.py). Segment and placement rows lag behind the ledger by up to the
-- writer's `defer`; holdings, owners, sources and the ledger never do.

-- name: barrier_ask
-- The writer's next transactions write every row behind the ledger's present end. (primary key)
UPDATE catalog_shard SET wanted = greatest(wanted, seq) WHERE id = %s RETURNING seq

-- name: barrier_wait
-- Whether they have. (primary key)
SELECT redo > %s FROM catalog_shard WHERE id = %s

-- name: facts
-- Every held run with the names of keyspace and owner. (placement scanned, segment by primary key)
SELECT s.node_id, s.name, s.dp_rank, o.tier, k.digest, k.generation, k.cache_group, g.keys, p.n, p.held, p.states
FROM catalog_placement p
JOIN catalog_segment g ON g.keyspace = p.keyspace AND g.id = p.seg
JOIN catalog_owner o ON o.id = p.owner AND NOT o.retired
JOIN catalog_source s ON s.id = o.source_id
JOIN catalog_keyspace k ON k.id = p.keyspace

-- name: chain
-- Segments that begin with one of the keys, and who holds what of them. (catalog_segment_head, catalog_placement_seg)
SELECT g.id, g.keys, p.owner, p.n, p.held, p.states
FROM catalog_segment g
LEFT JOIN (catalog_placement p JOIN catalog_owner o ON o.id = p.owner AND NOT o.retired)
    ON p.keyspace = g.keyspace AND p.seg = g.id
WHERE g.keyspace = %s AND g.head = ANY(%s)

-- name: holdings_of_namespace
-- Blocks and digests of a namespace by owner: exact. (catalog_keyspace_namespace, holding's primary key)
SELECT k.id, k.generation, k.cache_group, s.node_id, s.name, s.dp_rank, o.tier, h.owner, h.blocks, h.lo, h.hi,
    k.block_tokens, k.block_bytes
FROM catalog_keyspace k
JOIN catalog_holding h ON h.keyspace = k.id
JOIN catalog_owner o ON o.id = h.owner AND NOT o.retired
JOIN catalog_source s ON s.id = o.source_id
WHERE k.namespace_id = %s
ORDER BY k.id, h.owner

-- name: subtree
-- A segment and all that hang below it. (catalog_segment_up)
WITH RECURSIVE below (id) AS (
    SELECT id FROM catalog_segment WHERE keyspace = %s AND id = %s
    UNION
    SELECT c.id FROM below b JOIN catalog_segment c ON c.up = b.id AND c.keyspace = %s
)
SELECT id FROM below ORDER BY id

-- name: blocks_page
-- Placements of keyspaces in the order of their key, from one on. (primary key, the partitions of the keyspaces)
SELECT p.keyspace, p.owner, p.seg, g.keys, p.n, p.held, p.states, p.born, o.source_id, o.tier
FROM catalog_placement p
JOIN catalog_segment g ON g.keyspace = p.keyspace AND g.id = p.seg
JOIN catalog_owner o ON o.id = p.owner AND NOT o.retired
WHERE p.keyspace = ANY(%(keyspaces)s) AND (p.keyspace, p.owner, p.seg) >= (%(keyspace)s, %(owner)s, %(seg)s)
    AND (%(tier)s::text IS NULL OR o.tier = %(tier)s)
    AND (%(sources)s::int[] IS NULL OR o.source_id = ANY(%(sources)s))
ORDER BY p.keyspace, p.owner, p.seg LIMIT %(limit)s

-- name: ledger_after
-- What was committed after a number, oldest first. (primary key)
SELECT seq, at, body FROM catalog_ledger WHERE shard = %s AND seq > %s ORDER BY seq LIMIT %s

-- name: ledger_ends
-- The ledger's newest number and the oldest row that is kept. (primary keys)
SELECT s.seq, (SELECT min(l.seq) FROM catalog_ledger l WHERE l.shard = s.id) FROM catalog_shard s WHERE s.id = %s

-- name: reader_seen
-- The reader has come so far: for a minute the ledger is kept behind that. (primary key)
INSERT INTO catalog_reader (name, shard, seq, seen_at) VALUES (%s, %s, %s, now())
ON CONFLICT (name, shard) DO UPDATE SET seq = excluded.seq, seen_at = excluded.seen_at
