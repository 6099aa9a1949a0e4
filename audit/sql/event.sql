-- The audit trail: events in month partitions, the queue of what is not in the log yet, the producers' counters.

CREATE SEQUENCE audit_event_id_seq;

-- What a row must be is checked by the trigger that enters it (`audit_enter`): the checks of a table are read anew, as
-- text, by every statement that inserts, which took as long as the insert itself.
CREATE TABLE audit_event (
  id           bigint   NOT NULL,
  event_id     uuid     NOT NULL,
  event_type   integer  NOT NULL,
  time_us      bigint   NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
  tenant_id    uuid     NOT NULL,
  tenant_ref   bytea    NOT NULL,
  actor_ref    bytea    NOT NULL,
  outcome      smallint NOT NULL,
  flags        smallint NOT NULL,
  producer_id  integer  NOT NULL,
  producer_seq bigint   NOT NULL,
  body         bytea    NOT NULL,
  body_hash    bytea    NOT NULL,
  pii_ct       bytea,
  pii_commit   bytea    NOT NULL,
  pii_key      bytea,
  object_kind  text     NOT NULL,
  object_id    text     NOT NULL,
  request_id   text     NOT NULL,
  PRIMARY KEY (id, time_us)
) PARTITION BY RANGE (time_us);
-- Not unique: a row that "ON CONFLICT DO NOTHING" leaves out would still be in the queue.
CREATE INDEX audit_event_uuid ON audit_event (event_id);
CREATE INDEX audit_event_tenant ON audit_event (tenant_id, time_us);
CREATE INDEX audit_event_object ON audit_event (object_kind, object_id, time_us);
ALTER SEQUENCE audit_event_id_seq OWNED BY audit_event.id;

CREATE TABLE audit_pending (
  event   bigint PRIMARY KEY,
  time_us bigint NOT NULL
);

-- A producer's number goes up by one per committed event: the row lock lasts until commit, and a rollback takes the
-- number back, and with it what tells that the transaction has an event (`xact`).
-- 0 to 63 are the console's own, 64 to 127 those of sessions of tenants: who acted is only as sure as who wrote it.
CREATE TABLE audit_producer (
  id   integer PRIMARY KEY,
  seq  bigint  NOT NULL,
  xact xid8
) WITH (fillfactor = 10);
INSERT INTO audit_producer SELECT i, 0 FROM generate_series(0, 127) i;

-- Under which name the log knows a tenant. A session of the tenant's role can give its events no other one.
CREATE TABLE audit_tenantref (
  tenant_id  uuid  PRIMARY KEY,
  tenant_ref bytea NOT NULL UNIQUE CHECK (octet_length(tenant_ref) = 16)
);

-- How many strings a JSON text has, twice: what is escaped is no end of one.
CREATE FUNCTION audit_quotes(said text) RETURNS integer LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
  SELECT octet_length(t) - octet_length(replace(t, '"', ''))
    FROM replace(replace(said, E'\\\\', ''), E'\\"', '') AS t
$$;

