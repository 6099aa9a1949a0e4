"""Keys and foreign keys of tenant data begin with the tenant, and the tenant of a transaction is sealed."""

import django.db.models.deletion
from django.db import migrations, models

from kvconsole.infra.sql import CONTEXT, READABLE, parent_key, script, tenant_keys
from tenants.slugs import slug_skeleton

# Policies made before the seal read a plain setting. (On a new database they are made as they are here.)
RESEAL = f"""
DO $$
DECLARE
  r record;
  own text;
  readable text;
BEGIN
  FOR r IN SELECT p.polname, c.oid::regclass AS name, c.relname FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid
            WHERE NOT p.polpermissive AND p.polname IN ('own', 'own_or_shared', 'own_insert', 'own_update', 'own_delete')
  LOOP
    own := CASE r.relname WHEN 'tenants_tenant' THEN 'id' ELSE 'tenant_id' END || ' = {CONTEXT}';
    readable := 'tenant_id = {READABLE}';
    EXECUTE format('ALTER POLICY %I ON %s', r.polname, r.name) || CASE r.polname
      WHEN 'own_or_shared' THEN format(' USING (%s)', readable)
      WHEN 'own_insert' THEN format(' WITH CHECK (%s)', own)
      WHEN 'own_delete' THEN format(' USING (%s)', own)
      ELSE format(' USING (%s) WITH CHECK (%s)', own, own) END;
  END LOOP;
END $$;
"""


def look(apps, schema_editor):
    for tenant in apps.get_model("tenants", "Tenant").objects.all():
        tenant.lookalike = slug_skeleton(tenant.slug)
        tenant.save(update_fields=["lookalike"])


def foreign(to, **more):
    return models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=to, db_constraint=False, **more)


def alter(model, name, field):
    return migrations.AlterField(model_name=model, name=name, field=field)


def sql(*lines):
    return migrations.RunSQL(";\n".join(lines) + ";", migrations.RunSQL.noop)


class Migration(migrations.Migration):

    dependencies = [("audit", "0001_event"), ("tenants", "0001_identity")]

    operations = [
        script("kvconsole", "seal.sql"),
        sql(RESEAL, "SET CONSTRAINTS ALL IMMEDIATE"),
        migrations.AddField("tenant", "lookalike", models.CharField(max_length=63, default=""), preserve_default=False),
        migrations.RunPython(look, migrations.RunPython.noop),
        alter("tenant", "lookalike", models.CharField(max_length=63, unique=True)),
        # Django's constraints on ids alone go; composite ones come below.
        alter("epoch", "model", foreign("tenants.model", related_name="epochs")),
        alter("adapter", "model", foreign("tenants.model", related_name="adapters")),
        alter("namespace", "model", foreign("tenants.model")),
        alter("namespace", "adapter", foreign("tenants.adapter", null=True)),
        alter("keylease", "namespace", foreign("tenants.namespace")),
        alter("fenceentry", "namespace", foreign("tenants.namespace")),
        alter("token", "user", foreign("tenants.user", null=True)),
        alter("namespace", "digest", models.BinaryField(db_index=True)),
        migrations.AddConstraint(
            "namespace", models.UniqueConstraint(fields=["tenant", "digest"], name="tenants_namespace_digest")
        ),
        *tenant_keys("tenants_model"),
        *tenant_keys("tenants_epoch", model=("model_id", "tenants_model")),
        *tenant_keys("tenants_adapter", also_shared=("model",), model=("model_id", "tenants_model")),
        *tenant_keys("tenants_namespace", also_shared=("model", "adapter"), model=("model_id", "tenants_model"),
                     adapter=("adapter_id", "tenants_adapter")),
        *tenant_keys("tenants_keylease", also_shared=("namespace",), namespace=("namespace_id", "tenants_namespace")),
        *tenant_keys("tenants_fenceack"),
        sql(
            # Staff of the fleet has no tenant: here it is the platform's.
            "ALTER TABLE tenants_user ADD COLUMN owner_id uuid NOT NULL"
            " GENERATED ALWAYS AS (COALESCE(tenant_id, '00000000-0000-7000-8000-000000000001'::uuid)) STORED",
            "ALTER TABLE tenants_user ADD CONSTRAINT tenants_user_owner UNIQUE (owner_id, id)",
        ),
        script("tenants", "own_names.sql"),
        *tenant_keys("tenants_token"),
        sql(*parent_key("tenants_token", "user", "user_id", "tenants_user", shared=True, parents_tenant="owner_id")),
        sql(
            "ALTER TABLE tenants_fenceentry DROP CONSTRAINT tenants_fenceentry_pkey",
            "ALTER TABLE tenants_fenceentry ADD CONSTRAINT tenants_fenceentry_pkey PRIMARY KEY (tenant_id, seq)",
            "CREATE INDEX tenants_fenceentry_by_seq ON tenants_fenceentry (seq)",
            *parent_key("tenants_fenceentry", "namespace", "namespace_id", "tenants_namespace"),
            "DROP INDEX audit_event_uuid",
            "CREATE UNIQUE INDEX audit_event_uuid ON audit_event (tenant_id, event_id, time_us)",
        ),
    ]
