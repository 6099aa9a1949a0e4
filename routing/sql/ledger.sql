-- Statements of the ledger of lost hits (routing/lost_hits.py). All run as kv_operator.

-- name: lost_hits_mark
-- Up to where outcomes are in the ledger; a first life begins now. The row is locked: one tally at a time.
INSERT INTO routing_losthitmark AS m (id, upto) VALUES (1, %s) ON CONFLICT (id) DO UPDATE SET upto = m.upto
RETURNING upto

-- name: lost_hits_measured
-- Outcomes that were measured since, oldest first. Index routing_decision_at bounds the decisions.
SELECT measured_at, tenant_id, namespace, answer, stands_for, hit_tokens, measured -> 'short', inputs
FROM routing_decision
WHERE at > %s AND measured_at > %s AND measured_at <= %s AND origin = 'router' AND hit_tokens IS NOT NULL
  AND inputs IS NOT NULL AND namespace IS NOT NULL
ORDER BY measured_at LIMIT %s

-- name: lost_hits_add
-- Sums go on top of what their minute has. Index: the primary key.
INSERT INTO routing_losthit AS l (tenant_id, minute, namespace, decisions, available_tokens, achieved_tokens, beyond_tokens, rate_limit_tokens, timeout_tokens, no_slack_tokens,
    evicted_tokens, scope_tokens, epoch_tokens, fetch_not_worth_tokens, fence_tokens, target_refused_tokens,
    unknown_tokens)
SELECT * FROM unnest(%s::uuid[], %s::timestamptz[], %s::bytea[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],
    %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],
    %s::bigint[], %s::bigint[], %s::bigint[])
ON CONFLICT (tenant_id, minute, namespace) DO UPDATE SET
    decisions = l.decisions + excluded.decisions, available_tokens = l.available_tokens +
    excluded.available_tokens, achieved_tokens = l.achieved_tokens + excluded.achieved_tokens, beyond_tokens =
    l.beyond_tokens + excluded.beyond_tokens, rate_limit_tokens = l.rate_limit_tokens +
    excluded.rate_limit_tokens, timeout_tokens = l.timeout_tokens + excluded.timeout_tokens, no_slack_tokens =
    l.no_slack_tokens + excluded.no_slack_tokens, evicted_tokens = l.evicted_tokens + excluded.evicted_tokens,
    scope_tokens = l.scope_tokens + excluded.scope_tokens, epoch_tokens = l.epoch_tokens +
    excluded.epoch_tokens, fetch_not_worth_tokens = l.fetch_not_worth_tokens +
    excluded.fetch_not_worth_tokens, fence_tokens = l.fence_tokens + excluded.fence_tokens,
    target_refused_tokens = l.target_refused_tokens + excluded.target_refused_tokens, unknown_tokens =
    l.unknown_tokens + excluded.unknown_tokens

-- name: lost_hits_upto
UPDATE routing_losthitmark SET upto = %s WHERE id = 1

-- name: lost_hits_forget
-- Minutes that are older go, some at a time. Index routing_losthit_minute.
DELETE FROM routing_losthit WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM routing_losthit WHERE minute < %s ORDER BY minute LIMIT 5000))

-- name: lost_hits_by_step
-- Sums by steps of time, the first from its beginning. Index routing_losthit_minute, or the primary key.
SELECT date_bin(%s, minute, %s) AS step, sum(decisions), sum(available_tokens), sum(achieved_tokens), sum(beyond_tokens), sum(rate_limit_tokens),
    sum(timeout_tokens), sum(no_slack_tokens), sum(evicted_tokens), sum(scope_tokens), sum(epoch_tokens),
    sum(fetch_not_worth_tokens), sum(fence_tokens), sum(target_refused_tokens), sum(unknown_tokens)
FROM routing_losthit
WHERE minute >= %s AND minute < %s AND (%s::uuid IS NULL OR tenant_id = %s::uuid)
  AND (%s::bytea IS NULL OR namespace = %s::bytea)
GROUP BY step ORDER BY step

-- name: lost_hits_by_namespace
-- Namespaces that lost most. Index as above.
SELECT namespace, sum(decisions), sum(available_tokens), sum(achieved_tokens), sum(beyond_tokens), sum(rate_limit_tokens),
    sum(timeout_tokens), sum(no_slack_tokens), sum(evicted_tokens), sum(scope_tokens), sum(epoch_tokens),
    sum(fetch_not_worth_tokens), sum(fence_tokens), sum(target_refused_tokens), sum(unknown_tokens)
FROM routing_losthit
WHERE minute >= %s AND minute < %s AND (%s::uuid IS NULL OR tenant_id = %s::uuid)
  AND (%s::bytea IS NULL OR namespace = %s::bytea)
GROUP BY namespace ORDER BY sum(available_tokens - achieved_tokens) DESC, namespace LIMIT %s
