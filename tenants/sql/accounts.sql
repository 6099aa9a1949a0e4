-- People, their factors and guesses: what the ORM cannot say.

-- Failed attempts by account at an address, by address and by account, under keys that tell none of it. Only who logs
-- people in may see them.
CREATE TABLE tenants_guess (
  key      bytea PRIMARY KEY CHECK (octet_length(key) = 32),
  failures integer     NOT NULL,
  until    timestamptz NOT NULL,
  last     timestamptz NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX tenants_guess_last ON tenants_guess (last);

-- An attempt begins: it counts as failed until it is known to be none, so many at once are no way around.
-- Answers how many seconds to wait; then nothing was counted. Beyond `free` failures of a key each one doubles the wait,
-- up to its `most`.
CREATE FUNCTION tenants_guess_begin(keys bytea[], free integer[], quiet interval, most interval[])
RETURNS double precision LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  now_ timestamptz := clock_timestamp();
  wait double precision;
BEGIN
  INSERT INTO public.tenants_guess (key, failures, until, last)
  SELECT k, 0, '-infinity', now_ FROM unnest(keys) k ORDER BY k ON CONFLICT DO NOTHING;
  PERFORM FROM public.tenants_guess g WHERE g.key = ANY (keys) ORDER BY g.key FOR UPDATE;
  SELECT max(extract(epoch FROM g.until - now_)) INTO wait FROM public.tenants_guess g WHERE g.key = ANY (keys) AND g.until > now_;
  IF wait IS NOT NULL THEN
    RETURN wait;
  END IF;
  UPDATE public.tenants_guess g SET failures = n.failures, last = now_,
         until = CASE WHEN n.failures <= n.free THEN '-infinity'
                      ELSE now_ + least(n.most, interval '1 second' * 2 ^ least(n.failures - n.free, 30)) END
    FROM (SELECT o.key, a.free, a.most, CASE WHEN o.last < now_ - quiet THEN 1 ELSE o.failures + 1 END AS failures
            FROM public.tenants_guess o JOIN unnest(keys, free, most) AS a (key, free, most) ON a.key = o.key) n
   WHERE g.key = n.key;
  DELETE FROM public.tenants_guess g WHERE g.key IN (
    SELECT o.key FROM public.tenants_guess o WHERE o.last < now_ - interval '1 day' ORDER BY o.last LIMIT 50 FOR UPDATE SKIP LOCKED);
  RETURN 0;
END $$;
REVOKE ALL ON FUNCTION tenants_guess_begin(bytea[], integer[], interval, interval[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tenants_guess_begin(bytea[], integer[], interval, interval[]) TO kv_operator;

-- Who was removed has no factor, no linked identity and no address left, in the transaction that removes.
CREATE FUNCTION tenants_user_forget() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  DELETE FROM public.mfa_authenticator WHERE user_id = NEW.id;
  DELETE FROM public.socialaccount_socialtoken WHERE account_id IN (SELECT id FROM public.socialaccount_socialaccount WHERE user_id = NEW.id);
  DELETE FROM public.socialaccount_socialaccount WHERE user_id = NEW.id;
  DELETE FROM public.account_emailaddress WHERE user_id = NEW.id;
  RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION tenants_user_forget() FROM PUBLIC;
CREATE TRIGGER forget AFTER UPDATE OF removed_at ON tenants_user FOR EACH ROW
WHEN (NEW.removed_at IS NOT NULL AND OLD.removed_at IS NULL) EXECUTE FUNCTION tenants_user_forget();

-- A password that somebody else made could have been used by them: with the first own one, what was added before goes.
CREATE TRIGGER forget_before AFTER UPDATE OF password_initial ON tenants_user FOR EACH ROW
WHEN (OLD.password_initial AND NOT NEW.password_initial AND NEW.removed_at IS NULL)
EXECUTE FUNCTION tenants_user_forget();

-- A tenant's administrator works as kv_tenant: it makes people of its own tenant, with roles of tenants only.
GRANT SELECT (kind, password_initial, removed_at, owner_id),
      INSERT (id, username, lookalike, kind, password, email, tenant_id, roles, language, theme, is_active,
              password_initial, removed_at, created_at, last_login),
      UPDATE (username, lookalike, password, email, roles, is_active, password_initial, removed_at)
   ON tenants_user TO kv_tenant;
CREATE POLICY granted_insert ON tenants_user AS RESTRICTIVE FOR INSERT TO kv_tenant
  WITH CHECK (roles::text[] <@ ARRAY['tenant-admin', 'tenant-member', 'gateway']);
CREATE POLICY granted_update ON tenants_user AS RESTRICTIVE FOR UPDATE TO kv_tenant
  USING (true) WITH CHECK (roles::text[] <@ ARRAY['tenant-admin', 'tenant-member', 'gateway']);
CREATE POLICY granted_insert ON tenants_token AS RESTRICTIVE FOR INSERT TO kv_tenant
  WITH CHECK (roles::text[] <@ ARRAY['tenant-admin', 'tenant-member', 'gateway']);
CREATE POLICY granted_update ON tenants_token AS RESTRICTIVE FOR UPDATE TO kv_tenant
  USING (true) WITH CHECK (roles::text[] <@ ARRAY['tenant-admin', 'tenant-member', 'gateway']);
CREATE INDEX tenants_token_owner ON tenants_token (user_id);
CREATE INDEX tenants_token_holder ON tenants_token (holder); -- invitations of people, tokens of nodes
