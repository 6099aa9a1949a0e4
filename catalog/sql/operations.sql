-- Statements of plans and operations.

-- name: places
-- Every place where blocks can be: tiers that a node declared, of each source that speaks for it. Whether a node is
-- heard is what the writer says, not the state, which a worker keeps. Small tables.
SELECT n.id, n.name, n.state, n.last_heard_at, coalesce(n.last_heard_at > now() - interval '6 seconds', false),
       t.tier, t.emulated, t.encrypted, s.id, s.name, s.dp_rank, s.boot, s.stream, s.seq, s.state, s.reason,
       EXISTS (SELECT FROM catalog_owner o WHERE o.source_id = s.id AND o.tier = t.tier) AS met, n.agent_url
  FROM catalog_node n
  JOIN catalog_nodetier t ON t.node_id = n.id
  JOIN catalog_source s ON s.node_id = n.id
 WHERE n.enrolled_at IS NOT NULL AND s.boot <> ''
 ORDER BY n.name, s.name, s.dp_rank, t.tier

-- name: undeclared
-- Tiers that a source was once said to have and its node does not declare (any more). Small tables.
SELECT n.id, n.name, n.state, n.last_heard_at, coalesce(n.last_heard_at > now() - interval '6 seconds', false),
       o.tier, false, false, s.id, s.name, s.dp_rank, s.boot, s.stream, s.seq, s.state, s.reason, true, n.agent_url
  FROM catalog_owner o
  JOIN catalog_source s ON s.id = o.source_id AND s.boot <> ''
  JOIN catalog_node n ON n.id = s.node_id
 WHERE NOT o.retired AND NOT EXISTS (SELECT FROM catalog_nodetier t WHERE t.node_id = n.id AND t.tier = o.tier)

-- name: unheard
-- Tiers that a node declared when it enrolled, of nodes none of whose sources ever spoke. Small tables.
SELECT n.id, n.name, n.state, n.last_heard_at, false, t.tier, t.emulated, t.encrypted, 0, '', 0, '', '', -1, 'unknown',
       'silent', false, n.agent_url
  FROM catalog_node n
  JOIN catalog_nodetier t ON t.node_id = n.id
 WHERE n.enrolled_at IS NOT NULL AND n.state <> 'fenced'
   AND NOT EXISTS (SELECT FROM catalog_source s WHERE s.node_id = n.id AND s.boot <> '')
 ORDER BY n.name, t.tier

