-- Retention: bodies and personal data of one class of events and one month can go; their leaves stay, and what went is
-- said once and for ever. Only `audit_retire` does it, for an approval of two persons, a year after the month at the
-- earliest. Whoever else tries finds the trigger, superusers too.

-- What went. The scrubber reads it: a body of such a class and month is not missing, it is retired.
CREATE TABLE audit_retired (
  month       date     NOT NULL CHECK (extract(day FROM month) = 1),
  class       smallint NOT NULL CHECK (class BETWEEN 1 AND 255),  -- the high byte of the type
  approval    uuid     NOT NULL,
  events      bigint   NOT NULL,
  first_index bigint,
  last_index  bigint,
  digest      bytea    NOT NULL CHECK (octet_length(digest) = 32),  -- SHA-256 of the body hashes, by event id
  at          timestamptz NOT NULL DEFAULT now(),
  xact        xid8     NOT NULL DEFAULT pg_current_xact_id(),
  PRIMARY KEY (month, class)
);

CREATE FUNCTION audit_month(time_us bigint) RETURNS date LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT date_trunc('month', to_timestamp(time_us / 1000000.0) AT TIME ZONE 'UTC')::date
$$;

CREATE FUNCTION audit_retirable() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF TG_OP <> 'INSERT' THEN
    RAISE EXCEPTION '% on % is refused: what was retired stays said', TG_OP, TG_TABLE_NAME USING ERRCODE = '42501';
  END IF;
  IF (NEW.month + interval '13 months') AT TIME ZONE 'UTC' > now() THEN
    RAISE EXCEPTION 'the bodies of % are kept for twelve months after it', to_char(NEW.month, 'YYYY-MM')
      USING ERRCODE = '42501', DETAIL = 'too-young';
  END IF;
  IF NOT EXISTS (SELECT FROM public.audit_approval a
                  WHERE a.id = NEW.approval AND a.kind = 'audit_retention' AND a.state = 'approved'
                    AND a.decided_by <> '' AND a.decided_by <> a.requested_by
                    AND a.what ->> 'class' = NEW.class::text AND a.what ->> 'month' = to_char(NEW.month, 'YYYY-MM')) THEN
    RAISE EXCEPTION 'nobody approved that these bodies go' USING ERRCODE = '42501', DETAIL = 'not-approved';
  END IF;
  NEW.xact := pg_current_xact_id();
  NEW.at := now();
  RETURN NEW;
END $$;

CREATE TRIGGER retirable BEFORE INSERT OR UPDATE OR DELETE ON audit_retired
  FOR EACH ROW EXECUTE FUNCTION audit_retirable();
CREATE TRIGGER untruncatable BEFORE TRUNCATE ON audit_retired FOR EACH STATEMENT EXECUTE FUNCTION audit_immutable();
ALTER TABLE audit_retired ENABLE ALWAYS TRIGGER retirable;
ALTER TABLE audit_retired ENABLE ALWAYS TRIGGER untruncatable;

-- An event stays as it was written; its body and what is sealed go with the row of `audit_retired` that says so, in the
-- same transaction.
CREATE FUNCTION audit_event_kept() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  bare public.audit_event;
BEGIN
  IF TG_OP = 'UPDATE' THEN
    bare := OLD;
    bare.body := ''::bytea;
    bare.pii_ct := NULL;
    bare.pii_key := NULL;
    IF NEW IS NOT DISTINCT FROM bare AND EXISTS (
         SELECT FROM public.audit_retired r
          WHERE r.class = OLD.event_type >> 8 AND r.month = public.audit_month(OLD.time_us)
            AND r.xact = pg_current_xact_id()) THEN
      RETURN NEW;
    END IF;
  END IF;
  RAISE EXCEPTION '% on % is refused: the audit trail only grows', TG_OP, TG_TABLE_NAME USING ERRCODE = '42501';
END $$;

DROP TRIGGER immutable ON audit_event;
CREATE TRIGGER immutable BEFORE UPDATE OR DELETE ON audit_event FOR EACH ROW EXECUTE FUNCTION audit_event_kept();
ALTER TABLE audit_event ENABLE ALWAYS TRIGGER immutable;

