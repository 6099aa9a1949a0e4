-- Statements of the writer (catalog/store.py) and of its loading. Arrays are binary: PostgreSQL refuses COPY into a
-- table under row-level security, and text arrays cost several times the commit.

-- name: take_over
-- The shard is this writer's from now on; whoever wrote before is deposed at its next transaction. (primary key)
UPDATE catalog_shard SET writer = writer + 1, url = %s, seen_at = now(), listens_since = now() WHERE id = %s RETURNING writer

-- name: guard
-- The fence and the ledger row in one statement: a deposed writer must not reach the ledger's key. (primary keys)
WITH g AS (
    UPDATE catalog_shard SET seq = %b, redo = %b, next_seg = %b, next_owner = %b, next_keyspace = %b, next_source = %b,
        seen_at = now()
    WHERE id = %b AND writer = %b AND seq = %b RETURNING id, seq, wanted
), l AS (INSERT INTO catalog_ledger (shard, seq, at, body) SELECT id, seq, to_timestamp(%b), %b FROM g)
SELECT wanted FROM g

-- name: position
-- Where the shard stands, after a lost connection. (primary key)
SELECT writer, seq FROM catalog_shard WHERE id = %s

-- name: wanted
-- The barrier a reader asked for. (primary key)
SELECT wanted FROM catalog_shard WHERE id = %s AND writer = %s

-- name: segment_merge
-- New keys go behind those of the row; a place of the parent is never taken back. (primary key)
INSERT INTO catalog_segment (id, head, up, family, keyspace, up_off, tenant_id, parent, keys)
SELECT id, head, nullif(up, -1), family, keyspace, nullif(up_off, -1), tenant_id, parent, keys
FROM unnest(%b::int8[], %b::int8[], %b::int8[], %b::int8[], %b::int4[], %b::int2[], %b::uuid[], %b::bytea[],
            %b::bytea[]) AS x (id, head, up, family, keyspace, up_off, tenant_id, parent, keys)
ON CONFLICT (keyspace, id) DO UPDATE SET keys = catalog_segment.keys || excluded.keys,
    up = coalesce(excluded.up, catalog_segment.up), up_off = coalesce(excluded.up_off, catalog_segment.up_off)

-- name: placement_merge
-- The row says what is held now; `born` only moves on where the placement began anew. (primary key)
INSERT INTO catalog_placement (seg, born, owner, keyspace, tenant_id, n, held, states)
SELECT * FROM unnest(%b::int8[], %b::timestamptz[], %b::int4[], %b::int4[], %b::uuid[], %b::int2[], %b::bytea[],
                     %b::bytea[])
ON CONFLICT (keyspace, owner, seg) DO UPDATE SET n = excluded.n, held = excluded.held, states = excluded.states,
    born = greatest(catalog_placement.born, excluded.born)

-- name: placement_older
-- What was moved is as old as where it was before. (primary keys)
UPDATE catalog_placement p SET born = b.born
  FROM (SELECT x.keyspace, x.seg, x.owner, min(o.born) AS born
          FROM unnest(%b::int4[], %b::int8[], %b::int4[], %b::int4[]) AS x (keyspace, seg, owner, before)
          JOIN catalog_placement o ON o.keyspace = x.keyspace AND o.owner = x.before AND o.seg = x.seg
         GROUP BY x.keyspace, x.seg, x.owner) b
 WHERE p.keyspace = b.keyspace AND p.owner = b.owner AND p.seg = b.seg AND p.born > b.born

-- name: placement_delete
-- Emptied placements, and those of retired owners, are gone. (primary key)
DELETE FROM catalog_placement p USING unnest(%b::int4[], %b::int4[], %b::int8[]) AS g (keyspace, owner, seg)
WHERE p.keyspace = g.keyspace AND p.owner = g.owner AND p.seg = g.seg

-- name: segment_delete
-- Segments that nobody holds are gone. (primary key)
DELETE FROM catalog_segment s USING unnest(%b::int4[], %b::int8[]) AS g (keyspace, id)
WHERE s.keyspace = g.keyspace AND s.id = g.id

-- name: holding_merge
-- Blocks and digests of (keyspace, owner) are exact as of this transaction. (primary key)
INSERT INTO catalog_holding (keyspace, owner, tenant_id, blocks, lo, hi)
SELECT * FROM unnest(%b::int4[], %b::int4[], %b::uuid[], %b::int8[], %b::int8[], %b::int8[])
ON CONFLICT (keyspace, owner) DO UPDATE SET blocks = excluded.blocks, lo = excluded.lo, hi = excluded.hi

-- name: holding_delete
-- Nothing is held any more of (keyspace, owner). (primary key)
DELETE FROM catalog_holding h USING unnest(%b::int4[], %b::int4[]) AS g (keyspace, owner)
WHERE h.keyspace = g.keyspace AND h.owner = g.owner

-- name: holding_retire
-- Retired owners hold nothing. (catalog_holding_owner)
DELETE FROM catalog_holding WHERE owner = ANY(%b::int4[])

-- name: source_merge
-- Cursor and state of each source whose frames are in this transaction. (primary key)
INSERT INTO catalog_source (id, shard, node_id, name, dp_rank, boot, stream, seq, old_boots, state, reason, since,
                            last_verified_at, last_frame_at, can_list, gaps)
SELECT id, shard, node_id, name, dp_rank, boot, stream, seq, ARRAY(SELECT json_array_elements_text(old_boots::json)),
    state, reason, since, last_verified_at, last_frame_at, can_list, gaps