-- name: held
-- What is believed of these namespaces below a generation, by source and tier: exact. Rows of retired owners are void.
-- (catalog_keyspace's digest, the primary keys)
SELECT x.digest, x.gen, o.source_id, o.tier, sum(h.blocks)::bigint, sum(h.blocks * k.block_bytes)::bigint
  FROM unnest(%s::bytea[], %s::bigint[]) AS x (digest, gen)
  JOIN catalog_keyspace k ON k.digest = x.digest AND k.generation < x.gen
  JOIN catalog_holding h ON h.keyspace = k.id AND h.blocks > 0
  JOIN catalog_owner o ON o.id = h.owner AND NOT o.retired
 GROUP BY x.digest, x.gen, o.source_id, o.tier

-- name: totals
-- Bytes that each tier holds in the whole fleet. (holding scanned)
SELECT o.tier, sum(h.blocks * k.block_bytes)::bigint
  FROM catalog_holding h
  JOIN catalog_keyspace k ON k.id = h.keyspace
  JOIN catalog_owner o ON o.id = h.owner AND NOT o.retired
 WHERE h.blocks > 0 GROUP BY o.tier

-- name: sample
-- A few keys of these namespaces, as they lie. Rows may lag: it is a sample. (the partitions of the keyspaces)
SELECT encode(substr(g.keys, 1, 16), 'hex')
  FROM unnest(%s::bytea[], %s::bigint[]) AS x (digest, gen)
  JOIN catalog_keyspace k ON k.digest = x.digest AND k.generation < x.gen
  JOIN catalog_segment g ON g.keyspace = k.id
 LIMIT %s

-- name: samples
-- A few keys of these namespaces in each place of these tiers, as they lie. Rows may lag. (the primary keys)
SELECT o.source_id, o.tier, p.keys
  FROM unnest(%s::bytea[], %s::bigint[]) AS x (digest, gen)
  JOIN catalog_keyspace k ON k.digest = x.digest AND k.generation < x.gen
  JOIN catalog_holding h ON h.keyspace = k.id AND h.blocks > 0
  JOIN catalog_owner o ON o.id = h.owner AND NOT o.retired AND o.tier = ANY(%s)
 CROSS JOIN LATERAL (
       SELECT substr(g.keys, 1, 16 * least(a.n, 8)) AS keys
         FROM catalog_placement a JOIN catalog_segment g ON g.keyspace = a.keyspace AND g.id = a.seg
        WHERE a.keyspace = k.id AND a.owner = o.id AND a.held IS NULL LIMIT %s) p
 LIMIT 10000

-- name: samples_forget
-- Keys that were kept to be looked for go. Index: catalog_step_operation's, or the table's, few rows an operation.
UPDATE catalog_step SET args = args - 'sample' WHERE operation = ANY(%s) AND args ? 'sample'

-- name: compared
-- What is believed of these namespaces and of all others in each place of these nodes, and up to where its source was
-- heard: all as of one commit. (the primary keys, holding's owner)
SELECT s.node_id, s.name, s.dp_rank, o.tier, s.boot, s.stream, s.seq, s.state,
       (SELECT count(*) FROM catalog_source t WHERE t.node_id = s.node_id AND t.name = s.name
                                                AND t.dp_rank = s.dp_rank) AS shards,
       coalesce(sum(h.blocks) FILTER (WHERE x.digest IS NOT NULL), 0)::bigint,
       coalesce(sum(h.blocks) FILTER (WHERE x.digest IS NULL), 0)::bigint
  FROM catalog_source s
  JOIN catalog_owner o ON o.source_id = s.id AND NOT o.retired
  LEFT JOIN catalog_holding h ON h.owner = o.id AND h.blocks > 0
  LEFT JOIN catalog_keyspace k ON k.id = h.keyspace
  LEFT JOIN unnest(%s::bytea[], %s::bigint[]) AS x (digest, gen) ON x.digest = k.digest AND k.generation < x.gen
 WHERE s.node_id = ANY(%s)
 GROUP BY s.id, o.id

-- name: operations_due
-- Operations that somebody should look at now, the longest waiting first. Index: catalog_operation_due.
SELECT id FROM catalog_operation WHERE concluded_at IS NULL AND due_at <= %s ORDER BY due_at LIMIT %s

-- name: steps_lease
-- The steps of an operation that are due and that nobody is at, taken by this holder. Index: catalog_step_due.
UPDATE catalog_step s SET lease_holder = %(holder)s, lease_until = %(until)s, lease_token = lease_token + 1,
       tries = tries + 1, sent_at = coalesce(sent_at, %(now)s)
 WHERE s.id IN (SELECT id FROM catalog_step
                 WHERE operation = %(operation)s AND state = 'waiting' AND (due_at <= %(now)s OR tries = 0)
                   AND id = ANY(%(steps)s)
                   AND (lease_until IS NULL OR lease_until <= %(now)s)
                 ORDER BY due_at LIMIT %(most)s FOR UPDATE SKIP LOCKED)
RETURNING s.id, s.lease_token, s.tries

-- name: steps_compared
-- Receipts that were held against what came after them. (primary key)
UPDATE catalog_step SET args = args || '{"compared": true}' WHERE id = ANY(%s)

-- name: receipts_after
-- Receipts of a node that follow one of these: a chain that forks is no chain. Indexes: catalog_step_node, of nodes.
SELECT receipt ->> 'key', receipt_prev, receipt_hash FROM catalog_step
 WHERE node = %(node)s AND receipt_prev = ANY(%(prev)s)
UNION ALL
SELECT receipt ->> 'key', receipt_prev, receipt_hash FROM catalog_nodecommand
 WHERE node_id = %(node)s AND receipt_prev = ANY(%(prev)s)

-- name: purges_due
-- What the writer of a shard has to take out of the catalog, with up to where each source must have been heard first.
-- Index: catalog_step_purges.
SELECT s.id, s.operation, c.id, s.tier, s.at_boot, s.at_stream, s.at_seq
  FROM catalog_step s
  JOIN catalog_source c ON c.node_id = s.node AND c.name = s.source AND c.dp_rank = s.dp_rank AND c.shard = %s
 WHERE s.kind = 'purge' AND s.state = 'waiting'
 ORDER BY s.due_at LIMIT 5000

-- name: purge_targets
-- What these operations reach. Index: catalog_target_operation.
SELECT operation, digest, min_gen FROM catalog_operationtarget WHERE operation = ANY(%s) AND keys IS NULL

-- name: purged
-- The writer has done it, in the transaction that took the rows away. (primary key)
UPDATE catalog_step SET state = 'done', done_at = to_timestamp(%s), code = ''
 WHERE id = ANY(%s::uuid[]) AND state = 'waiting'

-- name: came_back
-- Namespaces of which something below the fence is believed somewhere although a certificate says that it is gone, with
-- the last operation that said so; not those that an open operation reaches. Indexes: catalog_target_operation, digest
-- of keyspaces, holding's primary key.
SELECT DISTINCT ON (t.digest) t.digest, t.operation
  FROM catalog_operation o
  JOIN catalog_operationtarget t ON t.operation = o.id AND t.keys IS NULL
  JOIN catalog_keyspace k ON k.digest = t.digest AND k.generation < t.min_gen
  JOIN catalog_holding h ON h.keyspace = k.id AND h.blocks > 0
  JOIN catalog_owner w ON w.id = h.owner AND NOT w.retired
 WHERE o.certificate IS NOT NULL AND o.concluded_at <= %s
   AND NOT EXISTS (SELECT FROM catalog_operationtarget u JOIN catalog_operation p ON p.id = u.operation
                    WHERE u.digest = t.digest AND p.concluded_at IS NULL)
 ORDER BY t.digest, o.concluded_at DESC
 LIMIT 1000
