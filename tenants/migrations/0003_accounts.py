"""Second factors, invitations and service accounts."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("tenants", "0002_tenant_keys")]
    operations: list[migrations.operations.base.Operation] = []
