-- The log: one RFC 6962 tree over the leaves of all events, and what is known of it. Only kv_seq writes; nothing that
-- a proof stands on is ever changed or deleted.

CREATE TABLE audit_leaf (
  idx     bigint PRIMARY KEY CHECK (idx >= 0),
  event   bigint NOT NULL,
  time_us bigint NOT NULL,
  hash    bytea  NOT NULL CHECK (octet_length(hash) = 32),
  data    bytea  NOT NULL CHECK (octet_length(data) = 148)
);
-- Numbers of events may come again (a sequence that was set back); an event is a number at a time.
CREATE UNIQUE INDEX audit_leaf_event ON audit_leaf (event, time_us);

CREATE TABLE audit_tree (
  one      boolean PRIMARY KEY DEFAULT true CHECK (one),
  size     bigint  NOT NULL CHECK (size >= 0),
  frontier bytea   NOT NULL,  -- hashes of the perfect subtrees, left to right
  root     bytea   NOT NULL CHECK (octet_length(root) = 32),
  at       timestamptz NOT NULL
) WITH (fillfactor = 10);
INSERT INTO audit_tree (size, frontier, root, at) VALUES (0, ''::bytea, sha256(''::bytea), now());

-- 256 nodes of one level side by side, once all of them are there, and the node above them.
CREATE TABLE audit_tile (
  level  smallint NOT NULL CHECK (level IN (0, 8, 16)),
  tile   bigint   NOT NULL CHECK (tile >= 0),
  hashes bytea    NOT NULL CHECK (octet_length(hashes) = 8192),
  root   bytea    NOT NULL CHECK (octet_length(root) = 32),
  PRIMARY KEY (level, tile)
);
ALTER TABLE audit_tile ALTER COLUMN hashes SET STORAGE EXTERNAL;  -- hashes do not compress

CREATE TABLE audit_checkpoint (
  size      bigint PRIMARY KEY,
  root      bytea  NOT NULL CHECK (octet_length(root) = 32),
  note      text   NOT NULL,
  signed_at timestamptz NOT NULL
);

-- How it stands with signer and witness; `note` is the newest one, which a heartbeat renews at the same size.
CREATE TABLE audit_signing (
  one           boolean PRIMARY KEY DEFAULT true CHECK (one),
  size          bigint NOT NULL DEFAULT 0,
  root          bytea  NOT NULL DEFAULT sha256(''::bytea),
  note          text   NOT NULL DEFAULT '',
  signed_at     timestamptz,
  signer        text   NOT NULL DEFAULT 'away' CHECK (signer IN ('ok', 'refused', 'away')),
  signer_why    text   NOT NULL DEFAULT '',
  witness       text   NOT NULL DEFAULT 'none' CHECK (witness IN ('ok', 'refused', 'away', 'none')),
  witness_why   text   NOT NULL DEFAULT '',
  witness_size  bigint NOT NULL DEFAULT 0,
  cosigned_at   timestamptz
) WITH (fillfactor = 10);
INSERT INTO audit_signing DEFAULT VALUES;

CREATE TABLE audit_finding (
  id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at          timestamptz NOT NULL,
  kind        text   NOT NULL,
  subject     text   NOT NULL,  -- what it is about, so that the same is found once
  first_index bigint,
  detail      text   NOT NULL,
  seen_at     timestamptz NOT NULL DEFAULT clock_timestamp(),  -- when it was found so last
  resolved_at timestamptz
);
CREATE UNIQUE INDEX audit_finding_open ON audit_finding (kind, subject) WHERE resolved_at IS NULL;

-- How far the gap finder and the scrubber are: both go through the log by index; `events` goes through all events by
-- their time, round after round.
CREATE TABLE audit_walk (
  name       text PRIMARY KEY CHECK (name IN ('gaps', 'scrub', 'events')),
  next       bigint NOT NULL DEFAULT 0,
  frontier   bytea  NOT NULL DEFAULT '',
  tally      jsonb  NOT NULL DEFAULT '{}',
  started_at timestamptz,
  spent      float8 NOT NULL DEFAULT 0,
  found      bigint NOT NULL DEFAULT 0,
  done_at    timestamptz,
  done_size  bigint
) WITH (fillfactor = 10);
INSERT INTO audit_walk (name) VALUES ('gaps'), ('scrub'), ('events');