-- What every reader reads alike: one object on one line, no key twice, no half of a character, no number that some
-- take for another one, not deep. A body stays for ever, and an export is checked as a whole: one that is none of these
-- would spoil every export that has it.
CREATE FUNCTION audit_sound_slowly(said text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  found jsonb := replace(said, E'\\u0000', E'\\u0001')::jsonb;  -- it refuses halves of characters, and zeros without need
BEGIN
  RETURN jsonb_typeof(found) = 'object' AND strpos(said, chr(10)) = 0 AND strpos(said, chr(13)) = 0
     AND NOT jsonb_path_exists(found, '$.**{64}')
     AND NOT jsonb_path_exists(found, '$.** ? (@.type() == "number"
                                              && (@ >= 9007199254740992 || @ <= -9007199254740992))')
     AND public.audit_quotes(said) = public.audit_quotes(found::text);  -- of a key that stands twice one is left
END $$;

-- The same, fast for what services write. Only `audit_enter` calls it, and its names are found as that one's are.
DO $$
BEGIN
  EXECUTE format($f$
    CREATE FUNCTION audit_sound(body bytea) RETURNS boolean LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $b$
    DECLARE
      said text := convert_from(body, 'UTF8');
    BEGIN
      IF %s THEN
        RETURN true;
      END IF;
      RETURN public.audit_sound_slowly(said);
    END $b$ $f$,
    CASE WHEN current_setting('server_version_num')::integer < 160000 THEN 'false' ELSE  -- before, it has no such test
      $t$octet_length(body) <= 1000 AND said !~ E'[0-9]{16}|\\\\u|\n|\r'  -- once over it, however much it looks for
         AND octet_length(body) - octet_length(replace(replace(said, '[', ''), '{', '')) < 64
         AND said IS JSON OBJECT WITH UNIQUE KEYS$t$ END);
END $$;

-- Every event comes in by this one function, as each call of one costs a transaction time of its own: it is checked,
-- it goes by its tenant's name, it gets its number, and it is in the queue.
CREATE FUNCTION audit_enter() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  slot integer := pg_backend_pid() % 64 + CASE session_user WHEN 'kv_tenant' THEN 64 ELSE 0 END;
BEGIN
  -- An empty body is one that went (`audit_retire`): none is written so.
  IF NOT (octet_length(NEW.body) BETWEEN 1 AND 1052672 AND coalesce(octet_length(NEW.pii_ct), 0) <= 1100000
          AND octet_length(NEW.object_kind) <= 400 AND octet_length(NEW.object_id) <= 8192
          AND octet_length(NEW.request_id) <= 400
          AND NEW.body_hash = sha256('\x6b76636f6e736f6c652f61756469742d626f64792f763100'::bytea || NEW.body)
          AND octet_length(NEW.tenant_ref) = 16 AND octet_length(NEW.actor_ref) = 16
          AND octet_length(NEW.pii_commit) = 32 AND (NEW.pii_key IS NULL OR octet_length(NEW.pii_key) = 16)
          AND (NEW.flags & 1 = 1) = (NEW.pii_ct IS NOT NULL) AND (NEW.pii_ct IS NULL) = (NEW.pii_key IS NULL)
          AND NEW.outcome BETWEEN 0 AND 3 AND NEW.flags BETWEEN 0 AND 255 AND NEW.event_type BETWEEN 0 AND 65535
          AND public.audit_sound(NEW.body)) THEN
    RAISE EXCEPTION 'no event is like this: a length, a hash, a number, its flags or its body are wrong' USING ERRCODE = '23514';
  END IF;
  IF NEW.tenant_id <> '00000000-0000-7000-8000-000000000001'  -- the platform's go without a name
     AND (session_user <> 'kv_tenant' OR NEW.tenant_id = public.tenant_now()) THEN  -- others': row-level security
    PERFORM FROM public.audit_tenantref r WHERE r.tenant_id = NEW.tenant_id AND r.tenant_ref = NEW.tenant_ref;
    IF NOT FOUND THEN
      PERFORM public.audit_name(NEW.tenant_id, NEW.tenant_ref);
    END IF;
  END IF;
  -- A transaction takes any slot that no other one holds, so that writers do not wait for each other; first its
  -- session's own, which nearly always is free.
  UPDATE public.audit_producer SET seq = seq + 1, xact = pg_current_xact_id()
   WHERE id = (SELECT p.id FROM public.audit_producer p WHERE p.id = slot FOR NO KEY UPDATE SKIP LOCKED)
  RETURNING id, seq INTO NEW.producer_id, NEW.producer_seq;
  IF NOT FOUND THEN
    UPDATE public.audit_producer SET seq = seq + 1, xact = pg_current_xact_id()
     WHERE id = (SELECT p.id FROM public.audit_producer p WHERE p.id BETWEEN slot / 64 * 64 AND slot / 64 * 64 + 63
                  ORDER BY p.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
    RETURNING id, seq INTO NEW.producer_id, NEW.producer_seq;
    IF NOT FOUND THEN  -- all slots are held: wait for one
      UPDATE public.audit_producer SET seq = seq + 1, xact = pg_current_xact_id() WHERE id = slot
      RETURNING id, seq INTO NEW.producer_id, NEW.producer_seq;
    END IF;
  END IF;
  -- Number and id are taken while the slot is held, so the ids of a producer's events go up with its numbers: whoever
  -- orders by id orders each producer's events as they were committed.
  NEW.id := nextval('public.audit_event_id_seq');
  INSERT INTO public.audit_pending (event, time_us) VALUES (NEW.id, NEW.time_us);
  RETURN NEW;
END $$;

-- A tenant's name in the log is not the one that is known: only the console's own sessions may give it another.
CREATE FUNCTION audit_name(tenant uuid, said bytea) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF session_user = 'kv_tenant' AND (
       said = decode(repeat('00', 16), 'hex')  -- the platform's
       OR EXISTS (SELECT FROM public.audit_tenantref r WHERE r.tenant_id = tenant OR r.tenant_ref = said)) THEN
    RAISE EXCEPTION 'an event of a tenant goes by the tenant''s own name' USING ERRCODE = '42501';
  END IF;
  INSERT INTO public.audit_tenantref AS r (tenant_id, tenant_ref) VALUES (tenant, said)
  ON CONFLICT (tenant_id) DO UPDATE SET tenant_ref = excluded.tenant_ref;
END $$;

-- What the services record in a session of a tenant's role; everything else is the console's own to say. Of the flags
-- a tenant's event has 1 at most: it holds personal data.
CREATE POLICY of_tenants ON audit_event AS RESTRICTIVE FOR INSERT TO kv_tenant WITH CHECK (
  flags & ~1 = 0
  AND event_type IN (
    272, 273, 274, 275, 276, 277, 278,  -- 0x0110 to 0x0116: user.created to user.stepped_up
    288, 289, 290,                      -- 0x0120 to 0x0122: token.issued, revoked, rotated
    516, 528, 529,                      -- 0x0204, 0x0210, 0x0211: adapter and namespace
    547, 752, 1537));                   -- 0x0223 sharing.revoked, 0x02F0 access.refused, 0x0601 key.leased

CREATE FUNCTION audit_immutable() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION '% on % is refused: the audit trail only grows', TG_OP, TG_TABLE_NAME USING ERRCODE = '42501';
END $$;

-- Only the sequencer takes from the queue, and it does so in the transaction that writes the leaves. Asked once a
-- statement: a trigger of each row has that row locked first, which takes as long as to delete it.
CREATE FUNCTION audit_drain_only() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF current_user <> 'kv_seq' THEN
    RAISE EXCEPTION '% on % is refused: only the sequencer drains it', TG_OP, TG_TABLE_NAME USING ERRCODE = '42501';
  END IF;
  RETURN NULL;
END $$;

-- Deferred on every table of intent, rights, keys and evidence (kvconsole.infra.sql.audited): no event, no commit.
CREATE FUNCTION audit_required() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  slot integer := CASE session_user WHEN 'kv_tenant' THEN 64 ELSE 0 END + pg_backend_pid() % 64;
BEGIN
  IF session_user IN ('kv_tenant', 'kv_operator', 'kv_ingest', 'kv_router')
     AND NOT EXISTS (SELECT FROM public.audit_producer p WHERE p.id = slot AND p.xact = pg_current_xact_id())
     AND NOT EXISTS (SELECT FROM public.audit_producer p WHERE p.xact = pg_current_xact_id()) THEN
    RAISE EXCEPTION '% of % without an audit event in the same transaction', TG_OP, TG_TABLE_NAME
      USING ERRCODE = '23514', HINT = 'Call audit.services.record in the transaction that makes the change.';
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER enter BEFORE INSERT ON audit_event FOR EACH ROW EXECUTE FUNCTION audit_enter();
CREATE TRIGGER immutable BEFORE UPDATE OR DELETE ON audit_event FOR EACH ROW EXECUTE FUNCTION audit_immutable();
CREATE TRIGGER untruncatable BEFORE TRUNCATE ON audit_event FOR EACH STATEMENT EXECUTE FUNCTION audit_immutable();
CREATE TRIGGER immutable BEFORE UPDATE ON audit_pending FOR EACH ROW EXECUTE FUNCTION audit_immutable();
CREATE TRIGGER drained BEFORE DELETE ON audit_pending FOR EACH STATEMENT EXECUTE FUNCTION audit_drain_only();
CREATE TRIGGER untruncatable BEFORE TRUNCATE ON audit_pending FOR EACH STATEMENT EXECUTE FUNCTION audit_immutable();
CREATE TRIGGER undeletable BEFORE DELETE ON audit_producer FOR EACH ROW EXECUTE FUNCTION audit_immutable();
CREATE TRIGGER untruncatable BEFORE TRUNCATE ON audit_producer FOR EACH STATEMENT EXECUTE FUNCTION audit_immutable();
-- ALWAYS: they also fire for who sets session_replication_role = replica.
ALTER TABLE audit_event ENABLE ALWAYS TRIGGER enter;
ALTER TABLE audit_event ENABLE ALWAYS TRIGGER immutable;
ALTER TABLE audit_event ENABLE ALWAYS TRIGGER untruncatable;
ALTER TABLE audit_pending ENABLE ALWAYS TRIGGER immutable;
ALTER TABLE audit_pending ENABLE ALWAYS TRIGGER drained;
ALTER TABLE audit_pending ENABLE ALWAYS TRIGGER untruncatable;
ALTER TABLE audit_producer ENABLE ALWAYS TRIGGER undeletable;
ALTER TABLE audit_producer ENABLE ALWAYS TRIGGER untruncatable;

-- One month of events. Row triggers are inherited as they are; the one against TRUNCATE is not, so each month gets it.
CREATE FUNCTION audit_partition(month date) RETURNS text LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  first  timestamptz := date_trunc('month', month::timestamp) AT TIME ZONE 'UTC';
  after  timestamptz := (date_trunc('month', month::timestamp) + interval '1 month') AT TIME ZONE 'UTC';
  part   text := 'audit_event_' || to_char(month, 'YYYYMM');
BEGIN
  IF to_regclass('public.' || part) IS NOT NULL THEN
    RETURN part;
  END IF;
  EXECUTE format('CREATE TABLE public.%I PARTITION OF public.audit_event FOR VALUES FROM (%s) TO (%s)', part,
                 (extract(epoch FROM first) * 1000000)::bigint, (extract(epoch FROM after) * 1000000)::bigint);
  EXECUTE format('CREATE TRIGGER untruncatable BEFORE TRUNCATE ON public.%I FOR EACH STATEMENT '
                 'EXECUTE FUNCTION public.audit_immutable()', part);
  EXECUTE format('ALTER TABLE public.%I ENABLE ALWAYS TRIGGER untruncatable', part);
  RETURN part;
END $$;

-- What no month was made for is kept all the same.
CREATE TABLE audit_event_rest PARTITION OF audit_event DEFAULT;
CREATE TRIGGER untruncatable BEFORE TRUNCATE ON audit_event_rest FOR EACH STATEMENT EXECUTE FUNCTION audit_immutable();
ALTER TABLE audit_event_rest ENABLE ALWAYS TRIGGER untruncatable;
SELECT public.audit_partition((date_trunc('month', now()) + i * interval '1 month')::date) FROM generate_series(-1, 24) i;

REVOKE ALL ON FUNCTION audit_quotes(text), audit_sound_slowly(text), audit_sound(bytea) FROM PUBLIC;
REVOKE ALL ON FUNCTION audit_enter(), audit_name(uuid, bytea), audit_required(), audit_partition(date) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION audit_partition(date) TO kv_seq;
GRANT USAGE ON SEQUENCE audit_event_id_seq TO kv_tenant, kv_operator, kv_ingest, kv_seq;
