-- What an operation is, is said once; what it reaches is said before its order; and no order stands in the trail but
-- beside the operation that it is of. What a tenant's session writes is marked: the console looks at it again
-- (`catalog.operation_believing`) before it orders anything.

CREATE FUNCTION catalog_operation_said() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  NEW.said_at := CASE WHEN current_user = 'kv_tenant' THEN clock_timestamp() END;
  IF current_user NOT IN ('kv_tenant', 'kv_operator') THEN
    RETURN NEW;
  END IF;
  -- It goes by the plan that it names, whoever looks at either.
  IF NEW.plan IS NOT NULL AND NOT EXISTS (
       SELECT FROM public.catalog_plan p
        WHERE p.tenant_id = NEW.tenant_id AND p.id = NEW.plan AND p.kind = NEW.kind AND p.plan_hash = NEW.plan_hash
          AND p.risk = NEW.risk AND p.selector = NEW.selector AND p.options - 'places' = NEW.options - 'places')
     OR (NEW.risk = 'R3' OR NEW.windows_passed) AND NOT NEW.needs_approval
     OR num_nonnulls(NEW.order_event, NEW.order_hash, NEW.certificate, NEW.concluded_at, NEW.routed_at,
                     NEW.erased_at, NEW.verified_at) > 0
     OR NEW.outcome <> '' THEN
    RAISE EXCEPTION 'an operation begins as its plan says, and not at its end' USING ERRCODE = '42501';
  END IF;
  IF NEW.said_at IS NOT NULL AND (
       NOT public.tenants_id_fresh(NEW.id) OR NEW.plan IS NULL OR NEW.kind NOT IN ('deletion', 'epoch')
       OR NEW.trigger NOT IN ('user', 'session_end') AND (NEW.trigger, NEW.kind) <> ('epoch', 'epoch')
       OR (NEW.trigger = 'session_end') IS DISTINCT FROM (NEW.requester ->> 'kind' = 'system')
       OR NEW.trigger = 'session_end' AND coalesce(NEW.selector ->> 'session', '') = ''
       OR NEW.requester ->> 'tenant' IS DISTINCT FROM NEW.tenant_id::text
       OR NEW.requested_by IS DISTINCT FROM coalesce('user:' || nullif(NEW.requester ->> 'user_id', ''),
            (NEW.requester ->> 'kind') || ':' || coalesce(nullif(NEW.requester ->> 'holder', ''), NEW.requester ->> 'id'))
       OR NEW.options ? 'supplements' OR NOT NEW.finalizers @> '{catalog,routing,keys}'
       OR num_nonnulls(NEW.approval, NEW.stopped_at, NEW.routed_at, NEW.erased_at,
                       NEW.verified_at) > 0
       OR NEW.outcome <> '' OR NEW.observed_generation <> 0 OR NEW.generation <> 1
       OR NEW.needs_approval AND NEW.fenced_at IS NOT NULL
       OR NEW.not_after > clock_timestamp() + interval '61 days') THEN
    RAISE EXCEPTION 'a tenant asks for no such operation' USING ERRCODE = '42501';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER said BEFORE INSERT ON catalog_operation FOR EACH ROW EXECUTE FUNCTION catalog_operation_said();

