-- Statements of the page of hot prefixes. Segments and placements lag behind the ledger by a second or so.

-- name: heads
-- Who holds what of the first run of these families. (segment's primary key, catalog_placement_seg)
SELECT g.keyspace, g.id, octet_length(g.keys) / 16, s.node_id, o.tier, p.n, p.held
  FROM unnest(%s::int[], %s::bigint[]) AS w (keyspace, family)
  JOIN catalog_segment g ON g.keyspace = w.keyspace AND g.id = w.family
  LEFT JOIN (catalog_placement p
             JOIN catalog_owner o ON o.id = p.owner AND NOT o.retired
             JOIN catalog_source s ON s.id = o.source_id) ON p.keyspace = g.keyspace AND p.seg = g.id

-- name: families
-- What these rows of the map stand for, where they are families; of some tenants or groups alone where they are said.
-- (primary keys)
SELECT r.id, r."group", r.tenant_id, r.keyspace, r.family, k.digest, k.generation, k.block_tokens, k.block_bytes
  FROM catalog_heatrow r JOIN catalog_keyspace k ON k.id = r.keyspace
 WHERE r.id = ANY(%s) AND r.kind = 'family'
   AND (%s::uuid IS NULL OR r.tenant_id = %s OR k.digest = ANY(%s))
