-- name: lookup
-- Who is behind a log-in name, a session's user or a token; the function is the only one that sees all tenants.
SELECT tenants_lookup(%s, %s, %s)

-- name: invited
-- Those of these people who have an invitation that is open. Index: tenants_token_holder.
SELECT holder FROM tenants_token
 WHERE kind = 'invite' AND holder = ANY(%s) AND used_at IS NULL AND revoked_at IS NULL

-- name: members
-- Whom these share groups name. Index: tenants_sharemember_group.
SELECT group_id, slug FROM tenants_sharemember WHERE group_id = ANY(%s) ORDER BY slug

-- name: namespaces
-- What the other rooms need of a namespace. Joins by ids; the filter is added by the caller. A member of a share group
-- sees the group's namespace, but not the row of the platform, whose it is.
SELECT n.id, n.tenant_id, n.digest, n.generation, n.min_gen, n.label, m.name, n.model_epoch,
       coalesce(t.slug, 'platform'), m.block_tokens,
       m.bytes_per_token, n.state, n.key_scheme,
       CASE WHEN jsonb_array_length(m.per_group) = 1 AND m.per_group->0->>'ratio' = '1'
            THEN (m.per_group->0->>'bytes_per_token')::bigint ELSE 0 END
  FROM tenants_namespace n
  JOIN tenants_model m ON m.id = n.model_id
  LEFT JOIN tenants_tenant t ON t.id = n.tenant_id
  LEFT JOIN tenants_sharegroup g ON g.id = n.share_group

-- name: fences_after
-- The newest position and the highest fence of each namespace behind a position, of one moment: between two statements
-- a fence could come that no holder would ever hear of, as its position is behind it. Index: primary key.
SELECT l.seq, f.digest, f.min_gen
  FROM (SELECT coalesce(max(seq), 0) AS seq FROM tenants_fenceentry) AS l
  LEFT JOIN (SELECT digest, max(min_gen) AS min_gen, max(seq) AS seq FROM tenants_fenceentry
              WHERE seq > %s GROUP BY digest) AS f ON true
 ORDER BY f.seq

-- name: fence_raise
-- One entry of the fence log; its trigger gives the number.
INSERT INTO tenants_fenceentry (seq, tenant_id, namespace_id, digest, min_gen, at, share_group)
SELECT 0, x.*, n.share_group
  FROM (VALUES (%s::uuid, %s::uuid, %s::bytea, %s::bigint, %s::timestamptz)) AS x (tenant, namespace, digest, gen, at)
  LEFT JOIN tenants_namespace n ON n.id = x.namespace
RETURNING seq

-- name: generation_bump
-- The next generation, below which everything is fenced.
UPDATE tenants_namespace SET generation = generation + 1, min_gen = generation + 1
 WHERE id = %s AND state = 'active' RETURNING generation

-- name: fence_acknowledge
-- How far a holder is; never back.
INSERT INTO tenants_fenceack (tenant_id, holder_kind, holder, seq, at) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (tenant_id, holder_kind, holder)
DO UPDATE SET seq = greatest(tenants_fenceack.seq, excluded.seq), at = excluded.at

-- name: lease_renew
-- The holder's leases last from now again; answers which ones are new. Index: tenants_keylease_once.
INSERT INTO tenants_keylease (tenant_id, namespace_id, holder_kind, holder, generation, granted_at, until)
SELECT x.tenant_id, x.namespace_id, %(kind)s, %(holder)s, x.generation, %(now)s, %(until)s
  FROM unnest(%(tenants)s::uuid[], %(namespaces)s::uuid[], %(generations)s::bigint[])
       AS x (tenant_id, namespace_id, generation)
ON CONFLICT (tenant_id, namespace_id, holder_kind, holder, generation) DO UPDATE SET until = excluded.until
RETURNING namespace_id, granted_at = %(now)s

-- name: guess_begin
-- An attempt counts as failed; answers the seconds to wait where it must not be made. Index: primary key.
SELECT tenants_guess_begin(%s, %s, %s, %s)

-- name: guess_passed
-- The attempt was right: the account's counter at the address goes, the others get one back. Index: primary key.
WITH account AS (DELETE FROM tenants_guess WHERE key = %s)
UPDATE tenants_guess g SET failures = greatest(0, g.failures - 1), until = '-infinity'
  FROM unnest(%s, %s) AS a (key, free) WHERE g.key = a.key AND g.failures - 1 <= a.free

