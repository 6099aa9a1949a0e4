import django.contrib.postgres.fields
import kvconsole.infra.sql
from django.db import migrations, models
from kvconsole.infra.sql import audited, protect, tenant_keys


class Migration(migrations.Migration):
    """Plans, operations with what they reach and their steps, and legal holds."""

    dependencies = [
        ("catalog", "0004_quotas"),
    ]

    operations = [
        migrations.CreateModel(
            name="Hold",
            fields=[
                ("id", models.UUIDField(default=kvconsole.infra.sql.uuid7, primary_key=True, serialize=False)),
                ("tenant_id", models.UUIDField()),
                ("selector", models.JSONField()),
                (
                    "namespaces",
                    django.contrib.postgres.fields.ArrayField(base_field=models.UUIDField(), default=list, size=None),
                ),
                ("authority", models.CharField(max_length=200)),
                ("reason", models.CharField(max_length=500)),
                ("review_at", models.DateTimeField()),
                ("state", models.CharField(default="awaiting_approval", max_length=24)),
                ("requested_by", models.CharField(max_length=100)),
                ("requested_at", models.DateTimeField()),
                ("releases", models.IntegerField(default=0)),
                ("decided_at", models.DateTimeField(null=True)),
                ("released_at", models.DateTimeField(null=True)),
            ],
            options={
                "indexes": [models.Index(fields=["tenant_id", "state"], name="catalog_hold_tenant")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("state__in", ("awaiting_approval", "active", "releasing", "released", "denied"))
                        ),
                        name="catalog_hold_state",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Operation",
            fields=[
                ("id", models.UUIDField(default=kvconsole.infra.sql.uuid7, primary_key=True, serialize=False)),
                ("tenant_id", models.UUIDField()),
                ("kind", models.CharField(max_length=16)),
                ("trigger", models.CharField(default="user", max_length=16)),
                ("selector", models.JSONField()),
                ("options", models.JSONField(default=dict)),
                ("plan", models.UUIDField(null=True)),
                ("plan_hash", models.BinaryField()),
                ("risk", models.CharField(max_length=2)),
                ("requested_by", models.CharField(max_length=100)),
                ("requester", models.JSONField()),
                ("reason", models.CharField(blank=True, max_length=500)),
                ("said_at", models.DateTimeField(null=True)),
                ("generation", models.IntegerField(default=1)),
                ("observed_generation", models.IntegerField(default=0)),
                (
                    "finalizers",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=16), default=list, size=None
                    ),
                ),
                ("paused", models.BooleanField(default=False)),
                ("stopped_at", models.DateTimeField(null=True)),
                ("grace_until", models.DateTimeField(null=True)),
                ("throttle", models.BigIntegerField(null=True)),
                ("deadline", models.DateTimeField()),
                ("not_after", models.DateTimeField()),
                ("approval", models.UUIDField(null=True)),
                ("needs_approval", models.BooleanField(default=False)),
                ("fence_seq", models.BigIntegerField(default=0)),
                ("order_event", models.BigIntegerField(null=True)),
                ("order_hash", models.BinaryField(null=True)),
                ("created_at", models.DateTimeField()),
                ("fenced_at", models.DateTimeField(null=True)),
                ("routed_at", models.DateTimeField(null=True)),
                ("erased_at", models.DateTimeField(null=True)),
                ("verified_at", models.DateTimeField(null=True)),
                ("concluded_at", models.DateTimeField(null=True)),
                ("outcome", models.CharField(blank=True, max_length=32)),
                ("certificate", models.UUIDField(null=True)),
                ("problem", models.CharField(blank=True, max_length=63)),
                ("due_at", models.DateTimeField()),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("concluded_at__isnull", True)),
                        fields=["due_at"],
                        name="catalog_operation_due",
                    ),
                    models.Index(fields=["tenant_id", "id"], name="catalog_operation_tenant"),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("concluded_at__isnull", True), ("finalizers__len", 0), _connector="OR"),
                        name="catalog_operation_finalized",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("observed_generation__lte", models.F("generation"))),
                        name="catalog_operation_observed",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("plan__isnull", False)),
                        fields=("tenant_id", "plan"),
                        name="catalog_operation_plan",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="OperationTarget",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "tenant_id",
                        "operation",
                        "digest",
                        "part",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("tenant_id", models.UUIDField()),
                ("operation", models.UUIDField()),
                ("namespace", models.UUIDField(null=True)),
                ("digest", models.BinaryField()),
                ("min_gen", models.BigIntegerField()),
                ("fence_seq", models.BigIntegerField()),
                ("part", models.IntegerField(default=0)),
                ("cache_group", models.SmallIntegerField(null=True)),
                ("keys", models.BinaryField(null=True)),
                ("keys_hash", models.CharField(blank=True, max_length=64)),
                ("key_count", models.IntegerField(default=0)),
                ("below", models.BooleanField(default=False)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["operation"], name="catalog_target_operation"),
                    models.Index(fields=["digest"], name="catalog_target_digest"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Plan",
            fields=[
                ("id", models.UUIDField(default=kvconsole.infra.sql.uuid7, primary_key=True, serialize=False)),
                ("tenant_id", models.UUIDField()),
                ("kind", models.CharField(default="deletion", max_length=16)),
                ("requested_by", models.CharField(max_length=100)),
                ("selector", models.JSONField()),
                ("options", models.JSONField(default=dict)),
                ("body", models.JSONField()),
                ("plan_hash", models.BinaryField()),
                ("risk", models.CharField(max_length=2)),
                ("created_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
            ],
            options={
                "indexes": [models.Index(fields=["expires_at"], name="catalog_plan_expiry")],
            },
        ),
        migrations.CreateModel(
            name="Step",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("operation", models.UUIDField()),
                ("tenant_id", models.UUIDField()),
                ("intent_generation", models.IntegerField()),
                ("attempt", models.IntegerField(default=0)),
                ("node", models.UUIDField(null=True)),
                ("source", models.TextField(blank=True)),
                ("dp_rank", models.IntegerField(default=0)),
                ("tier", models.CharField(blank=True, max_length=16)),
                ("owner", models.BigIntegerField(default=0)),
                ("kind", models.CharField(max_length=16)),
                ("boot", models.TextField(blank=True)),
                ("args", models.JSONField()),
                ("state", models.CharField(default="waiting", max_length=16)),
                ("code", models.CharField(blank=True, max_length=63)),
                ("tries", models.IntegerField(default=0)),
                ("created_at", models.DateTimeField()),
                ("due_at", models.DateTimeField()),
                ("sent_at", models.DateTimeField(null=True)),
                ("done_at", models.DateTimeField(null=True)),
                ("lease_holder", models.CharField(blank=True, max_length=127)),
                ("lease_until", models.DateTimeField(null=True)),
                ("lease_token", models.BigIntegerField(default=0)),
                ("receipt", models.JSONField(null=True)),
                ("receipt_hash", models.CharField(blank=True, max_length=64)),
                ("receipt_prev", models.CharField(blank=True, max_length=64)),
                ("receipt_event", models.BigIntegerField(null=True)),
                ("told", models.JSONField(default=dict)),
                ("total_bytes", models.BigIntegerField(default=0)),
                ("total_blocks", models.BigIntegerField(default=0)),
                ("done_bytes", models.BigIntegerField(default=0)),
                ("done_blocks", models.BigIntegerField(default=0)),
                ("at_boot", models.TextField(blank=True)),
                ("at_stream", models.TextField(blank=True)),
                ("at_seq", models.BigIntegerField(default=-1)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["operation", "kind"], name="catalog_step_operation"),
                    models.Index(condition=models.Q(("state", "waiting")), fields=["due_at"], name="catalog_step_due"),
                    models.Index(
                        condition=models.Q(("kind", "purge"), ("state", "waiting")),
                        fields=["id"],
                        name="catalog_step_purges",
                    ),
                    models.Index(fields=["node"], name="catalog_step_node"),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("state__in", ("waiting", "done", "partial", "failed", "refused", "cancelled"))
                        ),
                        name="catalog_step_state",
                    )
                ],
            },
        ),
        # A tenant's people ask and change their mind; what was done for it is not theirs to say. The engine looks at what
        # they asked again before it orders anything.
        *protect("catalog_plan", tenant_may="SELECT, INSERT", operator="SELECT, INSERT, DELETE"),
        *protect(
            "catalog_operation",
            tenant_may="SELECT, INSERT, UPDATE (paused, throttle, stopped_at, generation, due_at)",
            operator="SELECT, INSERT, UPDATE",
            ingest="SELECT",
        ),
        *protect("catalog_operationtarget", tenant_may="SELECT, INSERT", operator="SELECT, INSERT", ingest="SELECT"),
        *protect(
            "catalog_step",
            tenant_may="SELECT",
            operator="SELECT, INSERT, UPDATE",
            ingest="SELECT, UPDATE (state, code, done_at)",
        ),
        *protect("catalog_hold", tenant_may="SELECT", operator="SELECT, INSERT, UPDATE"),
        *tenant_keys("catalog_plan"),
        *tenant_keys("catalog_operation"),
        audited(
            "catalog_operation",
            "INSERT OR UPDATE OF paused, throttle, stopped_at, generation, fenced_at, concluded_at, outcome, certificate",
        ),
        audited("catalog_operationtarget", "INSERT OR UPDATE OR DELETE"),
        audited("catalog_step", "UPDATE OF receipt, receipt_hash, receipt_event, told"),
        audited("catalog_hold"),
    ]
