"""Logs that ended and the ones that go on after them."""

from django.db import migrations
from kvconsole.infra.sql import protect, script


class Migration(migrations.Migration):
    dependencies = [("audit", "0006_retention")]

    operations = [
        script("audit", "epochs.sql"),
        *protect("audit_epoch", tenant=None, operator="SELECT", seq="SELECT", audit="SELECT"),
    ]