CREATE FUNCTION audit_grows() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF TG_OP = 'UPDATE' THEN
    IF NEW.one AND NEW.size > OLD.size THEN
      RETURN NEW;
    END IF;
  END IF;
  RAISE EXCEPTION '% on % is refused: the audit trail only grows', TG_OP, TG_TABLE_NAME USING ERRCODE = '42501';
END $$;

-- A finding is settled once, and otherwise stays as it was written.
CREATE FUNCTION audit_settles() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF OLD.resolved_at IS NULL AND (NEW.id, NEW.at, NEW.kind, NEW.subject, NEW.detail)
     IS NOT DISTINCT FROM (OLD.id, OLD.at, OLD.kind, OLD.subject, OLD.detail)
     AND NEW.first_index IS NOT DISTINCT FROM OLD.first_index THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION '% on % is refused: findings stay', TG_OP, TG_TABLE_NAME USING ERRCODE = '42501';
END $$;

CREATE TRIGGER grows BEFORE INSERT OR UPDATE OR DELETE ON audit_tree FOR EACH ROW EXECUTE FUNCTION audit_grows();
CREATE TRIGGER settles BEFORE UPDATE ON audit_finding FOR EACH ROW EXECUTE FUNCTION audit_settles();
ALTER TABLE audit_tree ENABLE ALWAYS TRIGGER grows;
ALTER TABLE audit_finding ENABLE ALWAYS TRIGGER settles;
DO $$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['audit_leaf', 'audit_tile', 'audit_checkpoint'] LOOP
    EXECUTE format('CREATE TRIGGER immutable BEFORE UPDATE OR DELETE ON %I FOR EACH ROW '
                   'EXECUTE FUNCTION public.audit_immutable()', name);
    EXECUTE format('ALTER TABLE %I ENABLE ALWAYS TRIGGER immutable', name);
  END LOOP;
  FOREACH name IN ARRAY ARRAY['audit_signing', 'audit_finding', 'audit_walk'] LOOP
    EXECUTE format('CREATE TRIGGER undeletable BEFORE DELETE ON %I FOR EACH ROW '
                   'EXECUTE FUNCTION public.audit_immutable()', name);
    EXECUTE format('ALTER TABLE %I ENABLE ALWAYS TRIGGER undeletable', name);
  END LOOP;
  FOREACH name IN ARRAY ARRAY['audit_leaf', 'audit_tree', 'audit_tile', 'audit_checkpoint', 'audit_signing',
                              'audit_finding', 'audit_walk'] LOOP
    EXECUTE format('CREATE TRIGGER untruncatable BEFORE TRUNCATE ON %I FOR EACH STATEMENT '
                   'EXECUTE FUNCTION public.audit_immutable()', name);
    EXECUTE format('ALTER TABLE %I ENABLE ALWAYS TRIGGER untruncatable', name);
  END LOOP;
END $$;

-- The queue is emptied as fast as it fills: its dead rows must not wait for a fifth of the table.
ALTER TABLE audit_pending SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- Where a tenant's own events are in the log: nothing of others.
CREATE FUNCTION audit_indexes(events bigint[]) RETURNS TABLE (event bigint, idx bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT l.event, l.idx FROM public.audit_leaf l
    JOIN public.audit_event e ON e.id = l.event AND e.time_us = l.time_us
   WHERE l.event = ANY (events) AND e.tenant_id = public.tenant_now()
$$;
REVOKE ALL ON FUNCTION audit_indexes(bigint[]), audit_grows(), audit_settles() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION audit_indexes(bigint[]) TO kv_tenant;
