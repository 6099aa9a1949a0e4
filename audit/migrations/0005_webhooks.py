"""Webhooks: where they lead, what is on its way to them, and how far they were told of the log."""

import kvconsole.infra.sql
from django.db import migrations, models
from kvconsole.infra.sql import audited, protect, tenant_keys


class Migration(migrations.Migration):
    dependencies = [("audit", "0004_jobs")]

    operations = [
        migrations.CreateModel(
            "Webhook",
            [
                ("id", models.UUIDField(default=kvconsole.infra.sql.uuid7, primary_key=True, serialize=False)),
                ("tenant_id", models.UUIDField()),
                ("url", models.CharField(max_length=500)),
                ("name", models.CharField(blank=True, max_length=100)),
                ("events", models.JSONField()),
                ("state", models.CharField(default="active", max_length=16)),
                ("reason", models.CharField(blank=True, max_length=63)),
                ("key_version", models.IntegerField(default=1)),
                ("old_key_until", models.DateTimeField(null=True)),
                ("created_by", models.CharField(max_length=100)),
                ("created_at", models.DateTimeField()),
                ("failing_since", models.DateTimeField(null=True)),
                ("checkpoint_at", models.DateTimeField(null=True)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        name="audit_webhook_states",
                        condition=models.Q(("state__in", ("active", "paused", "disabled"))),
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            "Delivery",
            [
                ("id", models.UUIDField(default=kvconsole.infra.sql.uuid7, primary_key=True, serialize=False)),
                ("tenant_id", models.UUIDField()),
                ("webhook", models.UUIDField()),
                ("kind", models.CharField(max_length=63)),
                ("payload", models.TextField()),
                ("state", models.CharField(default="pending", max_length=16)),
                ("attempts", models.IntegerField(default=0)),
                ("created_at", models.DateTimeField()),
                ("next_at", models.DateTimeField(null=True)),
                ("last_at", models.DateTimeField(null=True)),
                ("status", models.IntegerField(null=True)),
                ("problem", models.CharField(blank=True, max_length=63)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        name="audit_delivery_states",
                        condition=models.Q(("state__in", ("pending", "delivered", "failed", "dropped"))),
                    ),
                ],
                "indexes": [
                    models.Index(fields=["next_at"], name="audit_delivery_due", condition=models.Q(("state", "pending"))),
                    models.Index(fields=["webhook", "created_at"], name="audit_delivery_webhook"),
                ],
            },
        ),
        migrations.CreateModel(
            "HookPosition",
            [
                ("id", models.SmallIntegerField(primary_key=True, serialize=False)),
                ("next_index", models.BigIntegerField()),
                ("checkpoint_size", models.BigIntegerField()),
            ],
            options={
                "constraints": [models.CheckConstraint(name="audit_hookposition_one", condition=models.Q(("id", 1)))],
            },
        ),
        migrations.RunSQL("INSERT INTO audit_hookposition VALUES (1, 0, 0)", migrations.RunSQL.noop),
        *protect("audit_webhook", operator="SELECT, INSERT, UPDATE, DELETE",
                 tenant_may="SELECT, INSERT, UPDATE (url, name, events, state, reason, key_version, old_key_until,"
                            " failing_since), DELETE"),
        *protect("audit_delivery", tenant_may="SELECT, INSERT", operator="SELECT, INSERT, UPDATE, DELETE"),
        *protect("audit_hookposition", tenant=None, operator="SELECT, UPDATE"),
        *tenant_keys("audit_webhook"),
        *tenant_keys("audit_delivery", webhook=("webhook", "audit_webhook")),
        migrations.RunSQL(
            "ALTER TABLE audit_delivery DROP CONSTRAINT audit_delivery_webhook_fk,"
            " ADD CONSTRAINT audit_delivery_webhook_fk FOREIGN KEY (tenant_id, webhook)"
            " REFERENCES audit_webhook (tenant_id, id) ON DELETE CASCADE",
            migrations.RunSQL.noop,
        ),
        audited("audit_webhook", "INSERT OR DELETE OR UPDATE OF url, events, state, key_version"),
    ]
