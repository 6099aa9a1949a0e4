"""Exports and verifications as jobs, and the indexes by which pages of the log are read."""

import kvconsole.infra.sql
from django.db import migrations, models
from kvconsole.infra.sql import audited, protect, script, tenant_keys


class Migration(migrations.Migration):
    dependencies = [("audit", "0003_log")]

    operations = [
        migrations.CreateModel(
            "Job",
            [
                ("id", models.UUIDField(default=kvconsole.infra.sql.uuid7, primary_key=True, serialize=False)),
                ("tenant_id", models.UUIDField()),
                ("kind", models.CharField(max_length=16)),
                ("state", models.CharField(default="queued", max_length=16)),
                ("params", models.JSONField()),
                ("requester", models.JSONField()),
                ("created_at", models.DateTimeField()),
                ("started_at", models.DateTimeField(null=True)),
                ("done_at", models.DateTimeField(null=True)),
                ("expires_at", models.DateTimeField()),
                ("done", models.BigIntegerField(default=0)),
                ("total", models.BigIntegerField(default=0)),
                ("position", models.JSONField(default=dict)),
                ("result", models.JSONField(default=dict)),
                ("problem", models.CharField(blank=True, max_length=63)),
                ("cancel_asked", models.BooleanField(default=False)),
                ("lease_holder", models.TextField(blank=True)),
                ("lease_until", models.DateTimeField(null=True)),
                ("lease_token", models.BigIntegerField(default=0)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        name="audit_job_kind", condition=models.Q(("kind__in", ("export", "verify")))
                    ),
                    models.CheckConstraint(
                        name="audit_job_states",
                        condition=models.Q(
                            ("state__in", ("queued", "running", "done", "failed", "cancelled", "removed"))
                        ),
                    ),
                ],
                "indexes": [models.Index(fields=["state", "created_at"], name="audit_job_state")],
            },
        ),
        *protect("audit_job", tenant_may="SELECT, INSERT, UPDATE (cancel_asked)",
                 operator="SELECT, INSERT, UPDATE, DELETE"),
        *tenant_keys("audit_job"),
        audited("audit_job", "INSERT OR UPDATE OF cancel_asked"),
        script("audit", "reading.sql"),
    ]
