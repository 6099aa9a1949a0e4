-- Epochs: where a log cannot go on (the database was set back behind what was signed, or the key is another's), a new
-- one begins under another name and key. The tables of the old one are set aside as they are, in a schema of their own
-- and under the same names; what was signed and kept of it stays readable and provable, and what came after is sealed
-- anew. Only `audit_epoch_begin` does it, once for each approval of two persons.

CREATE TABLE audit_epoch (
  number        integer PRIMARY KEY CHECK (number > 1),
  origin        text   NOT NULL UNIQUE,   -- of the log that began
  record        text   NOT NULL,          -- that the keys of both logs signed
  approval      uuid   NOT NULL UNIQUE,
  reason        text   NOT NULL,
  old_origin    text   NOT NULL,          -- of the log before
  old_key       text   NOT NULL,
  old_size      bigint NOT NULL,          -- what was signed last of it
  old_root      bytea  NOT NULL CHECK (octet_length(old_root) = 32),
  kept          bigint NOT NULL CHECK (kept >= 0 AND kept <= old_size),
  kept_root     bytea  NOT NULL CHECK (octet_length(kept_root) = 32),
  tally         jsonb  NOT NULL,          -- numbers of producers in what was kept
  at            timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TRIGGER immutable BEFORE UPDATE OR DELETE ON audit_epoch FOR EACH ROW EXECUTE FUNCTION audit_immutable();
CREATE TRIGGER untruncatable BEFORE TRUNCATE ON audit_epoch FOR EACH STATEMENT EXECUTE FUNCTION audit_immutable();
ALTER TABLE audit_epoch ENABLE ALWAYS TRIGGER immutable;
ALTER TABLE audit_epoch ENABLE ALWAYS TRIGGER untruncatable;

ALTER TABLE audit_tree ADD COLUMN epoch integer NOT NULL DEFAULT 1;
ALTER TABLE audit_walk ADD COLUMN epoch integer NOT NULL DEFAULT 1;

-- The leaves of all epochs that can be proved: of one that ended only what was kept.
CREATE FUNCTION audit_epochs_seen() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  parts text := '';
  ended record;
  now_  integer := 1;
BEGIN
  FOR ended IN SELECT e.number - 1 AS number, e.kept FROM public.audit_epoch e ORDER BY e.number LOOP
    parts := parts || format('SELECT %s AS epoch, idx, event, time_us, hash, data FROM'
                             ' audit_log_%s.audit_leaf WHERE idx < %s UNION ALL ', ended.number, ended.number,
                             ended.kept);
    now_ := ended.number + 1;
  END LOOP;
  EXECUTE format('CREATE OR REPLACE VIEW public.audit_leaf_all AS %sSELECT %s AS epoch, idx, event, time_us, hash, data'
                 ' FROM public.audit_leaf', parts, now_);
END $$;
SELECT public.audit_epochs_seen();

-- What guards the tables of the present log; those of one that ended keep their own.
CREATE FUNCTION audit_log_guard() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['audit_leaf', 'audit_tile', 'audit_checkpoint'] LOOP
    EXECUTE format('CREATE TRIGGER immutable BEFORE UPDATE OR DELETE ON public.%I FOR EACH ROW '
                   'EXECUTE FUNCTION public.audit_immutable()', name);
    EXECUTE format('ALTER TABLE public.%I ENABLE ALWAYS TRIGGER immutable', name);
    EXECUTE format('GRANT SELECT, INSERT ON public.%I TO kv_seq', name);
  END LOOP;
  CREATE TRIGGER grows BEFORE INSERT OR UPDATE OR DELETE ON public.audit_tree
    FOR EACH ROW EXECUTE FUNCTION public.audit_grows();
  ALTER TABLE public.audit_tree ENABLE ALWAYS TRIGGER grows;
  GRANT SELECT, UPDATE (size, frontier, root, at) ON public.audit_tree TO kv_seq;
  CREATE TRIGGER undeletable BEFORE DELETE ON public.audit_signing FOR EACH ROW EXECUTE FUNCTION public.audit_immutable();
  ALTER TABLE public.audit_signing ENABLE ALWAYS TRIGGER undeletable;
  GRANT SELECT, UPDATE ON public.audit_signing TO kv_seq;
  FOREACH name IN ARRAY ARRAY['audit_leaf', 'audit_tree', 'audit_tile', 'audit_checkpoint', 'audit_signing'] LOOP
    EXECUTE format('CREATE TRIGGER untruncatable BEFORE TRUNCATE ON public.%I FOR EACH STATEMENT '
                   'EXECUTE FUNCTION public.audit_immutable()', name);
    EXECUTE format('ALTER TABLE public.%I ENABLE ALWAYS TRIGGER untruncatable', name);
    EXECUTE format('GRANT SELECT ON public.%I TO kv_operator, kv_audit', name);
  END LOOP;
END $$;

-- The old log's tables are aside, the new ones empty, and what was not kept waits to be sealed. The caller seals
-- `log.restored` as the first leaf in the same transaction. Answers the number of the new epoch.
CREATE FUNCTION audit_epoch_begin(said audit_epoch) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  ended integer;
  aside text;
  name  text;
BEGIN
  PERFORM FROM public.audit_tree FOR UPDATE;
  IF NOT EXISTS (SELECT FROM public.audit_approval a
                  WHERE a.id = said.approval AND a.kind = 'audit_epoch' AND a.state = 'approved'
                    AND a.decided_by <> '' AND a.decided_by <> a.requested_by
                    AND a.what ->> 'origin' = said.old_origin AND a.what ->> 'reason' = said.reason
                    AND (a.what ->> 'kept')::bigint <= said.kept) THEN
    RAISE EXCEPTION 'nobody approved that this log ends' USING ERRCODE = '42501', DETAIL = 'not-approved';
  END IF;
  IF said.kept > 0 AND NOT EXISTS (SELECT FROM public.audit_checkpoint c
                                   WHERE c.size = said.kept AND c.root = said.kept_root) THEN
    RAISE EXCEPTION 'what is to be kept was never signed' USING ERRCODE = '42501', DETAIL = 'not-signed';
  END IF;
  SELECT coalesce(max(e.number), 1) INTO ended FROM public.audit_epoch e;
  said.number := ended + 1;
  said.at := clock_timestamp();
  aside := 'audit_log_' || ended;
  EXECUTE format('CREATE SCHEMA %I', aside);
  EXECUTE format('GRANT USAGE ON SCHEMA %I TO kv_seq, kv_operator, kv_audit', aside);
  FOREACH name IN ARRAY ARRAY['audit_leaf', 'audit_tree', 'audit_tile', 'audit_checkpoint', 'audit_signing'] LOOP
    EXECUTE format('REVOKE INSERT, UPDATE ON public.%I FROM kv_seq', name);
    EXECUTE format('ALTER TABLE public.%I SET SCHEMA %I', name, aside);
    EXECUTE format('CREATE TABLE public.%I (LIKE %I.%I INCLUDING ALL)', name, aside, name);
  END LOOP;
  ALTER TABLE public.audit_tile ALTER COLUMN hashes SET STORAGE EXTERNAL;
  ALTER TABLE public.audit_tree SET (fillfactor = 10);
  ALTER TABLE public.audit_signing SET (fillfactor = 10);
  INSERT INTO public.audit_tree (size, frontier, root, at, epoch)
  VALUES (0, ''::bytea, sha256(''::bytea), clock_timestamp(), said.number);
  INSERT INTO public.audit_signing DEFAULT VALUES;
  PERFORM public.audit_log_guard();
  INSERT INTO public.audit_epoch SELECT (said).*;
  PERFORM public.audit_epochs_seen();
  EXECUTE format('INSERT INTO public.audit_pending (event, time_us) SELECT event, time_us FROM %I.audit_leaf'
                 ' WHERE idx >= $1 ON CONFLICT (event) DO NOTHING', aside) USING said.kept;
  UPDATE public.audit_walk w SET next = 0, epoch = said.number, tally = said.tally WHERE w.name = 'gaps';
  UPDATE public.audit_walk w SET next = 0, epoch = 1, frontier = '', tally = '{}', started_at = NULL, spent = 0, found = 0
   WHERE w.name = 'scrub';
  UPDATE public.audit_hookposition SET next_index = 0, checkpoint_size = 0;
  RETURN said.number;
END $$;

-- Where a tenant's own events are in the log: nothing of others. An event of the present log has one place.
CREATE OR REPLACE FUNCTION audit_indexes(events bigint[]) RETURNS TABLE (event bigint, idx bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT l.event, l.idx FROM public.audit_leaf_all l
    JOIN public.audit_event e ON e.id = l.event AND e.time_us = l.time_us
   WHERE l.event = ANY (events) AND e.tenant_id = public.tenant_now()
$$;

REVOKE ALL ON FUNCTION audit_epochs_seen(), audit_log_guard(), audit_epoch_begin(audit_epoch) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION audit_epoch_begin(audit_epoch) TO kv_seq;
GRANT SELECT ON audit_leaf_all TO kv_seq, kv_operator, kv_audit;