-- Whoever may change an operation changes what becomes of it, not what it is. The order is taken back by nobody. What
-- has ended stays as it ended: of all its columns only `due_at` still changes, which nobody is shown and nothing follows
-- from. It ends completed only where it was begun, ordered and not stopped, with a certificate where its kind claims
-- that something is gone (`kvcore.plan_kinds`), and the certificate is its own.
CREATE FUNCTION catalog_operation_kept() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF current_user NOT IN ('kv_tenant', 'kv_operator', 'kv_ingest') THEN
    RETURN NEW;
  END IF;
  IF (NEW.id, NEW.tenant_id, NEW.kind, NEW.trigger, NEW.about, NEW.selector, NEW.plan, NEW.plan_hash, NEW.risk,
      NEW.requested_by, NEW.requester, NEW.needs_approval, NEW.windows_passed, NEW.not_after, NEW.said_at)
     IS DISTINCT FROM
     (OLD.id, OLD.tenant_id, OLD.kind, OLD.trigger, OLD.about, OLD.selector, OLD.plan, OLD.plan_hash, OLD.risk,
      OLD.requested_by, OLD.requester, OLD.needs_approval, OLD.windows_passed, OLD.not_after, OLD.said_at)
     OR OLD.approval <> NEW.approval OR num_nulls(NEW.approval) > num_nulls(OLD.approval)
     OR current_user = 'kv_tenant' AND NEW.due_at > greatest(OLD.due_at, clock_timestamp() + interval '1 minute')
     OR OLD.stopped_at IS NOT NULL AND NEW.stopped_at IS DISTINCT FROM OLD.stopped_at
     OR OLD.concluded_at IS NOT NULL AND to_jsonb(NEW) - 'due_at' <> to_jsonb(OLD) - 'due_at'
     OR (NEW.concluded_at IS NULL) <> (NEW.outcome = '')
     OR OLD.fenced_at IS NULL AND NEW.fenced_at IS NOT NULL AND num_nonnulls(NEW.stopped_at, NEW.concluded_at) > 0
     OR OLD.fenced_at IS NOT NULL AND NEW.fenced_at IS NULL
     OR NEW.fenced_at IS NULL
        AND num_nonnulls(NEW.routed_at, NEW.erased_at, NEW.verified_at, NEW.certificate) > 0
     OR OLD.routed_at IS NOT NULL AND NEW.routed_at IS DISTINCT FROM OLD.routed_at
     OR OLD.erased_at IS NOT NULL AND NEW.erased_at IS DISTINCT FROM OLD.erased_at
     OR OLD.verified_at IS NOT NULL AND NEW.verified_at IS DISTINCT FROM OLD.verified_at
     OR OLD.certificate IS NOT NULL AND NEW.certificate IS DISTINCT FROM OLD.certificate
     OR OLD.concluded_at IS NULL AND NEW.outcome LIKE 'completed%'
        AND (NEW.fenced_at IS NULL OR NEW.stopped_at IS NOT NULL
             OR NEW.order_event IS NULL AND NEW.kind NOT IN ('cordon', 'uncordon')
             OR NEW.certificate IS NULL AND NEW.kind IN ('deletion', 'epoch'))
     OR OLD.order_event IS NULL AND NEW.order_event IS NOT NULL  -- `catalog_ordered` alone
     OR OLD.order_event IS NOT NULL
        AND (NEW.order_event, NEW.order_hash, NEW.options, NEW.deadline, NEW.fenced_at, NEW.fence_seq, NEW.approval)
            IS DISTINCT FROM
            (OLD.order_event, OLD.order_hash, OLD.options, OLD.deadline, OLD.fenced_at, OLD.fence_seq, OLD.approval) THEN
    RAISE EXCEPTION 'an operation stays what it was asked and ordered to be' USING ERRCODE = '42501';
  END IF;
  IF NEW.needs_approval AND OLD.fenced_at IS NULL AND NEW.fenced_at IS NOT NULL THEN  -- apart: not every login reads it
    PERFORM FROM public.audit_approval a
      WHERE a.tenant_id = NEW.tenant_id AND a.id = NEW.approval AND a.object_id = NEW.id::text AND a.state = 'approved';
    IF NOT FOUND THEN
      RAISE EXCEPTION 'nobody agreed to the operation' USING ERRCODE = '42501';
    END IF;
  END IF;
  IF NEW.certificate IS DISTINCT FROM OLD.certificate THEN
    PERFORM FROM public.audit_certificate c
      WHERE c.tenant_id = NEW.tenant_id AND c.id = NEW.certificate AND c.operation = NEW.id;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'a certificate is of one operation' USING ERRCODE = '42501';
    END IF;
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER kept BEFORE UPDATE ON catalog_operation FOR EACH ROW EXECUTE FUNCTION catalog_operation_kept();

