"""Layouts and families of models, roll-outs, who used which epoch, share groups."""

from importlib import resources

import django.db.models.deletion
import msgspec
from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models

import kvconsole.infra.sql
from kvconsole.infra.sql import CONTEXT, PLATFORM, audited, parent_key, protect, tenant_keys
from kvcore.layout import layout_of
from kvcore.sizes import ConfigError
from tenants.lookalikes import skeleton

ALL = "SELECT, INSERT, UPDATE, DELETE"


def fill(apps, editor):
    """Models that are there are bases of themselves."""
    for model in apps.get_model("tenants", "Model").objects.using(editor.connection.alias).all():
        model.family, model.lookalike = model.name, skeleton(model.name)[:400]
        try:
            model.layout = msgspec.to_builtins(layout_of(model.config, kv_dtype=model.kv_dtype))
        except ConfigError:
            model.layout = {}
        model.save(update_fields=["family", "lookalike", "layout"])


def tenant():
    return models.ForeignKey(
        db_index=False, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant"
    )  # the primary key begins with it


def uuid_key():
    return models.UUIDField(default=kvconsole.infra.sql.uuid7, primary_key=True, serialize=False)


def number():
    return models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")


def unique(model, name, *fields, **more):
    return migrations.AddConstraint(model, models.UniqueConstraint(fields=fields, name=name, **more))


