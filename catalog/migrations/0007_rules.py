import kvconsole.infra.sql
from django.db import migrations, models
from kvconsole.infra.sql import audited, protect, script, tenant_keys


class Migration(migrations.Migration):
    """Operations that rules ask for, drains, and windows in which nothing starts."""

    dependencies = [
        ("catalog", "0006_pins"),
    ]

    operations = [
        migrations.AddField(
            "operation", "about", models.CharField(blank=True, default="", max_length=200), preserve_default=False
        ),
        migrations.AddField("operation", "drain_from", models.DateTimeField(null=True)),
        migrations.AddField("operation", "drain_until", models.DateTimeField(null=True)),
        migrations.AddField("operation", "windows_passed", models.BooleanField(default=False)),
        migrations.AddConstraint(
            "operation",
            models.UniqueConstraint(
                condition=models.Q(("concluded_at__isnull", True), models.Q(("about", ""), _negated=True)),
                fields=("tenant_id", "trigger", "about"),
                name="catalog_operation_about",
            ),
        ),
        migrations.CreateModel(
            name="DenyWindow",
            fields=[
                ("id", models.UUIDField(default=kvconsole.infra.sql.uuid7, primary_key=True, serialize=False)),
                ("tenant_id", models.UUIDField()),
                ("cron", models.CharField(max_length=100)),
                ("minutes", models.IntegerField()),
                ("from_risk", models.CharField(default="R1", max_length=2)),
                ("reason", models.CharField(max_length=500)),
                ("requested_by", models.CharField(max_length=100)),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "indexes": [models.Index(fields=["tenant_id", "id"], name="catalog_denywindow_tenant")],
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("minutes__gte", 1)), name="catalog_denywindow_minutes"),
                    models.CheckConstraint(
                        condition=models.Q(("from_risk__in", ("R1", "R2", "R3"))), name="catalog_denywindow_risk"
                    ),
                ],
            },
        ),
        *protect("catalog_denywindow", tenant_may="SELECT, INSERT, DELETE", operator="SELECT, INSERT, DELETE"),
        *tenant_keys("catalog_denywindow"),
        audited("catalog_denywindow"),
        script("catalog", "orders.sql"),
    ]
