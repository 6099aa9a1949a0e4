"""Bodies that may go, files from times without database, and what tenants' sessions may record."""

from django.db import migrations
from kvconsole.infra.sql import audited, protect, script


class Migration(migrations.Migration):
    dependencies = [("audit", "0005_webhooks")]

    operations = [
        script("audit", "retention.sql"),
        *protect("audit_retired", tenant=None, operator="SELECT", seq="SELECT", audit="SELECT"),
        *protect("audit_spool", tenant=None, operator="SELECT, INSERT (name, lines, lost), UPDATE (lines, ended_at)",
                 audit="SELECT"),
        audited("audit_retired", "INSERT"),
    ]
