from django.db import migrations, models
from kvconsole.infra.sql import protect


class Migration(migrations.Migration):
    """What workers report of their load."""

    dependencies = [
        ("catalog", "0007_rules"),
    ]

    operations = [
        migrations.CreateModel(
            name="WorkerLoad",
            fields=[
                ("source", models.IntegerField(primary_key=True, serialize=False)),
                ("dp_rank", models.IntegerField()),
                ("at", models.DateTimeField()),
                ("body", models.JSONField()),
            ],
        ),
        *protect(
            "catalog_workerload",
            tenant=None,
            operator="SELECT",
            ingest="SELECT, INSERT, UPDATE, DELETE",
            router="SELECT",
        ),
    ]
