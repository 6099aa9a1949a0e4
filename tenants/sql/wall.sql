-- What a tenant's role may write, whatever SQL it runs: nothing that means something beyond its own tenant.
-- `:tenant:` and `:platform:` as in reuse.sql. Each attack is in tests/tenants/test_injected_sql.py.

-- Ids are unique within a tenant only. What the fleet does by an id must not reach the row of another tenant that was
-- given the same one: a tenant's ids (RFC 9562, version 7) are made just now, so nobody has them, and cannot be guessed.
CREATE FUNCTION tenants_id_fresh(id uuid) RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
  SELECT abs(('x0000' || left(replace(id::text, '-', ''), 12))::bit(64)::bigint
             - extract(epoch FROM clock_timestamp()) * 1000) < 300000
$$;

CREATE FUNCTION tenants_adapter_own() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF current_user = 'kv_tenant' AND NOT public.tenants_id_fresh(NEW.id) THEN
    RAISE EXCEPTION 'an id is made when it is used' USING ERRCODE = '42501';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER own BEFORE INSERT ON tenants_adapter FOR EACH ROW EXECUTE FUNCTION tenants_adapter_own();

-- Tokens: of the kinds that a tenant makes, for its own people; a node's token and an enrolment are the fleet's alone.
-- (The foreign key sees to it that user_id is a person of the tenant.)
CREATE POLICY own_kinds ON tenants_token AS RESTRICTIVE FOR INSERT TO kv_tenant WITH CHECK (
  used_at IS NULL AND last_used_at IS NULL AND expires_at <= now() + interval '366 days'
  AND CASE kind
        WHEN 'user' THEN user_id IS NOT NULL AND holder = ''
        WHEN 'service' THEN user_id IS NOT NULL AND holder = ''
        WHEN 'gateway' THEN user_id IS NOT NULL AND holder = user_id::text
        WHEN 'invite' THEN user_id IS NULL AND roles = '{}' AND EXISTS (
          SELECT FROM tenants_user u WHERE u.tenant_id = :tenant: AND u.id::text = tenants_token.holder)
        ELSE false END);

CREATE FUNCTION tenants_token_shorter() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF current_user = 'kv_tenant' AND (NEW.expires_at > OLD.expires_at
                                     OR OLD.revoked_at IS NOT NULL AND NEW.revoked_at IS DISTINCT FROM OLD.revoked_at) THEN
    RAISE EXCEPTION 'a tenant ends its tokens sooner, not later' USING ERRCODE = '42501';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER shorter BEFORE UPDATE ON tenants_token FOR EACH ROW EXECUTE FUNCTION tenants_token_shorter();

-- A namespace is what its digest says: SHA-256 over its spec (kvcore.keys.namespace_digest), which names the tenant or
-- the share group. So the digest of somebody else's namespace, whose keys would come with it, cannot be taken, and
-- (tenant, digest) is unique enough.
CREATE FUNCTION tenants_namespace_digest(spec jsonb) RETURNS bytea LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
  SELECT CASE WHEN count(b) = count(*) THEN
           sha256('kvconsole/namespace/v1'::bytea || string_agg(int4send(octet_length(b)) || b, ''::bytea ORDER BY i)) END
    FROM unnest(ARRAY['model', 'weights_epoch', 'weights_digest', 'adapter_digest', 'position', 'modality', 'kv_dtype',
                      'kv_scales', 'tokenizer', 'block_tokens', 'key_scheme', 'scope_kind', 'scope', 'data_class',
                      'label', 'subject', 'session', 'erasure_scope']) WITH ORDINALITY AS f (name, i),
         LATERAL (SELECT convert_to(spec ->> f.name, 'UTF8')) AS v (b)
$$;

CREATE FUNCTION tenants_namespace_own() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  s jsonb := NEW.spec;
BEGIN
  IF current_user <> 'kv_tenant' THEN
    RETURN NEW;
  END IF;
  IF NEW.digest IS DISTINCT FROM public.tenants_namespace_digest(s) OR NOT public.tenants_id_fresh(NEW.id)
     OR (s ->> 'scope_kind', s ->> 'scope') IS DISTINCT FROM (CASE WHEN NEW.share_group IS NULL THEN 'tenant'
          ELSE 'share_group' END, coalesce(NEW.share_group, NEW.tenant_id)::text)
     OR NEW.share_group IS NOT NULL AND (NEW.label <> '' OR NEW.tenant_id <> :platform:)
     OR NEW.generation <> 1 OR NEW.min_gen <> 1 OR NEW.state <> 'active'
     OR (NEW.key_scheme, NEW.model_epoch::text, NEW.data_class, NEW.subject, NEW.session) IS DISTINCT FROM
        (s ->> 'key_scheme', s ->> 'weights_epoch', s ->> 'data_class', s ->> 'subject', s ->> 'session')
     OR NOT EXISTS (SELECT FROM public.tenants_model m
                     WHERE m.id = NEW.model_id AND m.tenant_id IN (NEW.tenant_id, :platform:)
                       AND m.family = s ->> 'model' AND m.block_tokens::text = s ->> 'block_tokens')
     OR s ->> 'adapter_digest' IS DISTINCT FROM coalesce((
          SELECT a.digest FROM public.tenants_adapter a
           WHERE a.id = NEW.adapter_id AND a.tenant_id IN (NEW.tenant_id, :platform:) LIMIT 1), '') THEN
    RAISE EXCEPTION 'a namespace is what its digest says' USING ERRCODE = '42501';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER own BEFORE INSERT ON tenants_namespace FOR EACH ROW EXECUTE FUNCTION tenants_namespace_own();