class Migration(migrations.Migration):
    dependencies = [("tenants", "0003_accounts")]

    operations = [
        migrations.AddField(
            "tenant", "former_classes", ArrayField(base_field=models.CharField(max_length=63), db_default=[], size=None)
        ),
        migrations.AddField("model", "base", models.CharField(blank=True, max_length=200, default=""), False),
        migrations.AddField("model", "family", models.CharField(max_length=200, default=""), False),
        migrations.AddField("model", "layout", models.JSONField(default=dict)),
        migrations.AddField("model", "lookalike", models.CharField(max_length=400, default=""), False),
        migrations.RunPython(fill, migrations.RunPython.noop),
        migrations.RunSQL("SET CONSTRAINTS ALL IMMEDIATE", migrations.RunSQL.noop),
        unique("model", "tenants_model_lookalike", "tenant", "lookalike"),
        migrations.AddIndex("model", models.Index(fields=["tenant", "family"], name="tenants_model_family")),
        migrations.AddField("namespace", "share_group", models.UUIDField(null=True)),
        migrations.AddField("fenceentry", "share_group", models.UUIDField(null=True)),
        migrations.AddConstraint(
            "namespace",
            models.CheckConstraint(
                name="tenants_namespace_shared",
                condition=models.Q(("share_group", None), ("tenant", PLATFORM), _connector="OR"),
            ),
        ),
        migrations.AddIndex(
            "namespace",
            models.Index(
                fields=["share_group"],
                name="tenants_namespace_group",
                condition=models.Q(("share_group", None), _negated=True),
            ),
        ),
        migrations.CreateModel(
            "Rollout",
            [
                ("id", uuid_key()),
                ("version", models.IntegerField()),
                ("shares", models.JSONField()),
                ("before", models.JSONField()),
                ("held", models.JSONField()),
                ("horizon_seconds", models.IntegerField()),
                ("changed_at", models.DateTimeField()),
                (
                    "model",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="rollouts", to="tenants.model",
                        db_constraint=False,
                    ),
                ),
                ("tenant", tenant()),
            ],
        ),
        unique("rollout", "tenants_rollout_model", "tenant", "model"),
        migrations.CreateModel(
            "EpochBytes",
            [
                ("id", number()),
                ("model_id", models.UUIDField()),
                ("epoch", models.IntegerField()),
                ("t0", models.DateTimeField()),
                ("size_bytes", models.BigIntegerField()),
                ("blocks", models.BigIntegerField()),
                ("stale_hit_tokens", models.BigIntegerField()),
                ("tenant", tenant()),
            ],
        ),
        unique("epochbytes", "tenants_epochbytes_minute", "tenant", "model_id", "epoch", "t0"),
        migrations.CreateModel(
            "EpochUse",
            [
                ("id", number()),
                ("model_id", models.UUIDField()),
                ("epoch", models.IntegerField()),
                ("adapter_digest", models.CharField(blank=True, max_length=128)),
                ("day", models.DateField()),
                ("first_at", models.DateTimeField()),
                ("last_at", models.DateTimeField()),
                ("tenant", tenant()),
            ],
        ),
        unique("epochuse", "tenants_epochuse_day", "tenant", "model_id", "epoch", "adapter_digest", "day"),
        migrations.CreateModel(
            "ShareGroup",
            [
                ("id", uuid_key()),
                ("owner_slug", models.CharField(max_length=63)),
                ("name", models.CharField(max_length=63)),
                ("reason", models.CharField(max_length=500)),
                ("residency", models.CharField(blank=True, max_length=63)),
                ("state", models.CharField(default="awaiting_approval", max_length=24)),
                ("requested_by", models.CharField(max_length=100)),
                ("requested_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("decided_by", models.CharField(blank=True, max_length=100)),
                ("decided_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                ("tenant", tenant()),
            ],
        ),
        unique(
            "sharegroup",
            "tenants_sharegroup_name",
            "tenant",
            "name",
            condition=models.Q(("state__in", ("awaiting_approval", "approved"))),
        ),
        migrations.CreateModel(
            "ShareMember",
            [
                ("id", number()),
                ("owner", models.UUIDField()),
                ("slug", models.CharField(max_length=63)),
                ("state", models.CharField(max_length=24)),
                ("expires_at", models.DateTimeField()),
                (
                    "group",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="members", to="tenants.sharegroup",
                        db_constraint=False,
                    ),
                ),
                ("tenant", tenant()),
            ],
        ),
        unique("sharemember", "tenants_sharemember_once", "tenant", "group"),
        migrations.AddIndex("sharemember", models.Index(fields=["group"], name="tenants_sharemember_group")),
        *[
            migrations.AddIndex(model, models.Index(fields=[field, "id"], name=f"tenants_{model}_listed"))
            for model, field in (("model", "name"), ("adapter", "created_at"), ("sharegroup", "requested_at"))
        ],
        *protect("tenants_rollout", shared=True, tenant_may="SELECT (id, tenant_id, model_id, version, shares)",
                 operator=ALL, router="SELECT"),
        *protect("tenants_epochbytes", operator=ALL),
        *protect("tenants_epochuse", tenant_may="SELECT, INSERT (tenant_id, model_id, epoch, adapter_digest, day, first_at,"
                 " last_at), UPDATE (last_at)", operator="SELECT, INSERT, UPDATE"),
        *protect("tenants_sharegroup", tenant_may="SELECT (id, tenant_id, owner_slug, name, reason, residency, state,"
                 " requested_at, expires_at, decided_at, ended_at), UPDATE (state, ended_at)", operator=ALL,
                 ingest="SELECT", router="SELECT"),
        *protect("tenants_sharemember", tenant_may="SELECT, UPDATE (state)", operator=ALL, ingest="SELECT",
                 router="SELECT"),
        *tenant_keys("tenants_rollout", model=("model_id", "tenants_model")),
        *[tenant_keys(f"tenants_{name}")[0] for name in ("epochbytes", "epochuse", "sharegroup", "sharemember")],
        migrations.RunSQL(
            ";".join(parent_key("tenants_sharemember", "group", "group_id", "tenants_sharegroup", "owner")),
            migrations.RunSQL.noop,
        ),
        *[
            migrations.RunSQL(
                resources.files("tenants").joinpath("sql", name).read_text()
                .replace(":tenant:", CONTEXT).replace(":platform:", f"'{PLATFORM}'"),
                migrations.RunSQL.noop,
            )
            for name in ("reuse.sql", "wall.sql")
        ],
        *[audited(f"tenants_{name}") for name in ("rollout", "sharegroup", "sharemember")],
    ]
