-- The audit trail: events in month partitions, the queue of what is not in the log yet, the producers' counters.

CREATE SEQUENCE audit_event_id_seq;

CREATE TABLE audit_event (
  id           bigint   NOT NULL DEFAULT nextval('audit_event_id_seq'),
  event_id     uuid     NOT NULL,
  event_type   integer  NOT NULL CHECK (event_type BETWEEN 0 AND 65535),
  time_us      bigint   NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
  tenant_id    uuid     NOT NULL,
  tenant_ref   bytea    NOT NULL CHECK (octet_length(tenant_ref) = 16),
  actor_ref    bytea    NOT NULL CHECK (octet_length(actor_ref) = 16),
  outcome      smallint NOT NULL CHECK (outcome BETWEEN 0 AND 3),
  flags        smallint NOT NULL CHECK (flags BETWEEN 0 AND 255),
  producer_id  integer  NOT NULL CHECK (producer_id BETWEEN 0 AND 65535),
  producer_seq bigint   NOT NULL,
  body         bytea    NOT NULL,
  body_hash    bytea    NOT NULL
    CHECK (body_hash = sha256('\x6b76636f6e736f6c652f61756469742d626f64792f763100'::bytea || body)),
  pii_ct       bytea,
  pii_commit   bytea    NOT NULL CHECK (octet_length(pii_commit) = 32),
  pii_key      bytea    CHECK (octet_length(pii_key) = 16),
  object_kind  text     NOT NULL,
  object_id    text     NOT NULL,
  request_id   text     NOT NULL,
  CHECK ((flags & 1 = 1) = (pii_ct IS NOT NULL) AND (pii_ct IS NULL) = (pii_key IS NULL)),
  PRIMARY KEY (id, time_us)
) PARTITION BY RANGE (time_us);
CREATE UNIQUE INDEX audit_event_uuid ON audit_event (event_id, time_us);
CREATE INDEX audit_event_tenant ON audit_event (tenant_id, time_us);
CREATE INDEX audit_event_object ON audit_event (object_kind, object_id, time_us);
ALTER SEQUENCE audit_event_id_seq OWNED BY audit_event.id;

