"""Second factors, invitations, service accounts, look-alike names, and counters of guesses."""

from django.db import migrations, models

from kvconsole.infra.sql import audited, protect, script
from tenants.lookalikes import skeleton

ALL = "SELECT, INSERT, UPDATE, DELETE"


def fill_lookalikes(apps, schema_editor):
    """Names that were there before keep working; where two look alike, the later one keeps its id as well."""
    User, seen = apps.get_model("tenants", "User"), set()
    for user in User.objects.order_by("created_at"):
        shape = skeleton(user.username)
        user.lookalike = shape if shape not in seen else f"{shape}\n{user.id}"
        seen.add(shape)
        user.save(update_fields=["lookalike"])


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0002_tenant_keys"),
        ("account", "0009_emailaddress_unique_primary_email"),
        ("mfa", "0003_authenticator_type_uniq"),
        ("socialaccount", "0006_alter_socialaccount_extra_data"),
    ]
    operations = [
        migrations.AddField("user", "kind", models.CharField(default="person", max_length=16)),
        migrations.AddField("user", "lookalike", models.CharField(default="", max_length=300), preserve_default=False),
        migrations.AddField("user", "password_initial", models.BooleanField(default=False)),
        migrations.AddField("user", "removed_at", models.DateTimeField(null=True)),
        migrations.RunPython(fill_lookalikes, migrations.RunPython.noop),
        migrations.AlterField("user", "lookalike", models.CharField(max_length=300, unique=True)),
        migrations.AddConstraint(
            "user",
            models.CheckConstraint(condition=models.Q(("kind__in", ("person", "service"))), name="tenants_user_kind"),
        ),
        script("tenants", "lookup.sql"),
        script("tenants", "accounts.sql"),
        *protect("tenants_guess", tenant=None, operator=ALL),
        *protect("account_emailaddress", tenant=None, operator=ALL),
        *protect("account_emailconfirmation", tenant=None, operator=ALL),
        *protect("mfa_authenticator", tenant=None, operator=ALL),
        *protect("socialaccount_socialaccount", tenant=None, operator=ALL),
        *protect("socialaccount_socialtoken", tenant=None, operator=ALL),
        *protect("socialaccount_socialapp", tenant=None, operator="SELECT"),
        audited("mfa_authenticator", "INSERT OR DELETE"),
        audited("socialaccount_socialaccount", "INSERT OR DELETE"),
        migrations.RunSQL(
            "DROP TRIGGER audited ON tenants_user;"
            " CREATE CONSTRAINT TRIGGER audited AFTER INSERT OR DELETE OR UPDATE OF username, email, password, tenant_id,"
            " roles, is_active, kind, password_initial, removed_at ON tenants_user DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION audit_required();",
            migrations.RunSQL.noop,
        ),
    ]
