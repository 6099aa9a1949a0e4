import kvconsole.infra.sql
from django.db import migrations, models
from kvconsole.infra.sql import audited, protect, script, tenant_keys


class Migration(migrations.Migration):
    """Certificates of deletions."""

    dependencies = [("audit", "0007_epochs")]

    operations = [
        migrations.CreateModel(
            name="Certificate",
            fields=[
                ("id", models.UUIDField(default=kvconsole.infra.sql.uuid7, primary_key=True, serialize=False)),
                ("tenant_id", models.UUIDField()),
                ("operation", models.UUIDField()),
                ("body", models.BinaryField()),
                ("body_hash", models.BinaryField()),
                ("note", models.TextField()),
                ("erasure", models.SmallIntegerField()),
                ("flags", models.JSONField()),
                ("seal", models.BooleanField()),
                ("exceptions", models.IntegerField()),
                ("supplements", models.UUIDField(null=True)),
                ("event", models.BigIntegerField()),
                ("issued_at", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("tenant_id", "operation"), name="audit_certificate_operation")
                ],
            },
        ),
        *protect("audit_certificate", tenant_may="SELECT", operator="SELECT, INSERT", audit="SELECT"),
        *tenant_keys("audit_certificate"),
        audited("audit_certificate"),
        script("audit", "certificates.sql"),
    ]
