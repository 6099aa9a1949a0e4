"""The log: leaves, tree, tiles, checkpoints and what is found amiss. Written by kv_seq alone."""

from django.db import migrations, models
from kvconsole.infra.sql import protect, script

READ = {"operator": "SELECT", "audit": "SELECT"}


def _table(name, key, *fields):
    return migrations.CreateModel(
        name,
        [key, *fields],
        options={"db_table": f"audit_{name.lower()}", "managed": False},
    )


def _number():
    return models.BigIntegerField(primary_key=True, serialize=False)


class Migration(migrations.Migration):
    dependencies = [("audit", "0002_approvals")]

    operations = [
        _table(
            "Leaf",
            ("idx", _number()),
            ("event", models.BigIntegerField()),
            ("time_us", models.BigIntegerField()),
            ("hash", models.BinaryField()),
            ("data", models.BinaryField()),
        ),
        _table(
            "Tree",
            ("one", models.BooleanField(primary_key=True, serialize=False)),
            ("size", models.BigIntegerField()),
            ("frontier", models.BinaryField()),
            ("root", models.BinaryField()),
            ("at", models.DateTimeField()),
        ),
        _table(
            "Checkpoint",
            ("size", _number()),
            ("root", models.BinaryField()),
            ("note", models.TextField()),
            ("signed_at", models.DateTimeField()),
        ),
        _table(
            "Signing",
            ("one", models.BooleanField(primary_key=True, serialize=False)),
            ("size", models.BigIntegerField()),
            ("root", models.BinaryField()),
            ("note", models.TextField()),
            ("signed_at", models.DateTimeField(null=True)),
            ("signer", models.TextField()),
            ("signer_why", models.TextField()),
            ("witness", models.TextField()),
            ("witness_why", models.TextField()),
            ("witness_size", models.BigIntegerField()),
            ("cosigned_at", models.DateTimeField(null=True)),
        ),
        _table(
            "Finding",
            ("id", _number()),
            ("at", models.DateTimeField()),
            ("kind", models.TextField()),
            ("subject", models.TextField()),
            ("first_index", models.BigIntegerField(null=True)),
            ("detail", models.TextField()),
            ("seen_at", models.DateTimeField()),
            ("resolved_at", models.DateTimeField(null=True)),
        ),
        _table(
            "Walk",
            ("name", models.TextField(primary_key=True, serialize=False)),
            ("next", models.BigIntegerField()),
            ("frontier", models.BinaryField()),
            ("tally", models.JSONField()),
            ("started_at", models.DateTimeField(null=True)),
            ("spent", models.FloatField()),
            ("found", models.BigIntegerField()),
            ("done_at", models.DateTimeField(null=True)),
            ("done_size", models.BigIntegerField(null=True)),
        ),
        script("audit", "log.sql"),
        *protect("audit_leaf", tenant=None, seq="SELECT, INSERT", **READ),
        *protect("audit_tree", tenant=None, seq="SELECT, UPDATE (size, frontier, root, at)", **READ),
        *protect("audit_tile", tenant=None, seq="SELECT, INSERT", **READ),
        *protect("audit_checkpoint", tenant=None, seq="SELECT, INSERT", **READ),
        *protect("audit_signing", tenant=None, seq="SELECT, UPDATE", **READ),
        *protect("audit_finding", tenant=None, seq="SELECT, INSERT, UPDATE (seen_at, resolved_at)", **READ),
        *protect("audit_walk", tenant=None, seq="SELECT, UPDATE", **READ),
        # How far the log is behind is for the console to show.
        migrations.RunSQL("GRANT SELECT ON audit_pending TO kv_operator;", migrations.RunSQL.noop),
    ]
