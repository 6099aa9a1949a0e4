from django.db import migrations, models

from kvconsole.infra.sql import protect


class Migration(migrations.Migration):
    """Where each process with an index says how far it has applied the fences."""

    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="IndexLease",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("fence_seq", models.BigIntegerField()),
                ("seq", models.BigIntegerField()),
                ("mode", models.TextField()),
                ("until", models.DateTimeField()),
            ],
        ),
        *protect(
            "routing_indexlease",
            tenant=None,
            operator="SELECT, INSERT, UPDATE, DELETE",
            router="SELECT, INSERT, UPDATE, DELETE",
            ingest="SELECT",
            audit="SELECT",
        ),
    ]
