from django.db import migrations, models

from kvconsole.infra.sql import audited, protect, script


class Migration(migrations.Migration):
    """Decisions, the policies that made them, and what each router counts."""

    dependencies = [("routing", "0001_index"), ("audit", "0008_certificates"), ("tenants", "0005_fence_life")]

    operations = [
        script("routing", "decisions.sql"),
        migrations.CreateModel(
            name="Decision",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("slot", models.SmallIntegerField()),
                ("tenant_id", models.UUIDField()),
                ("at", models.DateTimeField()),
                ("origin", models.TextField()),
                ("router", models.TextField()),
                ("gateway", models.TextField()),
                ("model", models.TextField()),
                ("namespace", models.BinaryField(null=True)),
                ("generation", models.BigIntegerField(null=True)),
                ("answer", models.TextField()),
                ("code", models.TextField()),
                ("mode", models.TextField()),
                ("index_age_ms", models.IntegerField(null=True)),
                ("kept", models.TextField()),
                ("stands_for", models.IntegerField()),
                ("node", models.TextField()),
                ("source", models.TextField()),
                ("dp_rank", models.IntegerField()),
                ("decode_node", models.TextField()),
                ("policy", models.TextField()),
                ("policy_version", models.IntegerField()),
                ("prompt_tokens", models.IntegerField()),
                ("overlap_tokens", models.IntegerField()),
                ("predicted_ms", models.FloatField(null=True)),
                ("inputs", models.BinaryField(null=True)),
                ("measured_at", models.DateTimeField(null=True)),
                ("measured", models.JSONField(null=True)),
                ("measured_ms", models.FloatField(null=True)),
                ("hit_tokens", models.IntegerField(null=True)),
                ("regret_ms", models.FloatField(null=True)),
            ],
            options={"managed": False, "db_table": "routing_decision", "indexes": [], "constraints": []},
        ),
        migrations.CreateModel(
            name="Policy",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=63)),
                ("version", models.IntegerField()),
                ("model", models.CharField(blank=True, max_length=200)),
                ("kind", models.CharField(max_length=32)),
                ("document", models.JSONField()),
                ("at", models.DateTimeField()),
                ("by", models.CharField(max_length=200)),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=["name", "version"], name="routing_policy_version")],
            },
        ),
        migrations.CreateModel(
            name="Tally",
            fields=[
                ("router", models.TextField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
                *(
                    (name, models.BigIntegerField())
                    for name in ("made", "recorded", "sampled_out", "dropped", "refused", "fallback", "outcomes")
                ),
            ],
        ),
        *protect("routing_decision", tenant_may="SELECT", operator="SELECT", audit="SELECT",
                 router="SELECT, INSERT, UPDATE (measured_at, measured, measured_ms, hit_tokens, regret_ms)"),
        *protect("routing_policy", tenant=None, operator="SELECT, INSERT", router="SELECT", audit="SELECT"),
        *protect("routing_tally", tenant=None, operator="SELECT", router="SELECT, INSERT, UPDATE, DELETE",
                 audit="SELECT"),
        audited("routing_policy"),
    ]  # fmt: skip