-- A node's work is done by its receipt, which has an event, and a receipt that is kept stays what it was, with all that
-- was told by it. What still changes of such a step is `code` (a doubt; it has its own event), `args` (marks of what was
-- compared, and samples that go) and its lease.
CREATE FUNCTION catalog_step_kept() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF current_user NOT IN ('kv_tenant', 'kv_operator', 'kv_ingest') THEN
    RETURN NEW;
  END IF;
  IF NEW.kind IN ('erase', 'verify', 'probe') AND NEW.state IN ('done', 'partial') AND NEW.receipt_event IS NULL
     OR NEW.receipt IS NOT NULL AND NEW.receipt_event IS NULL
     OR TG_OP = 'INSERT' AND num_nonnulls(NEW.receipt, NEW.receipt_event) > 0 THEN
    RAISE EXCEPTION 'a step of a node is done by its receipt' USING ERRCODE = '42501';
  END IF;
  IF TG_OP = 'UPDATE' AND (
       (NEW.id, NEW.tenant_id, NEW.operation, NEW.kind) IS DISTINCT FROM
       (OLD.id, OLD.tenant_id, OLD.operation, OLD.kind)
       OR OLD.receipt_event IS NOT NULL
          AND to_jsonb(NEW) - '{code,args,due_at,lease_holder,lease_until,lease_token}'::text[]
              <> to_jsonb(OLD) - '{code,args,due_at,lease_holder,lease_until,lease_token}'::text[]) THEN
    RAISE EXCEPTION 'a receipt stays what it was' USING ERRCODE = '42501';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER kept BEFORE INSERT OR UPDATE ON catalog_step FOR EACH ROW EXECUTE FUNCTION catalog_step_kept();

-- A tenant's session adds to what it fenced itself, and to nothing that others asked for or that somebody still decides
-- on. The row is locked, so that nothing comes in between the last look at the targets and the order.
CREATE FUNCTION catalog_targets_said() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  one record;
BEGIN
  IF session_user IN ('kv_tenant', 'kv_operator') THEN
    FOR one IN SELECT DISTINCT a.tenant_id, a.operation FROM added a LOOP
      PERFORM FROM public.catalog_operation o
        WHERE o.tenant_id = one.tenant_id AND o.id = one.operation AND o.order_event IS NULL AND o.concluded_at IS NULL
          AND (session_user <> 'kv_tenant' OR o.said_at IS NOT NULL AND o.fenced_at IS NOT NULL)
        FOR SHARE;
      IF NOT FOUND THEN
        RAISE EXCEPTION 'what an operation reaches is said before it is ordered' USING ERRCODE = '42501';
      END IF;
    END LOOP;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER said AFTER INSERT ON catalog_operationtarget REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION catalog_targets_said();

-- An order (0x0501) is of an operation that is fenced or begun, open, and not ordered yet; it says what the row says,
-- and has the second person's approval where the row needs one. The row is told of it in the same statement, so there
-- is one order of an operation and none without.
CREATE FUNCTION catalog_ordered() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  data jsonb := convert_from(NEW.body, 'UTF8')::jsonb -> 'data';
  of_operation text := data ->> 'operation';
BEGIN
  IF of_operation = NEW.object_id AND NEW.object_kind = 'operation'
     AND of_operation ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN
    UPDATE public.catalog_operation o SET order_event = NEW.id, order_hash = NEW.body_hash
     WHERE o.tenant_id = NEW.tenant_id AND o.id = of_operation::uuid
       AND o.order_event IS NULL AND o.concluded_at IS NULL AND o.stopped_at IS NULL AND o.fenced_at IS NOT NULL
       AND encode(o.plan_hash, 'hex') = data ->> 'plan_hash' AND o.risk = data ->> 'risk'
       AND o.approval::text IS NOT DISTINCT FROM data ->> 'approval'
       AND (o.approval IS NOT NULL OR NOT o.needs_approval)
       AND coalesce((data ->> 'targets')::bigint, 0) = (
             SELECT count(*) FROM public.catalog_operationtarget t
              WHERE t.tenant_id = o.tenant_id AND t.operation = o.id);
    IF FOUND THEN
      RETURN NEW;
    END IF;
  END IF;
  RAISE EXCEPTION 'no operation is ordered by this' USING ERRCODE = '42501', DETAIL = 'not-asked';
END $$;
CREATE TRIGGER ordered_beside BEFORE INSERT ON audit_event FOR EACH ROW WHEN (NEW.event_type = 1281)
  EXECUTE FUNCTION catalog_ordered();
ALTER TABLE audit_event ENABLE ALWAYS TRIGGER ordered_beside;
REVOKE ALL ON FUNCTION catalog_operation_said(), catalog_operation_kept(), catalog_step_kept(), catalog_targets_said(),
  catalog_ordered() FROM PUBLIC;