-- The only way. The caller records `log.bodies_retired` in the same transaction, or it does not commit.
CREATE FUNCTION audit_retire(approval_id uuid)
RETURNS TABLE (month date, class smallint, events bigint, first_index bigint, last_index bigint, digest bytea)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  said jsonb;
  since bigint;
  until bigint;
  gone  public.audit_retired;
BEGIN
  SELECT a.what INTO said FROM public.audit_approval a
   WHERE a.id = approval_id AND a.kind = 'audit_retention' AND a.state = 'approved';
  IF NOT FOUND THEN
    RAISE EXCEPTION 'nobody approved that these bodies go' USING ERRCODE = '42501', DETAIL = 'not-approved';
  END IF;
  gone.month := to_date(said ->> 'month', 'YYYY-MM');
  gone.class := (said ->> 'class')::smallint;
  IF (gone.month + interval '13 months') AT TIME ZONE 'UTC' > now() THEN
    RAISE EXCEPTION 'the bodies of % are kept for twelve months after it', to_char(gone.month, 'YYYY-MM')
      USING ERRCODE = '42501', DETAIL = 'too-young';
  END IF;
  since := (extract(epoch FROM gone.month::timestamp AT TIME ZONE 'UTC') * 1000000)::bigint;
  until := (extract(epoch FROM (gone.month + interval '1 month') AT TIME ZONE 'UTC') * 1000000)::bigint;
  IF EXISTS (SELECT FROM public.audit_pending p WHERE p.time_us >= since AND p.time_us < until) THEN
    RAISE EXCEPTION 'some events of the month are not in the log yet' USING ERRCODE = '55000', DETAIL = 'not-sequenced';
  END IF;
  SELECT count(*), min(l.idx), max(l.idx), sha256(coalesce(string_agg(e.body_hash, ''::bytea ORDER BY e.id), ''::bytea))
    INTO gone.events, gone.first_index, gone.last_index, gone.digest
    FROM public.audit_event e LEFT JOIN public.audit_leaf l ON l.event = e.id
   WHERE e.time_us >= since AND e.time_us < until AND e.event_type >> 8 = gone.class;
  INSERT INTO public.audit_retired (month, class, approval, events, first_index, last_index, digest)
  VALUES (gone.month, gone.class, approval_id, gone.events, gone.first_index, gone.last_index, gone.digest);
  UPDATE public.audit_event e SET body = ''::bytea, pii_ct = NULL, pii_key = NULL
   WHERE e.time_us >= since AND e.time_us < until AND e.event_type >> 8 = gone.class;
  RETURN QUERY SELECT gone.month, gone.class, gone.events, gone.first_index, gone.last_index, gone.digest;
END $$;

-- That bodies went is told where they did (0x0F06).
CREATE FUNCTION audit_retired_told() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM public.audit_retired r WHERE r.xact = pg_current_xact_id()) THEN
    RAISE EXCEPTION 'no bodies went in this transaction' USING ERRCODE = '42501', DETAIL = 'not-retired';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER retired BEFORE INSERT ON audit_event FOR EACH ROW WHEN (NEW.event_type = 3846)
  EXECUTE FUNCTION audit_retired_told();
ALTER TABLE audit_event ENABLE ALWAYS TRIGGER retired;

REVOKE ALL ON FUNCTION audit_retire(uuid), audit_retirable(), audit_event_kept(), audit_retired_told() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION audit_retire(uuid) TO kv_operator;

-- How many lines of a file from a time without database are events by now: each line is one exactly once.
CREATE TABLE audit_spool (
  name     text   PRIMARY KEY,
  lines    bigint NOT NULL,
  lost     bigint NOT NULL,
  began_at timestamptz NOT NULL DEFAULT now(),
  ended_at timestamptz
);

-- As in event.sql, with 0x02F3 (a call that changed nothing) and 0x0602 (keys of a tenant's own people destroyed).
DROP POLICY of_tenants ON audit_event;
CREATE POLICY of_tenants ON audit_event AS RESTRICTIVE FOR INSERT TO kv_tenant WITH CHECK (
  flags & ~1 = 0
  AND event_type IN (272, 273, 274, 275, 276, 277, 278, 288, 289, 290, 516, 528, 529, 547, 752, 755, 1537, 1538,
    1794, 1796, 1798, 1799, 1800, 1808, 1809, 1810));  -- what is exported, searched and told to webhooks