-- name: totp_step
-- The code of this step is used up, by this attempt and no other. Index: primary key.
UPDATE mfa_authenticator SET data = jsonb_set(data, '{last_step}', to_jsonb(%s::bigint)), last_used_at = %s
 WHERE id = %s AND coalesce((data->>'last_step')::bigint, 0) < %s

-- name: last_of_role_lock
-- One after another until the end of the transaction: two people cannot remove each other at once.
SELECT pg_advisory_xact_lock(hashtext('kvc.last_of_role'))

-- name: last_of_role
-- Whether nobody else of the fleet who can log in has the role. Few rows.
SELECT NOT EXISTS (SELECT FROM tenants_user WHERE tenant_id IS NULL AND is_active AND kind = 'person'
                    AND %s = ANY (roles::text[]) AND id <> %s)

-- name: namespace_context
-- All that decides which namespace a request is of, in one row. Indexes: slug, name and digest of tenant.
SELECT t.id, t.erasure_scope, t.classes, t.state,
       m.id, m.tenant_id, m.name, m.family, m.block_tokens, m.layout,
       (SELECT jsonb_agg(jsonb_build_array(e.epoch, e.weights_digest))
          FROM tenants_epoch e WHERE e.tenant_id = m.tenant_id AND e.model_id = m.id AND e.state = 'open'),
       (SELECT r.shares FROM tenants_rollout r WHERE r.tenant_id = m.tenant_id AND r.model_id = m.id),
       a.id, a.tenant_id
  FROM tenants_tenant t
  LEFT JOIN LATERAL (
    SELECT x.id, x.tenant_id, x.name, x.family, x.block_tokens, x.layout FROM tenants_model x
     WHERE x.tenant_id IN (t.id, %(platform)s) AND x.name = %(model)s ORDER BY x.tenant_id = t.id DESC LIMIT 1) m ON true
  LEFT JOIN LATERAL (
    SELECT y.id, y.tenant_id FROM tenants_adapter y
     WHERE y.tenant_id IN (t.id, %(platform)s) AND y.model_id = m.id AND y.digest = %(adapter)s
     ORDER BY y.tenant_id = t.id DESC LIMIT 1) a ON %(adapter)s <> ''
 WHERE t.slug = %(tenant)s

-- name: namespace_by_digest
-- One namespace, its columns in the order of the table. Index: tenants_namespace_digest.
SELECT id, tenant_id, digest, model_id, model_epoch, label, generation, min_gen, key_scheme, share_group, state
  FROM tenants_namespace WHERE tenant_id = %s AND digest = %s

-- name: grants_of
-- The groups of a tenant that are meant by an id or a name, those that hold first. Index: tenant and group.
SELECT g.id, g.state, m.state = 'approved' AND m.expires_at > %(now)s
  FROM tenants_sharemember m JOIN tenants_sharegroup g ON g.tenant_id = m.owner AND g.id = m.group_id
 WHERE m.tenant_id = %(tenant)s AND %(group)s IN (g.id::text, g.name, g.owner_slug || '/' || g.name)
 ORDER BY 3 DESC, g.requested_at DESC LIMIT 2

-- name: epoch_used
-- On this day the tenant used the epoch. Index: tenants_epochuse_day.
INSERT INTO tenants_epochuse (tenant_id, model_id, epoch, adapter_digest, day, first_at, last_at)
VALUES (%(tenant)s, %(model)s, %(epoch)s, %(adapter)s, %(day)s, %(now)s, %(now)s)
ON CONFLICT (tenant_id, model_id, epoch, adapter_digest, day) DO UPDATE SET last_at = excluded.last_at

-- name: epoch_bytes_put
-- What epochs hold in this minute; the last word of a minute counts. Index: tenants_epochbytes_minute.
INSERT INTO tenants_epochbytes (tenant_id, model_id, epoch, t0, size_bytes, blocks, stale_hit_tokens)
SELECT x.tenant, x.model, x.epoch, %(t0)s, x.size, x.blocks, x.stale
  FROM unnest(%(tenants)s::uuid[], %(models)s::uuid[], %(epochs)s::int[], %(sizes)s::bigint[], %(blocks)s::bigint[],
              %(stale)s::bigint[]) AS x (tenant, model, epoch, size, blocks, stale)
ON CONFLICT (tenant_id, model_id, epoch, t0) DO UPDATE
SET size_bytes = excluded.size_bytes, blocks = excluded.blocks, stale_hit_tokens = excluded.stale_hit_tokens
