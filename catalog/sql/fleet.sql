-- name: nodes_reconcile
-- What each enrolled node is now. Lost comes only after five seconds of silence that we saw: a console that was away
-- itself first sees silence. While no writer lives nobody could be heard, so nobody is lost. What is fenced stays so,
-- heard or not. (primary key)
UPDATE catalog_node n SET state = x.after, state_since = %(now)s
  FROM (SELECT id, state AS before,
               CASE WHEN wanted = 'fenced' THEN 'fenced'
                    WHEN enrolled_at IS NULL OR last_heard_at IS NULL THEN 'joining'
                    WHEN last_heard_at >= %(now)s - %(silent)s * interval '1 second' THEN wanted
                    WHEN state = 'lost' THEN 'lost'
                    WHEN last_heard_at < %(now)s - %(lost)s * interval '1 second' AND state = 'silent'
                         AND state_since <= %(now)s - (%(lost)s - %(silent)s - 0.5) * interval '1 second' AND %(writer)s
                         THEN 'lost'
                    ELSE 'silent' END AS after
          FROM catalog_node) x
 WHERE n.id = x.id AND n.state <> x.after
RETURNING n.id, n.name, x.before, n.state

-- name: writer_lives
-- Whether the process that hears the nodes has a connection and has listened for ten seconds: a writer that has just
-- taken over has heard nobody yet. (The role's name in pg_stat_activity is visible to all, its work is not.)
SELECT EXISTS (SELECT FROM pg_stat_activity WHERE usename = 'kv_ingest' AND datname = current_database())
   AND EXISTS (SELECT FROM catalog_shard WHERE listens_since < now() - interval '10 seconds')

-- name: commands_due
-- Orders that wait and that nobody is sending now. Index: catalog_command_due.
SELECT step FROM catalog_nodecommand
 WHERE state = 'waiting' AND due_at <= %s AND (lease_until IS NULL OR lease_until <= %s) ORDER BY due_at LIMIT 500