-- A group's namespace is made while the group is in force, and the group does not end before that is committed: its end
-- locks the row, so it fences every namespace that is or will be there. With the owner's rights, since a member may not
-- lock the row of a group; about a group that the tenant is not in it says the same as about none.
CREATE FUNCTION tenants_namespace_in_group() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM FROM public.tenants_sharegroup g
    WHERE g.id = NEW.share_group AND g.state = 'approved' AND g.expires_at > now()
      AND (session_user <> 'kv_tenant' OR EXISTS (
            SELECT FROM public.tenants_sharemember m
             WHERE m.tenant_id = public.tenant_now() AND m.group_id = g.id AND m.state = 'approved'))
    FOR SHARE OF g;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the share group is not in force' USING ERRCODE = '23514', CONSTRAINT = 'tenants_namespace_in_group';
  END IF;
  RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION tenants_namespace_in_group() FROM PUBLIC;
CREATE TRIGGER in_group BEFORE INSERT ON tenants_namespace FOR EACH ROW WHEN (NEW.share_group IS NOT NULL)
EXECUTE FUNCTION tenants_namespace_in_group();

-- An entry of the fence log is about the namespace that it points to, and a tenant's says how far that is fenced, no
-- further: nothing else can be fenced. A tenant's role finds only the namespaces that it may see.
CREATE FUNCTION tenants_fence_copied() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  fenced bigint;
BEGIN
  SELECT n.digest, n.share_group, n.min_gen INTO NEW.digest, NEW.share_group, fenced
    FROM public.tenants_namespace n WHERE n.tenant_id = NEW.tenant_id AND n.id = NEW.namespace_id;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'there is no such namespace' USING ERRCODE = '42501';
  END IF;
  IF current_user = 'kv_tenant' THEN
    NEW.min_gen := fenced;
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER copied BEFORE INSERT ON tenants_fenceentry FOR EACH ROW EXECUTE FUNCTION tenants_fence_copied();

-- Leases and acknowledgements: of the tenant's gateways, never of nodes; a lease that never ends would hold up whoever
-- waits for the end of a shared namespace's keys.
CREATE POLICY own_gateways_insert ON tenants_keylease AS RESTRICTIVE FOR INSERT TO kv_tenant
  WITH CHECK (holder_kind = 'gateway' AND until <= now() + interval '10 minutes');
CREATE POLICY own_gateways_update ON tenants_keylease AS RESTRICTIVE FOR UPDATE TO kv_tenant
  USING (holder_kind = 'gateway') WITH CHECK (holder_kind = 'gateway' AND until <= now() + interval '10 minutes');
CREATE POLICY own_gateways_insert ON tenants_fenceack AS RESTRICTIVE FOR INSERT TO kv_tenant
  WITH CHECK (holder_kind = 'gateway');
CREATE POLICY own_gateways_update ON tenants_fenceack AS RESTRICTIVE FOR UPDATE TO kv_tenant
  USING (holder_kind = 'gateway') WITH CHECK (holder_kind = 'gateway');

-- Numbers of epochs only grow and are never given twice, whoever writes: blocks are told apart by them.
CREATE FUNCTION tenants_epoch_forward() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF TG_OP = 'DELETE' THEN
    RAISE EXCEPTION 'an epoch is retired, not deleted: its number would be free' USING ERRCODE = '23514';
  END IF;
  IF TG_OP = 'UPDATE' THEN
    IF (NEW.tenant_id, NEW.model_id, NEW.epoch, NEW.weights_digest)
       IS DISTINCT FROM (OLD.tenant_id, OLD.model_id, OLD.epoch, OLD.weights_digest) THEN
      RAISE EXCEPTION 'an epoch stays what it is' USING ERRCODE = '23514';
    END IF;
    RETURN NEW;
  END IF;
  PERFORM FROM public.tenants_model m WHERE m.tenant_id = NEW.tenant_id AND m.id = NEW.model_id FOR NO KEY UPDATE;
  IF NEW.epoch < 1 OR NEW.epoch < (SELECT max(e.epoch) FROM public.tenants_epoch e
                                    WHERE e.tenant_id = NEW.tenant_id AND e.model_id = NEW.model_id) THEN
    RAISE EXCEPTION 'numbers of epochs only grow' USING ERRCODE = '23514';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER forward BEFORE INSERT OR UPDATE OR DELETE ON tenants_epoch
FOR EACH ROW EXECUTE FUNCTION tenants_epoch_forward();
ALTER TABLE tenants_epoch ENABLE ALWAYS TRIGGER forward;
