from django.db import migrations, models

from kvconsole.infra.sql import protect, script, tenant_keys


class Migration(migrations.Migration):
    """What tenants announce and what comes of it, and the hits that were lost with their causes."""

    dependencies = [("routing", "0002_decisions")]

    operations = [
        script("routing", "lost_hits.sql"),
        migrations.CreateModel(
            name="LostHit",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("tenant_id", models.UUIDField()),
                ("minute", models.DateTimeField()),
                ("namespace", models.BinaryField()),
                *(
                    (name, models.BigIntegerField())
                    for name in (
                        "decisions", "available_tokens", "achieved_tokens", "beyond_tokens", "rate_limit_tokens",
                        "timeout_tokens", "no_slack_tokens", "evicted_tokens", "scope_tokens", "epoch_tokens",
                        "fetch_not_worth_tokens", "fence_tokens", "target_refused_tokens", "unknown_tokens",
                    )
                ),
            ],
            options={"managed": False, "db_table": "routing_losthit", "indexes": [], "constraints": []},
        ),
        migrations.CreateModel(
            name="LostHitMark",
            fields=[
                ("id", models.SmallIntegerField(primary_key=True, serialize=False)),
                ("upto", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="Announcement",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("tenant_id", models.UUIDField()),
                ("kind", models.CharField(max_length=8)),
                ("about", models.BinaryField()),
                ("blocks", models.IntegerField()),
                ("namespace", models.BinaryField(null=True)),
                ("said_at", models.DateTimeField()),
                ("until", models.DateTimeField()),
                ("believed", models.FloatField()),
                ("effect", models.CharField(max_length=8)),
                ("reason", models.CharField(max_length=63)),
                ("bytes", models.BigIntegerField()),
                ("pins", models.JSONField()),
                ("operation", models.UUIDField(null=True)),
                ("wish", models.JSONField(null=True)),
                ("state", models.CharField(max_length=8)),
                ("came_at", models.DateTimeField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["tenant_id", "kind", "about", "said_at"], name="routing_announced_about"),
                    models.Index(fields=["state", "until"], name="routing_announced_due"),
                    models.Index(fields=["said_at"], condition=models.Q(("wish__isnull", False)),
                                 name="routing_announced_wish"),
                ],
            },
        ),
        migrations.CreateModel(
            name="TrustDay",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("tenant_id", models.UUIDField()),
                ("day", models.DateField()),
                ("came", models.BigIntegerField()),
                ("missed", models.BigIntegerField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=["tenant_id", "day"], name="routing_trust_once"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Watch",
            fields=[
                ("router", models.TextField(primary_key=True, serialize=False)),
                ("since", models.DateTimeField()),
                ("at", models.DateTimeField()),
            ],
        ),
        *protect("routing_losthit", tenant_may="SELECT", operator="SELECT, INSERT, UPDATE, DELETE", audit="SELECT"),
        *protect("routing_losthitmark", tenant=None, operator="SELECT, INSERT, UPDATE"),
        *protect("routing_announcement", tenant_may="SELECT, INSERT", audit="SELECT",
                 operator="SELECT, INSERT, UPDATE, DELETE", router="SELECT, UPDATE (came_at)"),
        *tenant_keys("routing_announcement"),
        *protect("routing_trustday", tenant_may="SELECT", operator="SELECT, INSERT, UPDATE, DELETE", audit="SELECT"),
        *protect("routing_watch", tenant=None, operator="SELECT, DELETE", router="SELECT, INSERT, UPDATE, DELETE",
                 audit="SELECT"),
    ]  # fmt: skip
