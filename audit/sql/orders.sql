-- What the signer goes by: `order.approved` (0x0501) and `approval.decided` (0x0230). Neither is written but beside the
-- row that it tells of, and each kind of process records its own events alone: who holds the login of one of them can
-- record what that process decides, and nothing in the place of another.

ALTER TABLE audit_approval
  ADD COLUMN decided_xact xid8,  -- of the transaction that decided: its event is of the same one
  ADD COLUMN ordered uuid;       -- the one order that goes by it

-- An approval begins open and is decided once.
CREATE FUNCTION audit_decides() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    IF (NEW.state, NEW.decided_by) <> ('open', '') OR NEW.decided_at IS NOT NULL OR NEW.ordered IS NOT NULL THEN
      RAISE EXCEPTION 'what is asked for is open' USING ERRCODE = '23514';
    END IF;
    NEW.decided_xact := NULL;
    RETURN NEW;
  END IF;
  IF OLD.state <> 'open' AND (NEW.state, NEW.decided_by, NEW.decided_at, NEW.reason)
     IS DISTINCT FROM (OLD.state, OLD.decided_by, OLD.decided_at, OLD.reason) THEN
    RAISE EXCEPTION 'it was % already', OLD.state USING ERRCODE = '23514';
  END IF;
  NEW.decided_xact := CASE WHEN OLD.state = 'open' AND NEW.state <> 'open' THEN pg_current_xact_id()
                           ELSE OLD.decided_xact END;
  RETURN NEW;
END $$;
CREATE TRIGGER decides BEFORE INSERT OR UPDATE ON audit_approval FOR EACH ROW EXECUTE FUNCTION audit_decides();

CREATE FUNCTION audit_ordered() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  said jsonb := convert_from(NEW.body, 'UTF8')::jsonb;
  data jsonb := said -> 'data';
BEGIN
  IF NEW.event_type = 560 THEN
    IF NOT EXISTS (SELECT FROM public.audit_approval a
                    WHERE a.id::text = NEW.object_id AND a.tenant_id = NEW.tenant_id
                      AND a.decided_xact = pg_current_xact_id() AND a.decided_by NOT IN ('', a.requested_by)
                      AND said @> jsonb_build_object('action', 'approval.decided',
                            'object', jsonb_build_object('kind', 'approval', 'id', a.id::text))
                      AND data @> jsonb_build_object('kind', a.kind, 'object', a.object_id, 'decision', a.state,
                                                     'risk', a.risk)) THEN
      RAISE EXCEPTION 'nothing was decided as this event says' USING ERRCODE = '42501', DETAIL = 'not-decided';
    END IF;
  ELSIF data ->> 'approval' IS NOT NULL THEN
    UPDATE public.audit_approval a SET ordered = NEW.event_id
     WHERE a.id::text = data ->> 'approval' AND a.tenant_id = NEW.tenant_id AND a.kind = 'operation'
       AND a.object_id = data ->> 'operation' AND a.risk = data ->> 'risk' AND a.state = 'approved'
       AND a.decided_by NOT IN ('', a.requested_by) AND a.ordered IS NULL
       AND coalesce(a.what ->> 'plan_hash', data ->> 'plan_hash') = data ->> 'plan_hash';
    IF NOT FOUND THEN
      RAISE EXCEPTION 'nobody approved this order, or it was given already'
        USING ERRCODE = '42501', DETAIL = 'not-approved';
    END IF;
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER ordered BEFORE INSERT ON audit_event FOR EACH ROW WHEN (NEW.event_type IN (560, 1281))
  EXECUTE FUNCTION audit_ordered();
ALTER TABLE audit_event ENABLE ALWAYS TRIGGER ordered;
REVOKE ALL ON FUNCTION audit_ordered(), audit_decides() FROM PUBLIC;

-- What stands on the log itself is told by who keeps it. Nodes' affairs are `ingest`'s: sources, nodes, leases of keys,
-- refusals, and namespaces that gateways ask for.
CREATE POLICY of_operator ON audit_event AS RESTRICTIVE FOR INSERT TO kv_operator WITH CHECK (
  (event_type IN (3842, 3843, 3844, 3845, 3849)) IS NOT TRUE);  -- 0x0F02 to 0x0F05 found or refused, 0x0F09 log.restored
CREATE POLICY of_ingest ON audit_event AS RESTRICTIVE FOR INSERT TO kv_ingest WITH CHECK (
  event_type >> 8 IN (3, 4, 6) OR event_type IN (528, 529) OR event_type BETWEEN 752 AND 767);
CREATE POLICY of_seq ON audit_event AS RESTRICTIVE FOR INSERT TO kv_seq WITH CHECK (event_type >= 3840);
