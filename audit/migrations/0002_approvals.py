"""Approvals: what waits for a second person."""

import kvconsole.infra.sql
from django.db import migrations, models
from kvconsole.infra.sql import audited, protect, script, tenant_keys


class Migration(migrations.Migration):
    dependencies = [("audit", "0001_event")]

    operations = [
        migrations.CreateModel(
            "Approval",
            [
                (
                    "id",
                    models.UUIDField(default=kvconsole.infra.sql.uuid7, primary_key=True, serialize=False),
                ),
                ("tenant_id", models.UUIDField()),
                ("kind", models.CharField(max_length=63)),
                ("object_id", models.CharField(max_length=63)),
                ("what", models.JSONField()),
                ("risk", models.CharField(max_length=2)),
                ("state", models.CharField(default="open", max_length=16)),
                ("requested_by", models.CharField(max_length=100)),
                ("requested_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("decided_by", models.CharField(blank=True, max_length=100)),
                ("decided_at", models.DateTimeField(null=True)),
                ("reason", models.CharField(blank=True, max_length=500)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("tenant_id", "kind", "object_id"), name="audit_approval_object"),
                    models.CheckConstraint(
                        name="audit_approval_two_persons",
                        condition=models.Q(
                            models.Q(("state__in", ("approved", "denied")), _negated=True),
                            models.Q(
                                models.Q(("decided_by", models.F("requested_by")), _negated=True),
                                models.Q(("decided_by", ""), _negated=True),
                            ),
                            _connector="OR",
                        ),
                    ),
                ],
                "indexes": [models.Index(fields=["state", "id"], name="audit_approval_state")],
            },
        ),
        # A tenant decides nothing: it only takes back what waits for a decision.
        *protect("audit_approval", tenant_may="SELECT (id, tenant_id, kind, object_id, state), UPDATE (state, decided_at)",
                 operator="SELECT, INSERT, UPDATE (state, decided_by, decided_at, reason)"),
        migrations.RunSQL(
            "CREATE POLICY withdrawn ON audit_approval AS RESTRICTIVE FOR UPDATE TO kv_tenant"
            " USING (state = 'open') WITH CHECK (state = 'withdrawn')",
            migrations.RunSQL.noop,
        ),
        *tenant_keys("audit_approval"),
        audited("audit_approval"),
        script("audit", "orders.sql"),
    ]
