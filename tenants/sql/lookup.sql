-- The one look-up that sees all tenants before a tenant is known: who is behind a log-in name, a session or a token.
-- For roles of processes only: a tenant's role begins where it has answered. Nodes are the platform's, and so are
-- their tokens.
-- kind 'token': key = its id, proof = SHA-256 of its secret; answers only if that matches and it is good now. What it
--   may is what both it and its owner may now. Whether it was used is written at most once a minute.
-- kinds 'username' and 'user' (id): for the log-in of the console alone, as the answer has the password's hash. A
--   password that somebody else made opens nothing: no roles until it is changed.
DROP FUNCTION IF EXISTS tenants_lookup(text, text, bytea);
CREATE FUNCTION tenants_lookup(kind text, key text, proof bytea DEFAULT NULL)
RETURNS TABLE (token_id text, token_kind text, holder text, user_id uuid, username text, password text, email text,
               tenant_id uuid, tenant_slug text, roles text[], scopes text[], cidr text, expires_at timestamptz,
               language text, theme text, password_initial boolean, second_factor boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  used timestamptz;
  log_in text;
  person uuid;
BEGIN
  IF kind = 'token' THEN
    SELECT t.id::text, t.kind::text, t.holder::text, u.id, u.username::text, NULL::text, u.email::text,
           t.tenant_id, n.slug::text,
           CASE WHEN u.id IS NULL THEN t.roles::text[]
                ELSE ARRAY(SELECT r FROM unnest(t.roles::text[]) r WHERE r = ANY (u.roles::text[])) END,
           t.scopes::text[], t.cidr::text, t.expires_at, u.language::text, u.theme::text, false, false, t.last_used_at
      INTO token_id, token_kind, holder, user_id, username, password, email, tenant_id, tenant_slug, roles, scopes,
           cidr, expires_at, language, theme, password_initial, second_factor, used
      FROM public.tenants_token t
      JOIN public.tenants_tenant n ON n.id = t.tenant_id AND n.state = 'active'
      LEFT JOIN public.tenants_user u ON u.id = t.user_id
     WHERE t.id = key AND t.secret_hash = proof AND t.revoked_at IS NULL AND t.used_at IS NULL
       AND t.expires_at > now() AND t.kind NOT IN ('enrol', 'invite')
       AND (t.kind <> 'node' OR t.tenant_id = '00000000-0000-7000-8000-000000000001')
       AND (t.kind = 'node' OR coalesce(t.last_used_at, t.created_at) > now() - interval '60 days')
       AND (t.user_id IS NULL OR u.is_active AND NOT u.password_initial);
    IF FOUND THEN
      IF used IS NULL OR used < now() - interval '1 minute' THEN
        UPDATE public.tenants_token t SET last_used_at = now() WHERE t.id = key AND t.secret_hash = proof;
      END IF;
      RETURN NEXT;
    END IF;
  ELSIF session_user = 'kv_operator' THEN
    IF kind = 'user' THEN
      person := key;
    ELSIF kind = 'username' THEN
      log_in := key;
    END IF;
    RETURN QUERY
    SELECT NULL::text, NULL::text, NULL::text, u.id, u.username::text, u.password::text, u.email::text,
           u.tenant_id, n.slug::text,
           CASE WHEN u.password_initial THEN ARRAY[]::text[] ELSE u.roles::text[] END, ARRAY[]::text[], ''::text,
           NULL::timestamptz, u.language::text, u.theme::text, u.password_initial,
           EXISTS (SELECT FROM public.mfa_authenticator f WHERE f.user_id = u.id AND f.type IN ('totp', 'webauthn'))
      FROM public.tenants_user u LEFT JOIN public.tenants_tenant n ON n.id = u.tenant_id
     WHERE u.is_active AND u.kind = 'person' AND (u.tenant_id IS NULL OR n.state = 'active')
       AND (u.username = log_in OR u.id = person);
  END IF;
END $$;
REVOKE ALL ON FUNCTION tenants_lookup(text, text, bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tenants_lookup(text, text, bytea) TO kv_operator, kv_ingest, kv_router;
