-- The order of fences is the order of their commits: the lock is held until commit, so no reader at position n can
-- later meet an entry below n. A sequence alone would let a slow transaction appear behind a reader's back.
CREATE SEQUENCE tenants_fence_seq;

CREATE FUNCTION tenants_fence_number() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(4206751001);
  NEW.seq := nextval('public.tenants_fence_seq'::regclass);
  RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION tenants_fence_number() FROM PUBLIC;

CREATE TRIGGER number BEFORE INSERT ON tenants_fenceentry FOR EACH ROW EXECUTE FUNCTION tenants_fence_number();

-- Generations and fences only grow, whoever writes.
CREATE FUNCTION tenants_namespace_monotonic() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF current_user = 'kv_tenant' AND (NEW.generation > OLD.generation + 1 OR NEW.min_gen > NEW.generation) THEN
    RAISE EXCEPTION 'a tenant raises a generation by one' USING ERRCODE = '42501';
  END IF;
  IF NEW.generation < OLD.generation OR NEW.min_gen < OLD.min_gen OR NEW.digest <> OLD.digest
     OR NEW.tenant_id <> OLD.tenant_id THEN
    RAISE EXCEPTION 'a namespace''s generation and fence only grow, and its identity stays' USING ERRCODE = '23514';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER monotonic BEFORE UPDATE ON tenants_namespace FOR EACH ROW EXECUTE FUNCTION tenants_namespace_monotonic();
ALTER TABLE tenants_namespace ENABLE ALWAYS TRIGGER monotonic;
