-- `:tenant:` stands for the tenant of the transaction, `:platform:` for the platform's id (migration 0004).
-- Share groups in row-level security: a shared namespace belongs to the platform and is readable through the grant.
-- The grant is a row of the member's own, so these policies need no look at another tenant's data.

-- Whose rows the sealed tenant sees: its own, and those of the groups whose grant holds now, or that it ever was in.
-- A policy asks once a query, against one column: to plan a sub-select of the members, under the policies of their own,
-- took longer than to read a page.
CREATE FUNCTION public.tenant_sees(in_force boolean) RETURNS uuid[]
LANGUAGE plpgsql STABLE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  tenant uuid := (public.tenant_readable())[1];
  of_groups uuid[];
BEGIN
  IF tenant IS NULL THEN
    RETURN '{}';
  ELSIF in_force THEN
    SELECT array_agg(m.group_id) INTO of_groups FROM public.tenants_sharemember m
     WHERE m.tenant_id = tenant AND m.state = 'approved' AND m.expires_at > now();
  ELSE
    SELECT array_agg(m.group_id) INTO of_groups FROM public.tenants_sharemember m WHERE m.tenant_id = tenant;
  END IF;
  RETURN array_cat(ARRAY[tenant], of_groups);
END $$;
REVOKE ALL ON FUNCTION public.tenant_sees(boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.tenant_sees(boolean) TO kv_tenant;
CREATE INDEX tenants_sharemember_granted ON tenants_sharemember (tenant_id, group_id, expires_at)
WHERE state = 'approved';

-- Who sees a namespace or its fence: the members of its group, else its tenant.
ALTER TABLE tenants_namespace ADD COLUMN seen_by uuid NOT NULL
GENERATED ALWAYS AS (coalesce(share_group, tenant_id)) STORED;
CREATE INDEX tenants_namespace_seen ON tenants_namespace (seen_by, id);
ALTER TABLE tenants_fenceentry ADD COLUMN seen_by uuid NOT NULL
GENERATED ALWAYS AS (coalesce(share_group, tenant_id)) STORED;
CREATE INDEX tenants_fenceentry_seen ON tenants_fenceentry (seen_by, seq);

-- A group can be seen by its owner and by those who are or were in it. All that its owner can do with it is end it.
DROP POLICY own ON tenants_sharegroup;
CREATE POLICY own_or_member ON tenants_sharegroup AS RESTRICTIVE FOR SELECT TO kv_tenant USING (
  tenant_id = :tenant: OR id = ANY ((SELECT tenant_sees(false))::uuid[]));
CREATE POLICY own_update ON tenants_sharegroup AS RESTRICTIVE FOR UPDATE TO kv_tenant
  USING (tenant_id = :tenant:)
  WITH CHECK (tenant_id = :tenant: AND state = 'revoked');

-- The owner ends the grants of its own group; a member's row is otherwise the member's.
DROP POLICY own ON tenants_sharemember;
CREATE POLICY own_or_owner ON tenants_sharemember AS RESTRICTIVE FOR SELECT TO kv_tenant USING (
  :tenant: IN (tenant_id, owner));
CREATE POLICY owner_update ON tenants_sharemember AS RESTRICTIVE FOR UPDATE TO kv_tenant
  USING (owner = :tenant:)
  WITH CHECK (owner = :tenant: AND state = 'revoked');

-- A namespace: one's own, or one that a grant which holds now opens.
DROP POLICY own ON tenants_namespace;
CREATE POLICY own_or_granted ON tenants_namespace AS RESTRICTIVE FOR SELECT TO kv_tenant USING (
  seen_by = ANY ((SELECT tenant_sees(true))::uuid[]));
CREATE POLICY own_or_granted_insert ON tenants_namespace AS RESTRICTIVE FOR INSERT TO kv_tenant WITH CHECK (
  tenant_id = :tenant:
  OR (tenant_id = :platform: AND share_group = ANY ((SELECT tenant_sees(true))::uuid[])));
-- Generations and fences only grow (trigger `monotonic`), so the owner of a group may raise those of its namespaces.
CREATE POLICY own_or_owned_update ON tenants_namespace AS RESTRICTIVE FOR UPDATE TO kv_tenant
  USING (tenant_id = :tenant: OR share_group IN (
           SELECT g.id FROM tenants_sharegroup g WHERE g.tenant_id = :tenant:))
  WITH CHECK (tenant_id = :tenant: OR share_group IN (
           SELECT g.id FROM tenants_sharegroup g WHERE g.tenant_id = :tenant:));
CREATE POLICY own_delete ON tenants_namespace AS RESTRICTIVE FOR DELETE TO kv_tenant
  USING (tenant_id = :tenant:);

-- A fence of a shared namespace reaches the gateways of all who are or were in the group: also those it shuts out.
DROP POLICY own ON tenants_fenceentry;
CREATE POLICY own_or_member ON tenants_fenceentry AS RESTRICTIVE FOR SELECT TO kv_tenant USING (
  seen_by = ANY ((SELECT tenant_sees(false))::uuid[]));
CREATE POLICY own_or_owned_insert ON tenants_fenceentry AS RESTRICTIVE FOR INSERT TO kv_tenant
  WITH CHECK (tenant_id = :tenant: OR share_group IN (
           SELECT g.id FROM tenants_sharegroup g WHERE g.tenant_id = :tenant:));

-- A group's grants end with it, whoever ends it; a decision is made once.
CREATE FUNCTION tenants_sharegroup_forward() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NEW.tenant_id <> OLD.tenant_id OR NEW.expires_at > OLD.expires_at
     OR (NEW.state <> OLD.state AND (OLD.state, NEW.state) NOT IN (
           ('awaiting_approval', 'approved'), ('awaiting_approval', 'denied'), ('awaiting_approval', 'expired'),
           ('awaiting_approval', 'revoked'), ('approved', 'revoked'), ('approved', 'expired'))) THEN
    RAISE EXCEPTION 'a share group only goes forward, from % not to %', OLD.state, NEW.state USING ERRCODE = '23514';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER forward BEFORE UPDATE ON tenants_sharegroup FOR EACH ROW EXECUTE FUNCTION tenants_sharegroup_forward();
ALTER TABLE tenants_sharegroup ENABLE ALWAYS TRIGGER forward;
