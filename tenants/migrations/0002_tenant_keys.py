"""Keys and foreign keys of tenant data begin with the tenant."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("tenants", "0001_identity")]
    operations: list[migrations.operations.base.Operation] = []
