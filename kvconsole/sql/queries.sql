-- name: ingest_lag
-- Seconds since the slowest writer of a shard said that it lives; one row a shard. Reads the whole (tiny) table.
SELECT extract(epoch FROM now() - min(seen_at)) FROM catalog_shard;

-- name: nodes_by_state
-- Tens to thousands of rows, no index needed.
SELECT state, count(*) FROM catalog_node GROUP BY state;

-- name: sources_by_state
-- Tens to thousands of rows, no index needed.
SELECT state, count(*) FROM catalog_source GROUP BY state;

-- name: demo_accounts
-- Once at start.
SELECT count(*) FROM tenants_user WHERE email LIKE %s AND is_active;
