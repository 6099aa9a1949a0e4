"""In which life of the database its fences were compared with what lies outside of it."""

from django.db import migrations, models

from kvconsole.infra.sql import protect


class Migration(migrations.Migration):
    dependencies = [("tenants", "0004_reuse")]
    operations = [
        migrations.CreateModel(
            name="FenceLife",
            fields=[
                ("id", models.SmallIntegerField(primary_key=True, serialize=False)),
                ("life", models.TextField()),
                ("behind", models.BooleanField()),
                ("answered", models.JSONField(default=list)),
                ("whole", models.BooleanField()),
            ],
        ),
        *protect(
            "tenants_fencelife", tenant=None, operator="SELECT, INSERT, UPDATE", ingest="SELECT", router="SELECT"
        ),
    ]
