-- Statements of blocks that move.

-- name: takes_open
-- Those of the steps in which a node may announce blocks as taken from another place: of operations that go on, not
-- cancelled. (primary keys of step and operation, catalog_source's node)
SELECT s.id, s.operation, s.node, s.args -> 'party' ->> 'owner', c.id, s.args -> 'party' ->> 'tier'
  FROM catalog_step s
  JOIN catalog_operation o ON o.id = s.operation AND o.concluded_at IS NULL AND o.order_event IS NOT NULL
  JOIN catalog_source c ON c.node_id = (s.args -> 'party' ->> 'node')::uuid AND c.name = s.args -> 'party' ->> 'source'
   AND c.dp_rank = (s.args -> 'party' ->> 'dp_rank')::int AND c.shard = %s
 WHERE s.id = ANY(%s) AND s.kind = 'take' AND s.state IN ('waiting', 'done', 'partial', 'failed')

-- name: take_targets
-- What these operations move. Index: catalog_target_operation.
SELECT operation, digest, min_gen FROM catalog_operationtarget WHERE operation = ANY(%s)
