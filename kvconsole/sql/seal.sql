-- The tenant of a transaction, as something the tenant's role can neither choose nor copy.
--
-- `kv.context` is '<tenant uuid>:<when, 16 digits of ms>:<HMAC-SHA256, hex>' over tenant, time and the number of the
-- backend, under a key that only the console's own roles can read. Whoever runs SQL as kv_tenant can set the
-- parameter, but no value that another tenant's rows answer to. kvconsole.infra.sql.enter makes it.
-- May run again: nothing is lost.
--
-- Here and in every function that runs with its owner's rights, in a policy or in a trigger: names are looked for in
-- pg_catalog alone (pg_temp is named last, as it would come first otherwise), ours are written with their schema.
CREATE TABLE IF NOT EXISTS public.tenant_seal (
  one       boolean PRIMARY KEY DEFAULT true CHECK (one),
  key       bytea NOT NULL CHECK (octet_length(key) = 32),
  inner_key bytea NOT NULL,
  outer_key bytea NOT NULL
);
REVOKE ALL ON public.tenant_seal FROM PUBLIC, kv_tenant;
GRANT SELECT (key) ON public.tenant_seal TO kv_operator, kv_router;

-- HMAC's two keys are made once: the key, padded with zeros to 64 bytes, xor 0x36 and xor 0x5c.
DO $$
DECLARE
  k bytea := sha256(decode(replace(gen_random_uuid()::text || gen_random_uuid()::text || gen_random_uuid()::text,
                                   '-', ''), 'hex'));
  i bytea := k || decode(repeat('00', 32), 'hex');
  o bytea := i;
BEGIN
  FOR n IN 0..63 LOOP
    i := set_byte(i, n, get_byte(i, n) # 54);
    o := set_byte(o, n, get_byte(o, n) # 92);
  END LOOP;
  INSERT INTO public.tenant_seal (key, inner_key, outer_key) VALUES (k, i, o) ON CONFLICT DO NOTHING;
END $$;

-- The tenant and the platform, whose shared rows it may read; nothing where nothing was said, or what was said is
-- forged, another backend's, or more than 30 s older than this transaction. Reads one row; policies call it once a
-- query, and it is the only function that looks at the seal.
CREATE OR REPLACE FUNCTION public.tenant_readable() RETURNS uuid[]
LANGUAGE plpgsql STABLE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  said text := current_setting('kv.context', true);
  i bytea;
  o bytea;
BEGIN
  IF length(said) = 118 THEN
    SELECT s.inner_key, s.outer_key INTO i, o FROM public.tenant_seal s;
    IF right(said, 64) = encode(sha256(o || sha256(i || convert_to(left(said, 54) || pg_backend_pid(), 'UTF8'))), 'hex')
    THEN
      -- It is ours, so it has our form. (To look at the form first costs twice as much as all of this.)
      IF substr(said, 38, 16)::bigint > date_part('epoch', now()) * 1000 - 30000 THEN
        RETURN ARRAY[left(said, 36)::uuid, '00000000-0000-7000-8000-000000000001'::uuid];
      END IF;
    END IF;
  END IF;
  RETURN '{}';
END $$;

-- The tenant alone, or NULL: for functions and triggers. Policies take the first of `tenant_readable`, a call less.
CREATE OR REPLACE FUNCTION public.tenant_now() RETURNS uuid LANGUAGE plpgsql STABLE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN (public.tenant_readable())[1];
END $$;
REVOKE ALL ON FUNCTION public.tenant_now(), public.tenant_readable() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.tenant_now(), public.tenant_readable() TO kv_tenant;

-- Fills the column that names the tenant of a row's parent, which is the row's own tenant or the platform.
-- Arguments: column of the parent's id, column to fill, the parent's table, its column of the tenant.
CREATE OR REPLACE FUNCTION public.tenant_of_parent() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  parent uuid := (to_jsonb(NEW) ->> TG_ARGV[0])::uuid;
  found_tenant uuid;
BEGIN
  IF parent IS NOT NULL THEN
    EXECUTE format('SELECT %I FROM public.%I WHERE id = $1 AND %I IN ($2, $3) ORDER BY %I = $2 DESC LIMIT 1',
                   TG_ARGV[3], TG_ARGV[2], TG_ARGV[3], TG_ARGV[3])
      INTO found_tenant USING parent, NEW.tenant_id, '00000000-0000-7000-8000-000000000001'::uuid;
    -- A parent that is absent or another tenant's: the foreign key refuses it, in the same words.
    found_tenant := coalesce(found_tenant, NEW.tenant_id);
  END IF;
  RETURN jsonb_populate_record(NEW, jsonb_build_object(TG_ARGV[1], found_tenant));
END $$;
