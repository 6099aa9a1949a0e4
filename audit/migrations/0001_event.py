import django.contrib.postgres.indexes
from kvconsole.infra.sql import protect, script
from django.db import migrations, models

# What the database sets itself cannot be chosen: id, time_us, producer_id, producer_seq are in no INSERT grant.
WRITE = (
    "INSERT (event_id, event_type, tenant_id, tenant_ref, actor_ref, outcome, flags, body, body_hash, pii_ct,"
    " pii_commit, pii_key, object_kind, object_id, request_id), "
)
READ = (
    "SELECT (id, event_id, event_type, time_us, tenant_id, tenant_ref, actor_ref, outcome, flags, producer_id,"
    " producer_seq, body, body_hash, pii_commit, object_kind, object_id, request_id)"
)


class Migration(migrations.Migration):

    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name='Event',
            fields=[
                ('id', models.BigIntegerField(primary_key=True, serialize=False)),
                ('event_id', models.UUIDField()),
                ('event_type', models.IntegerField()),
                ('time_us', models.BigIntegerField()),
                ('tenant_id', models.UUIDField()),
                ('tenant_ref', models.BinaryField()),
                ('actor_ref', models.BinaryField()),
                ('outcome', models.SmallIntegerField()),
                ('flags', models.SmallIntegerField()),
                ('producer_id', models.IntegerField()),
                ('producer_seq', models.BigIntegerField()),
                ('body', models.BinaryField()),
                ('body_hash', models.BinaryField()),
                ('pii_ct', models.BinaryField(null=True)),
                ('pii_commit', models.BinaryField()),
                ('pii_key', models.BinaryField(null=True)),
                ('object_kind', models.TextField()),
                ('object_id', models.TextField()),
                ('request_id', models.TextField()),
            ],
            options={
                'db_table': 'audit_event',
                'managed': False,
            },
        ),
        migrations.CreateModel(
            name='Pending',
            fields=[
                ('event', models.BigIntegerField(primary_key=True, serialize=False)),
                ('time_us', models.BigIntegerField()),
            ],
            options={
                'db_table': 'audit_pending',
                'managed': False,
            },
        ),
        migrations.CreateModel(
            name='Idempotency',
            fields=[
                ('pk', models.CompositePrimaryKey('tenant_id', 'key_hash', blank=True, editable=False, primary_key=True, serialize=False)),
                ('tenant_id', models.UUIDField()),
                ('key_hash', models.BinaryField()),
                ('fingerprint', models.BinaryField()),
                ('status', models.SmallIntegerField(null=True)),
                ('response', models.BinaryField(null=True)),
                ('created_at', models.DateTimeField()),
            ],
            options={
                'indexes': [django.contrib.postgres.indexes.BTreeIndex(fields=['created_at'], name='audit_idempotency_age')],
            },
        ),
        script("kvconsole", "seal.sql"),
        script("audit", "event.sql"),
        *protect("audit_event", tenant_may=WRITE + READ, operator=WRITE + READ, ingest=WRITE + READ,
                 seq=WRITE + "SELECT", audit="SELECT"),
        *protect("audit_pending", tenant=None, seq="SELECT, DELETE", audit="SELECT"),
        *protect("audit_producer", tenant=None, seq="SELECT", audit="SELECT"),
        *protect("audit_tenantref"),
        *protect("audit_idempotency", tenant_may="SELECT, INSERT, UPDATE (fingerprint, status, response, created_at)",
                 operator="SELECT, INSERT, UPDATE (fingerprint, status, response, created_at), DELETE"),
    ]
