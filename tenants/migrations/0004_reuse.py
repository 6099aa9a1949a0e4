"""Roll-outs, lineage and share groups."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("tenants", "0003_accounts")]
    operations: list[migrations.operations.base.Operation] = []
