from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models

from kvconsole.infra.sql import audited, protect

WRITE = "SELECT, INSERT, UPDATE, DELETE"


def _key(*names):
    return ("pk", models.CompositePrimaryKey(*names, blank=True, editable=False, primary_key=True, serialize=False))


class Migration(migrations.Migration):
    """Who may have how much where, and what was used of it."""

    dependencies = [("catalog", "0003_pictures")]

    operations = [
        migrations.AddField(model_name="node", name="dedicated_to", field=models.UUIDField(null=True)),
        migrations.CreateModel(
            name="Quota",
            fields=[
                _key("tenant_id", "tier"),
                ("tenant_id", models.UUIDField()),
                ("tier", models.CharField(max_length=16)),
                ("limit_bytes", models.BigIntegerField(null=True)),
                ("guaranteed_bytes", models.BigIntegerField(default=0)),
                ("effective_bytes", models.BigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="RateQuota",
            fields=[
                ("tenant_id", models.UUIDField(primary_key=True, serialize=False)),
                ("requests_per_second", models.IntegerField(null=True)),
                ("deletions_per_hour", models.IntegerField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="RateUse",
            fields=[
                _key("tenant_id", "kind"),
                ("tenant_id", models.UUIDField()),
                ("kind", models.CharField(max_length=16)),
                ("window", models.BigIntegerField()),
                ("taken", models.BigIntegerField()),
            ],
        ),
        migrations.CreateModel(
            name="Allowance",
            fields=[
                _key("tenant_id", "node_id", "tier"),
                ("tenant_id", models.UUIDField()),
                ("node_id", models.UUIDField()),
                ("tier", models.CharField(max_length=16)),
                ("given", models.BigIntegerField(null=True)),
                ("ceiling", models.BigIntegerField(null=True)),
                ("floor", models.BigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="NodeDeal",
            fields=[
                ("node_id", models.UUIDField(primary_key=True, serialize=False)),
                ("version", models.BigIntegerField()),
                ("applied", models.BigIntegerField()),
                ("at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="ClassRule",
            fields=[
                _key("tenant_id", "data_class"),
                ("tenant_id", models.UUIDField()),
                ("data_class", models.CharField(max_length=63)),
                ("tiers", ArrayField(base_field=models.CharField(max_length=16), null=True, size=None)),
                ("regions", ArrayField(base_field=models.CharField(max_length=63), null=True, size=None)),
                ("min_protection", models.CharField(default="plain", max_length=16)),
            ],
        ),
        migrations.CreateModel(
            name="Attempt",
            fields=[
                _key("tenant_id", "node_id", "digest", "tier", "reason", "kind"),
                ("tenant_id", models.UUIDField()),
                ("node_id", models.UUIDField()),
                ("digest", models.BinaryField()),
                ("tier", models.CharField(max_length=16)),
                ("reason", models.CharField(max_length=32)),
                ("kind", models.CharField(max_length=16)),
                ("count", models.BigIntegerField()),
                ("told", models.BigIntegerField(default=0)),
                ("first_at", models.DateTimeField()),
                ("last_at", models.DateTimeField()),
                ("told_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="RefusedBatch",
            fields=[
                ("node_id", models.UUIDField(primary_key=True, serialize=False)),
                ("life", models.CharField(max_length=64)),
                ("number", models.BigIntegerField()),
            ],
        ),
        migrations.CreateModel(
            name="UsageDay",
            fields=[
                _key("tenant_id", "day", "tier"),
                ("tenant_id", models.UUIDField()),
                ("day", models.DateField()),
                ("tier", models.CharField(max_length=16)),
                *(
                    (name, models.BigIntegerField())
                    for name in ("requests", "prompt_tokens", "hit_tokens", "hit_bytes", "saved_us",
                                 "measured_requests", "unsized_requests")
                ),
            ],
        ),
        migrations.CreateModel(
            name="UsageGap",
            fields=[
                _key("tenant_id", "source", "since"),
                ("tenant_id", models.UUIDField()),
                ("source", models.IntegerField()),
                ("since", models.DateTimeField()),
                ("until", models.DateTimeField(null=True)),
                ("reason", models.CharField(max_length=32)),
            ],
        ),
        migrations.CreateModel(
            name="UsageCover",
            fields=[
                _key("tenant_id", "shard"),
                ("tenant_id", models.UUIDField()),
                ("shard", models.SmallIntegerField()),
                ("since", models.DateTimeField()),
                ("upto", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="TenantTier",
            fields=[
                _key("tenant_id", "tier"),
                ("tenant_id", models.UUIDField()),
                ("tier", models.CharField(max_length=16)),
                ("blocks", models.BigIntegerField()),
                ("bytes", models.BigIntegerField()),
                ("at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="StaleHit",
            fields=[
                ("keyspace", models.IntegerField(primary_key=True, serialize=False)),
                ("hit_tokens", models.BigIntegerField()),
                ("requests", models.BigIntegerField()),
                ("last_at", models.DateTimeField()),
            ],
        ),
        migrations.RunSQL(
            """
            ALTER TABLE catalog_quota ADD CONSTRAINT catalog_quota_bytes CHECK (guaranteed_bytes >= 0
                AND (limit_bytes IS NULL OR (limit_bytes >= 0 AND guaranteed_bytes <= limit_bytes)));
            ALTER TABLE catalog_allowance ALTER floor SET DEFAULT 0;
            ALTER TABLE catalog_attempt ALTER told SET DEFAULT 0;
            CREATE INDEX catalog_attempt_untold ON catalog_attempt (last_at) WHERE told < count;
            CREATE INDEX catalog_allowance_node ON catalog_allowance (node_id);
            """,
            migrations.RunSQL.noop,
        ),
        *protect("catalog_quota", tenant_may="SELECT", operator=WRITE, ingest="SELECT, UPDATE (effective_bytes)"),
        *protect("catalog_ratequota", tenant_may="SELECT", operator=WRITE),
        *protect("catalog_rateuse", operator=WRITE),
        *protect("catalog_allowance", operator="SELECT", ingest=WRITE),
        *protect("catalog_nodedeal", tenant=None, operator="SELECT", ingest=WRITE),
        *protect("catalog_classrule", tenant_may="SELECT", operator=WRITE, ingest="SELECT", router="SELECT"),
        *protect("catalog_attempt", operator="SELECT, UPDATE (told, told_at)", ingest=WRITE,
                 audit="SELECT"),
        *protect("catalog_refusedbatch", tenant=None, operator="SELECT", ingest=WRITE),
        *protect("catalog_usageday", tenant_may="SELECT", operator="SELECT", ingest=WRITE),
        *protect("catalog_usagegap", tenant_may="SELECT", shared=True, operator="SELECT", ingest=WRITE),
        *protect("catalog_usagecover", tenant_may="SELECT", shared=True, operator="SELECT", ingest=WRITE),
        *protect("catalog_tenanttier", tenant_may="SELECT", operator="SELECT", ingest=WRITE),
        *protect("catalog_stalehit", tenant=None, operator="SELECT", ingest=WRITE),
        audited("catalog_quota", "INSERT OR DELETE OR UPDATE OF limit_bytes, guaranteed_bytes"),
        audited("catalog_ratequota"),
        audited("catalog_classrule"),
        migrations.RunSQL("DROP TRIGGER audited ON catalog_node", migrations.RunSQL.noop),
        audited("catalog_node", "INSERT OR DELETE OR UPDATE OF name, region, zone, rack, role, agent_url, state, wanted,"
                                " public_key, dedicated_to"),
    ]
