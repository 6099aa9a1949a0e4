-- Log-in names and ids of people are unique over all tenants. So that this tells a tenant nothing of others, its role
-- may give only names that begin with the tenant's own slug, and only ids that were made just now. A name that the
-- fleet gave stays as it is.
CREATE FUNCTION tenants_user_own() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  own record;
  made bigint := ('x0000' || left(replace(NEW.id::text, '-', ''), 12))::bit(64)::bigint;
BEGIN
  IF current_user <> 'kv_tenant' THEN
    RETURN NEW;
  END IF;
  IF TG_OP = 'UPDATE' THEN
    IF NEW.id = OLD.id AND NEW.tenant_id = OLD.tenant_id AND NEW.username = OLD.username
       AND NEW.lookalike = OLD.lookalike THEN
      RETURN NEW;
    END IF;
  END IF;
  SELECT slug, lookalike INTO own FROM public.tenants_tenant WHERE id = NEW.tenant_id;
  IF own.slug IS NULL
     OR NOT (starts_with(NEW.username, own.slug || '/') AND starts_with(NEW.lookalike, own.lookalike || '/')
             OR NEW.username = 'removed ' || NEW.id AND NEW.lookalike = NEW.username)
     OR TG_OP = 'INSERT' AND abs(made - extract(epoch FROM clock_timestamp()) * 1000) > 60000
     OR TG_OP = 'UPDATE' AND NEW.id <> OLD.id THEN
    RAISE EXCEPTION 'a tenant names its own people only' USING ERRCODE = '42501';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER own_names BEFORE INSERT OR UPDATE ON tenants_user FOR EACH ROW EXECUTE FUNCTION tenants_user_own();
