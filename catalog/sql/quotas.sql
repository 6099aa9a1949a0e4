-- Statements of quotas, dealing and usage.

-- name: tenant_holdings
-- What a tenant and its share groups hold by tier, exact at every commit. Rows of owners that are retired are void.
-- Indexes: catalog_holding_tenant and the primary keys.
SELECT o.tier, sum(h.blocks), sum(h.blocks * k.block_bytes)
  FROM catalog_holding h
  JOIN catalog_keyspace k ON k.id = h.keyspace
  JOIN catalog_owner o ON o.id = h.owner
 WHERE (h.tenant_id = %s
        OR h.keyspace = ANY (ARRAY(SELECT s.id FROM catalog_keyspace s WHERE s.namespace_id = ANY (%s)))) AND h.blocks > 0 AND NOT o.retired
 GROUP BY o.tier

-- name: nodes_unseen
-- Nodes that may hold on persistent tiers what nobody can see now: lost, or not listed again yet. Small tables.
SELECT n.id, n.name
  FROM catalog_node n
 WHERE n.enrolled_at IS NOT NULL AND n.state <> 'fenced'
   AND EXISTS (SELECT FROM catalog_nodetier t WHERE t.node_id = n.id AND t.tier = ANY (%s))
   AND (n.state = 'lost' OR EXISTS (
          SELECT FROM catalog_source s WHERE s.node_id = n.id AND s.state IN ('lost', 'recovering')))
 ORDER BY n.name

-- name: node_foreign
-- Bytes on a node that are not the tenant's, by tier. Joins by primary keys.
SELECT sum(h.blocks * k.block_bytes)
  FROM catalog_source s
  JOIN catalog_owner o ON o.source_id = s.id AND NOT o.retired
  JOIN catalog_holding h ON h.owner = o.id AND h.blocks > 0
  JOIN catalog_keyspace k ON k.id = h.keyspace
 WHERE s.node_id = %s AND h.tenant_id <> %s

-- name: capacities
-- Bytes of each tier of the fleet. Two small tables.
SELECT t.tier, sum(t.capacity_bytes)
  FROM catalog_nodetier t JOIN catalog_node n ON n.id = t.node_id
 WHERE n.enrolled_at IS NOT NULL AND n.state <> 'fenced'
 GROUP BY t.tier

-- name: attempts_due
-- Refusals and finds that no event has told, at most one event a minute for each. Index: catalog_attempt_untold.
SELECT tenant_id, node_id, digest, tier, reason, kind, count, told
  FROM catalog_attempt
 WHERE told < count AND (told_at IS NULL OR told_at <= %s)
 ORDER BY last_at LIMIT %s
   FOR UPDATE SKIP LOCKED

-- name: attempt_told
-- By the primary key.
UPDATE catalog_attempt SET told = %s, told_at = %s
 WHERE tenant_id = %s AND node_id = %s AND digest = %s AND tier = %s AND reason = %s AND kind = %s

-- name: tenant_held
-- What a tenant holds and what is in share groups that it is in, by namespace, node and tier; one row more than is
-- looked at says that there are too many.
-- Indexes: catalog_holding_tenant and the primary keys.
SELECT k.digest, s.node_id, o.tier, sum(h.blocks * k.block_bytes)
  FROM catalog_holding h
  JOIN catalog_keyspace k ON k.id = h.keyspace
  JOIN catalog_owner o ON o.id = h.owner
  JOIN catalog_source s ON s.id = o.source_id
 WHERE (h.tenant_id = %s
        OR h.keyspace = ANY (ARRAY(SELECT x.id FROM catalog_keyspace x WHERE x.digest = ANY (%s)))) AND h.blocks > 0 AND NOT o.retired
 GROUP BY k.digest, s.node_id, o.tier
 LIMIT %s
