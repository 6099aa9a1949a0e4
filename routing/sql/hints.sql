-- Statements of announcements and of trust (routing/hint_watch.py).

-- name: announcements_open
-- What may still come. As kv_router. Index routing_announced_due.
SELECT id, tenant_id, kind, about, blocks, namespace FROM routing_announcement
WHERE state = 'open' AND until > %s AND came_at IS NULL ORDER BY until LIMIT %s

-- name: announcements_came
-- They came, for the first time. As kv_router. Index routing_announcement_by_id.
UPDATE routing_announcement AS a SET came_at = c.at FROM unnest(%s::uuid[], %s::timestamptz[]) AS c(id, at)
WHERE a.id = c.id AND a.came_at IS NULL AND c.at BETWEEN a.said_at AND a.until

-- name: watch_tell
-- A router watches. As kv_router.
INSERT INTO routing_watch (router, since, at) VALUES (%s, %s, %s)
ON CONFLICT (router) DO UPDATE SET since = excluded.since, at = excluded.at

-- name: announcements_judge
-- What is over: missed only where every router that watches now has watched all the time, and at least one has. As
-- kv_operator. Index routing_announced_due.
WITH due AS (
    SELECT id FROM routing_announcement WHERE state = 'open' AND (came_at IS NOT NULL OR until < %s)
    FOR UPDATE SKIP LOCKED
), watching AS (
    SELECT max(since) FILTER (WHERE at > %s) AS youngest, min(at) FILTER (WHERE at > %s) AS told FROM routing_watch
)
UPDATE routing_announcement AS a SET state = CASE
        WHEN a.came_at IS NOT NULL THEN 'came'
        WHEN w.youngest <= a.said_at AND w.told >= a.until THEN 'missed'
        ELSE 'unseen' END
FROM watching AS w
WHERE a.id IN (SELECT id FROM due LIMIT %s)
RETURNING a.tenant_id, a.kind, a.about, a.came_at, a.state

-- name: trust_add
INSERT INTO routing_trustday AS t (tenant_id, day, came, missed)
SELECT * FROM unnest(%s::uuid[], %s::date[], %s::bigint[], %s::bigint[])
ON CONFLICT (tenant_id, day) DO UPDATE SET came = t.came + excluded.came, missed = t.missed + excluded.missed

-- name: announcements_forget
-- What was judged long ago goes, some at a time.
DELETE FROM routing_announcement WHERE id IN (
    SELECT id FROM routing_announcement WHERE state <> 'open' AND until < %s LIMIT 2000)

-- name: watches_forget
DELETE FROM routing_watch WHERE at < %s
