import django.contrib.postgres.fields
from django.db import migrations, models

from kvconsole.infra.sql import protect, script

WRITE = "SELECT, INSERT, UPDATE, DELETE"


class Migration(migrations.Migration):
    """The tables of the block catalog, with all partitions they will ever have: there is no DDL at run time."""

    dependencies = [("catalog", "0001_fleet")]

    operations = [
        script("catalog", "store_schema.sql"),
        migrations.CreateModel(
            name='Shard',
            fields=[
                ('id', models.SmallIntegerField(primary_key=True, serialize=False)),
                ('writer', models.BigIntegerField(default=0)),
                ('seq', models.BigIntegerField(default=0)),
                ('redo', models.BigIntegerField(default=1)),
                ('next_seg', models.BigIntegerField(default=0)),
                ('next_owner', models.IntegerField()),
                ('next_keyspace', models.IntegerField()),
                ('next_source', models.IntegerField()),
                ('wanted', models.BigIntegerField(default=0)),
                ('url', models.TextField(default='')),
                ('seen_at', models.DateTimeField(null=True)),
                ('listens_since', models.DateTimeField(null=True)),
            ],
            options={
                'managed': False,
                'indexes': [],
                'constraints': [],
            },
        ),
        migrations.CreateModel(
            name='Source',
            fields=[
                ('id', models.IntegerField(primary_key=True, serialize=False)),
                ('shard', models.SmallIntegerField()),
                ('node_id', models.UUIDField()),
                ('name', models.TextField()),
                ('dp_rank', models.IntegerField()),
                ('boot', models.TextField()),
                ('stream', models.TextField()),
                ('seq', models.BigIntegerField()),
                ('old_boots', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), default=list, size=None)),
                ('state', models.TextField()),
                ('reason', models.TextField(default='')),
                ('since', models.DateTimeField()),
                ('last_verified_at', models.DateTimeField(null=True)),
                ('last_frame_at', models.DateTimeField(null=True)),
                ('can_list', models.BooleanField(default=True)),
                ('gaps', models.BigIntegerField(default=0)),
            ],
            options={
                'managed': False,
                'indexes': [],
                'constraints': [],
            },
        ),
        migrations.CreateModel(
            name='Owner',
            fields=[
                ('id', models.IntegerField(primary_key=True, serialize=False)),
                ('shard', models.SmallIntegerField()),
                ('source_id', models.IntegerField()),
                ('tier', models.TextField()),
                ('retired', models.BooleanField()),
                ('born', models.DateTimeField()),
            ],
            options={
                'managed': False,
                'indexes': [],
                'constraints': [],
            },
        ),
        migrations.CreateModel(
            name='Keyspace',
            fields=[
                ('id', models.IntegerField(primary_key=True, serialize=False)),
                ('shard', models.SmallIntegerField()),
                ('tenant_id', models.UUIDField()),
                ('namespace_id', models.UUIDField(null=True)),
                ('digest', models.BinaryField()),
                ('generation', models.BigIntegerField()),
                ('cache_group', models.SmallIntegerField()),
                ('block_tokens', models.IntegerField()),
                ('block_bytes', models.BigIntegerField()),
                ('claimed', models.BooleanField()),
            ],
            options={
                'managed': False,
                'indexes': [],
                'constraints': [],
            },
        ),
        migrations.CreateModel(
            name='Segment',
            fields=[
                ('pk', models.CompositePrimaryKey('keyspace', 'id', blank=True, editable=False, primary_key=True, serialize=False)),
                ('id', models.BigIntegerField()),
                ('head', models.BigIntegerField()),
                ('up', models.BigIntegerField(null=True)),
                ('family', models.BigIntegerField()),
                ('keyspace', models.IntegerField()),
                ('up_off', models.SmallIntegerField(null=True)),
                ('tenant_id', models.UUIDField()),
                ('parent', models.BinaryField(null=True)),
                ('keys', models.BinaryField()),
            ],
            options={
                'managed': False,
                'indexes': [],
                'constraints': [],
            },
        ),
        migrations.CreateModel(
            name='Placement',
            fields=[
                ('pk', models.CompositePrimaryKey('keyspace', 'owner', 'seg', blank=True, editable=False, primary_key=True, serialize=False)),
                ('seg', models.BigIntegerField()),
                ('born', models.DateTimeField()),
                ('owner', models.IntegerField()),
                ('keyspace', models.IntegerField()),
                ('tenant_id', models.UUIDField()),
                ('n', models.SmallIntegerField()),
                ('held', models.BinaryField(null=True)),
                ('states', models.BinaryField(null=True)),
            ],
            options={
                'managed': False,
                'indexes': [],
                'constraints': [],
            },
        ),
        migrations.CreateModel(
            name='Holding',
            fields=[
                ('pk', models.CompositePrimaryKey('keyspace', 'owner', blank=True, editable=False, primary_key=True, serialize=False)),
                ('keyspace', models.IntegerField()),
                ('owner', models.IntegerField()),
                ('tenant_id', models.UUIDField()),
                ('blocks', models.BigIntegerField()),
                ('lo', models.BigIntegerField()),
                ('hi', models.BigIntegerField()),
            ],
            options={
                'managed': False,
                'indexes': [],
                'constraints': [],
            },
        ),
        migrations.CreateModel(
            name='Ledger',
            fields=[
                ('pk', models.CompositePrimaryKey('shard', 'seq', blank=True, editable=False, primary_key=True, serialize=False)),
                ('shard', models.SmallIntegerField()),
                ('seq', models.BigIntegerField()),
                ('at', models.DateTimeField()),
                ('body', models.BinaryField()),
            ],
            options={
                'managed': False,
                'indexes': [],
                'constraints': [],
            },
        ),
        migrations.CreateModel(
            name='Reader',
            fields=[
                ('pk', models.CompositePrimaryKey('name', 'shard', blank=True, editable=False, primary_key=True, serialize=False)),
                ('name', models.TextField()),
                ('shard', models.SmallIntegerField()),
                ('seq', models.BigIntegerField()),
                ('seen_at', models.DateTimeField()),
            ],
            options={
                'managed': False,
                'indexes': [],
                'constraints': [],
            },
        ),
        *protect("catalog_shard", tenant=None, operator="SELECT, UPDATE (wanted)", ingest=WRITE,
                 router="SELECT, UPDATE (wanted)", audit="SELECT"),
        *protect("catalog_source", tenant=None, operator="SELECT", ingest=WRITE, router="SELECT", audit="SELECT"),
        *protect("catalog_owner", tenant=None, operator="SELECT", ingest=WRITE, router="SELECT", audit="SELECT"),
        *protect("catalog_ledger", tenant=None, operator="SELECT", ingest=WRITE, router="SELECT"),
        *protect("catalog_reader", tenant=None, operator=WRITE, ingest=WRITE, router=WRITE),
        *protect("catalog_keyspace", tenant_may="SELECT", operator="SELECT", ingest=WRITE, router="SELECT",
                 audit="SELECT"),
        *protect("catalog_segment", tenant_may="SELECT", operator="SELECT", ingest=WRITE, router="SELECT"),
        *protect("catalog_placement", tenant_may="SELECT", operator="SELECT", ingest=WRITE, router="SELECT"),
        *protect("catalog_holding", tenant_may="SELECT", operator="SELECT", ingest=WRITE, router="SELECT",
                 audit="SELECT"),
    ]
