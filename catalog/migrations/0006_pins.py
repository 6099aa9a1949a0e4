import kvconsole.infra.sql
from django.db import migrations, models
from kvconsole.infra.sql import audited, protect, tenant_keys


class Migration(migrations.Migration):
    """What is kept where it lies until a time."""

    dependencies = [
        ("catalog", "0005_operations"),
    ]

    operations = [
        migrations.CreateModel(
            name="Pin",
            fields=[
                ("id", models.UUIDField(default=kvconsole.infra.sql.uuid7, primary_key=True, serialize=False)),
                ("tenant_id", models.UUIDField()),
                ("namespace", models.UUIDField()),
                ("digest", models.BinaryField()),
                ("keys", models.JSONField(null=True)),
                ("until", models.DateTimeField()),
                ("reason", models.CharField(blank=True, max_length=500)),
                ("requested_by", models.CharField(max_length=100)),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "indexes": [
                    models.Index(fields=["tenant_id", "until"], name="catalog_pin_tenant"),
                    models.Index(fields=["digest", "until"], name="catalog_pin_digest"),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("until__gt", models.F("created_at"))), name="catalog_pin_ahead"
                    )
                ],
            },
        ),
        *protect("catalog_pin", tenant_may="SELECT, INSERT, DELETE", operator="SELECT, INSERT, DELETE", ingest="SELECT"),
        *tenant_keys("catalog_pin"),
        audited("catalog_pin"),
    ]
