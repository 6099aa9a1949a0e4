-- The one look-up that sees all tenants before a tenant is known: who is behind a log-in name, a session or a token.
-- For roles of processes only: a tenant's role begins where it has answered. Nodes are the platform's, and so are
-- their tokens.
-- kind 'token': key = its id, proof = SHA-256 of its secret; answers only if that matches and it is good now. What it
--   may is what both it and its owner may now. Whether it was used is written at most once a minute.
-- kinds 'username' and 'user' (id): for the log-in of the console alone, as the answer has the password's hash. A
--   password that somebody else made opens nothing: no roles until it is changed.
-- The answer is one JSON array, its values in the order of tenants.selectors.Known; NULL = nobody. It is asked for with
-- every request: one value is read sooner than seventeen columns, and one table after the other sooner than a join,
-- of which most parts are not needed for most tokens.
DROP FUNCTION IF EXISTS tenants_lookup(text, text, bytea);
CREATE FUNCTION tenants_lookup(kind text, key text, proof bytea DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  t record;
  u record;
  of_slug text;
  person uuid;
  answer text;
BEGIN
  IF kind = 'token' THEN
    SELECT x.id, x.kind, x.holder, x.tenant_id, x.user_id, x.roles::text[] AS roles, x.scopes, x.cidr, x.expires_at,
           x.last_used_at
      INTO t
      FROM public.tenants_token x
     WHERE x.id = key AND x.secret_hash = proof AND x.revoked_at IS NULL AND x.used_at IS NULL
       AND x.expires_at > now() AND x.kind NOT IN ('enrol', 'invite')
       AND (x.kind <> 'node' OR x.tenant_id = '00000000-0000-7000-8000-000000000001')
       AND (x.kind = 'node' OR coalesce(x.last_used_at, x.created_at) > now() - interval '60 days');
    IF NOT FOUND THEN
      RETURN NULL;
    END IF;
    SELECT n.slug INTO of_slug FROM public.tenants_tenant n WHERE n.id = t.tenant_id AND n.state = 'active';
    IF NOT FOUND THEN
      RETURN NULL;
    END IF;
    IF t.user_id IS NOT NULL THEN
      SELECT p.username, p.email, p.language, p.theme,
             ARRAY(SELECT r FROM unnest(t.roles) r WHERE r = ANY (p.roles::text[])) AS roles
        INTO u
        FROM public.tenants_user p WHERE p.id = t.user_id AND p.is_active AND NOT p.password_initial;
      IF NOT FOUND THEN
        RETURN NULL;
      END IF;
    END IF;
    IF t.last_used_at IS NULL OR t.last_used_at < now() - interval '1 minute' THEN
      UPDATE public.tenants_token x SET last_used_at = now() WHERE x.id = key AND x.secret_hash = proof;
    END IF;
    IF t.user_id IS NULL THEN
      RETURN json_build_array(t.id, t.kind, t.holder, NULL, '', '', '', t.tenant_id, of_slug, t.roles, t.scopes,
                              t.cidr, t.expires_at, '', '', false, false)::text;
    END IF;
    RETURN json_build_array(t.id, t.kind, t.holder, t.user_id, u.username, '', u.email, t.tenant_id, of_slug, u.roles,
                            t.scopes, t.cidr, t.expires_at, u.language, u.theme, false, false)::text;
  ELSIF session_user = 'kv_operator' THEN
    IF kind = 'user' THEN
      person := key;
    ELSIF kind = 'username' THEN
      SELECT p.id INTO person FROM public.tenants_user p WHERE p.username = key;
    END IF;
    SELECT json_build_array(
             '', '', '', p.id, p.username, p.password, p.email, p.tenant_id, coalesce(n.slug, ''),
             CASE WHEN p.password_initial THEN ARRAY[]::text[] ELSE p.roles::text[] END, ARRAY[]::text[], '', NULL,
             p.language, p.theme, p.password_initial,
             EXISTS (SELECT FROM public.mfa_authenticator f
                      WHERE f.user_id = p.id AND f.type IN ('totp', 'webauthn')))::text
      INTO answer
      FROM public.tenants_user p LEFT JOIN public.tenants_tenant n ON n.id = p.tenant_id
     WHERE p.id = person AND p.is_active AND p.kind = 'person' AND (p.tenant_id IS NULL OR n.state = 'active');
    RETURN answer;
  END IF;
  RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION tenants_lookup(text, text, bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tenants_lookup(text, text, bytea) TO kv_operator, kv_ingest, kv_router;