FROM unnest(%b::int4[], %b::int2[], %b::uuid[], %b::text[], %b::int4[], %b::text[], %b::text[], %b::int8[], %b::text[],
            %b::text[], %b::text[], %b::timestamptz[], %b::timestamptz[], %b::timestamptz[], %b::bool[], %b::int8[])
    AS x (id, shard, node_id, name, dp_rank, boot, stream, seq, old_boots, state, reason, since, last_verified_at,
          last_frame_at, can_list, gaps)
ON CONFLICT (id) DO UPDATE SET boot = excluded.boot, stream = excluded.stream, seq = excluded.seq,
    old_boots = excluded.old_boots, state = excluded.state, reason = excluded.reason, since = excluded.since,
    last_verified_at = excluded.last_verified_at, last_frame_at = excluded.last_frame_at,
    can_list = excluded.can_list, gaps = excluded.gaps

-- name: owner_merge
-- Owners that came or were retired. (primary key)
INSERT INTO catalog_owner (id, shard, source_id, tier, retired, born)
SELECT * FROM unnest(%b::int4[], %b::int2[], %b::int4[], %b::text[], %b::bool[], %b::timestamptz[])
ON CONFLICT (id) DO UPDATE SET retired = excluded.retired

-- name: owner_delete
-- Retired owners of which no placement is left are forgotten. (primary key)
DELETE FROM catalog_owner WHERE id = ANY(%b::int4[]) AND retired

-- name: keyspace_merge
-- Keyspaces that came or were claimed. (primary key)
INSERT INTO catalog_keyspace (id, shard, tenant_id, namespace_id, digest, generation, cache_group, block_tokens,
                              block_bytes, claimed)
SELECT * FROM unnest(%b::int4[], %b::int2[], %b::uuid[], %b::uuid[], %b::bytea[], %b::int8[], %b::int2[], %b::int4[],
                     %b::int8[], %b::bool[])
ON CONFLICT (id) DO UPDATE SET tenant_id = excluded.tenant_id, namespace_id = excluded.namespace_id,
    claimed = excluded.claimed, block_tokens = excluded.block_tokens, block_bytes = excluded.block_bytes

-- name: claim_segments
-- Rows of a claimed keyspace follow it to its tenant. (primary key, one partition)
UPDATE catalog_segment SET tenant_id = %s WHERE keyspace = %s

-- name: claim_placements
-- As `claim_segments`. (primary key, one partition)
UPDATE catalog_placement SET tenant_id = %s WHERE keyspace = %s

-- name: claim_holdings
-- As `claim_segments`. (primary key)
UPDATE catalog_holding SET tenant_id = %s WHERE keyspace = %s

-- name: keyspace_segments_delete
-- The segments of whole keyspaces are gone, in one statement. (primary key, the partitions of the keyspaces)
DELETE FROM catalog_segment WHERE keyspace = ANY(%b::int4[])

-- name: keyspace_placements_delete
-- As `keyspace_segments_delete`.
DELETE FROM catalog_placement WHERE keyspace = ANY(%b::int4[])

-- name: ledger_prune
-- Ledger rows behind the redo point, behind every reader of the last minute and older than `keep` rows. (primary key)
DELETE FROM catalog_ledger WHERE shard = %s AND seq IN (
    SELECT seq FROM catalog_ledger WHERE shard = %s AND seq < least(%s, %s - %s, coalesce(
        (SELECT min(seq) FROM catalog_reader WHERE shard = %s AND seen_at > now() - interval '1 minute'), %s))
    ORDER BY seq LIMIT %s)

-- name: load_shard
-- The numbers of the shard. (primary key)
SELECT seq, redo, next_seg, next_owner, next_keyspace, next_source, wanted FROM catalog_shard WHERE id = %s

-- name: load_sources
-- Every source of the shard.
SELECT id, node_id, name, dp_rank, boot, stream, seq, old_boots, state, reason, extract(epoch FROM since)::float8,
    extract(epoch FROM last_verified_at)::float8, extract(epoch FROM last_frame_at)::float8, can_list, gaps
FROM catalog_source WHERE shard = %s

-- name: load_owners
-- Every owner of the shard.
SELECT id, source_id, tier, extract(epoch FROM born)::float8, retired FROM catalog_owner WHERE shard = %s

-- name: load_keyspaces
-- Every keyspace of the shard.
SELECT id, tenant_id, namespace_id, digest, generation, cache_group, block_tokens, block_bytes, claimed
FROM catalog_keyspace WHERE shard = %s

-- name: load_holdings
-- Every holding of the shard's keyspaces.
SELECT keyspace, owner, blocks, lo, hi FROM catalog_holding
WHERE keyspace IN (SELECT id FROM catalog_keyspace WHERE shard = %s)

-- name: load_size
-- Keys of the shard, so that the key map is made once in its size.
SELECT coalesce(sum(octet_length(keys)), 0) / 16 FROM catalog_segment
WHERE keyspace IN (SELECT id FROM catalog_keyspace WHERE shard = %s)

-- name: load_segments
-- Every segment of the shard's keyspaces, for COPY in binary.
SELECT id, keys, keyspace, coalesce(up, -1), coalesce(up_off, -1::int2), family, parent FROM catalog_segment
WHERE keyspace IN (SELECT id FROM catalog_keyspace WHERE shard = %s)

-- name: load_placements
-- Every placement of the shard's keyspaces, for COPY in binary.
SELECT owner, seg, keyspace, n, held, states FROM catalog_placement
WHERE keyspace IN (SELECT id FROM catalog_keyspace WHERE shard = %s)

-- name: load_ledger
-- What the rows may lack. (primary key)
SELECT seq, extract(epoch FROM at)::float8, body FROM catalog_ledger WHERE shard = %s AND seq >= %s ORDER BY seq