CREATE TABLE audit_pending (
  event   bigint PRIMARY KEY,
  time_us bigint NOT NULL,
  xact    xid8   NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX audit_pending_xact ON audit_pending (xact);

-- A producer's number goes up by one per committed event: the row lock lasts until commit, and a rollback takes the
-- number back. A transaction takes any slot that no other one holds, so that writers do not wait for each other.
-- 0 to 63 are the console's own, 64 to 127 those of sessions of tenants: who acted is only as sure as who wrote it.
CREATE TABLE audit_producer (id integer PRIMARY KEY, seq bigint NOT NULL) WITH (fillfactor = 10);
INSERT INTO audit_producer SELECT i, 0 FROM generate_series(0, 127) i;

CREATE FUNCTION audit_number() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  base integer := CASE session_user WHEN 'kv_tenant' THEN 64 ELSE 0 END;
BEGIN
  UPDATE public.audit_producer SET seq = seq + 1
   WHERE id = (SELECT id FROM public.audit_producer WHERE id BETWEEN base AND base + 63
                ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)
  RETURNING id, seq INTO NEW.producer_id, NEW.producer_seq;
  IF NOT FOUND THEN  -- all slots are held: wait for one
    UPDATE public.audit_producer SET seq = seq + 1 WHERE id = base + pg_backend_pid() % 64
    RETURNING id, seq INTO NEW.producer_id, NEW.producer_seq;
  END IF;
  RETURN NEW;
END $$;

-- Under which name the log knows a tenant. A session of the tenant's role can give its events no other one.
CREATE TABLE audit_tenantref (
  tenant_id  uuid  PRIMARY KEY,
  tenant_ref bytea NOT NULL UNIQUE CHECK (octet_length(tenant_ref) = 16)
);

CREATE FUNCTION audit_named() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  nobody constant bytea := decode(repeat('00', 16), 'hex');  -- the platform's
  tenants boolean := session_user = 'kv_tenant';
  known bytea;
BEGIN
  IF NEW.tenant_id = '00000000-0000-7000-8000-000000000001' THEN
    RETURN NEW;
  END IF;
  IF tenants AND NEW.tenant_id IS DISTINCT FROM public.tenant_now() THEN
    RETURN NEW;  -- row-level security refuses it, without a word of that tenant
  END IF;
  SELECT r.tenant_ref INTO known FROM public.audit_tenantref r WHERE r.tenant_id = NEW.tenant_id;
  IF known = NEW.tenant_ref THEN
    RETURN NEW;
  END IF;
  IF tenants AND (known IS NOT NULL OR NEW.tenant_ref = nobody
                  OR EXISTS (SELECT FROM public.audit_tenantref r WHERE r.tenant_ref = NEW.tenant_ref)) THEN
    RAISE EXCEPTION 'an event of a tenant goes by the tenant''s own name' USING ERRCODE = '42501';
  END IF;
  INSERT INTO public.audit_tenantref AS r (tenant_id, tenant_ref) VALUES (NEW.tenant_id, NEW.tenant_ref)
  ON CONFLICT (tenant_id) DO UPDATE SET tenant_ref = excluded.tenant_ref;
  RETURN NEW;
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

CREATE FUNCTION audit_enqueue() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  INSERT INTO public.audit_pending (event, time_us) VALUES (NEW.id, NEW.time_us);
  RETURN NULL;
END $$;

CREATE FUNCTION audit_immutable() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION '% on % is refused: the audit trail only grows', TG_OP, TG_TABLE_NAME USING ERRCODE = '42501';
END $$;

-- Only the sequencer takes from the queue, and it does so in the transaction that writes the leaves.
CREATE FUNCTION audit_drain_only() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF current_user <> 'kv_seq' THEN
    RAISE EXCEPTION '% on % is refused: only the sequencer drains it', TG_OP, TG_TABLE_NAME USING ERRCODE = '42501';
  END IF;
  RETURN OLD;
END $$;

-- Deferred on every table of intent, rights, keys and evidence (kvconsole.infra.sql.audited): no event, no commit.
CREATE FUNCTION audit_required() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF session_user IN ('kv_tenant', 'kv_operator', 'kv_ingest', 'kv_router')
     AND NOT EXISTS (SELECT FROM public.audit_pending WHERE xact = pg_current_xact_id()) THEN
    RAISE EXCEPTION '% of % without an audit event in the same transaction', TG_OP, TG_TABLE_NAME
      USING ERRCODE = '23514', HINT = 'Call audit.services.record in the transaction that makes the change.';
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER named BEFORE INSERT ON audit_event FOR EACH ROW EXECUTE FUNCTION audit_named();
CREATE TRIGGER number BEFORE INSERT ON audit_event FOR EACH ROW EXECUTE FUNCTION audit_number();
CREATE TRIGGER enqueue AFTER INSERT ON audit_event FOR EACH ROW EXECUTE FUNCTION audit_enqueue();
CREATE TRIGGER immutable BEFORE UPDATE OR DELETE ON audit_event FOR EACH ROW EXECUTE FUNCTION audit_immutable();
CREATE TRIGGER untruncatable BEFORE TRUNCATE ON audit_event FOR EACH STATEMENT EXECUTE FUNCTION audit_immutable();
CREATE TRIGGER immutable BEFORE UPDATE ON audit_pending FOR EACH ROW EXECUTE FUNCTION audit_immutable();
CREATE TRIGGER drained BEFORE DELETE ON audit_pending FOR EACH ROW EXECUTE FUNCTION audit_drain_only();
CREATE TRIGGER untruncatable BEFORE TRUNCATE ON audit_pending FOR EACH STATEMENT EXECUTE FUNCTION audit_immutable();
CREATE TRIGGER undeletable BEFORE DELETE ON audit_producer FOR EACH ROW EXECUTE FUNCTION audit_immutable();
CREATE TRIGGER untruncatable BEFORE TRUNCATE ON audit_producer FOR EACH STATEMENT EXECUTE FUNCTION audit_immutable();
-- ALWAYS: they also fire for who sets session_replication_role = replica.
ALTER TABLE audit_event ENABLE ALWAYS TRIGGER number;
ALTER TABLE audit_event ENABLE ALWAYS TRIGGER enqueue;
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

REVOKE ALL ON FUNCTION audit_named(), audit_number(), audit_enqueue(), audit_required(), audit_partition(date) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION audit_partition(date) TO kv_seq;
GRANT USAGE ON SEQUENCE audit_event_id_seq TO kv_tenant, kv_operator, kv_ingest, kv_seq;
