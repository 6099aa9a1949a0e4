from django.db import migrations, models

from kvconsole.infra.sql import protect


class Migration(migrations.Migration):

    dependencies = [
        ('catalog', '0002_store'),
    ]

    operations = [
        migrations.CreateModel(
            name='HeatAxis',
            fields=[
                ('shard', models.SmallIntegerField(primary_key=True, serialize=False)),
                ('version', models.BigIntegerField()),
                ('at', models.DateTimeField()),
                ('rows', models.BinaryField()),
                ('merged', models.BinaryField()),
            ],
        ),
        migrations.CreateModel(
            name='HeatColumn',
            fields=[
                ('pk', models.CompositePrimaryKey('shard', 'layer', 't0', blank=True, editable=False, primary_key=True, serialize=False)),
                ('shard', models.SmallIntegerField()),
                ('layer', models.SmallIntegerField()),
                ('t0', models.DateTimeField()),
                ('axis', models.BigIntegerField()),
                ('families', models.IntegerField()),
                ('rows', models.BinaryField()),
                ('values', models.BinaryField()),
            ],
        ),
        migrations.CreateModel(
            name='HeatRow',
            fields=[
                ('id', models.BigIntegerField(primary_key=True, serialize=False)),
                ('tenant_id', models.UUIDField()),
                ('kind', models.TextField()),
                ('group', models.TextField()),
                ('keyspace', models.IntegerField(null=True)),
                ('family', models.BigIntegerField(null=True)),
                ('told_at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='Pulse',
            fields=[
                ('shard', models.SmallIntegerField(primary_key=True, serialize=False)),
                ('at', models.DateTimeField()),
                ('window_seconds', models.FloatField()),
                ('requests', models.BigIntegerField()),
                ('prompt_tokens', models.BigIntegerField()),
                ('hit_tokens', models.BigIntegerField()),
                ('saved_ms', models.FloatField()),
                ('events', models.BigIntegerField()),
                ('evictions', models.BigIntegerField()),
            ],
        ),
        migrations.CreateModel(
            name='Refusal',
            fields=[
                ('pk', models.CompositePrimaryKey('source', 'code', blank=True, editable=False, primary_key=True, serialize=False)),
                ('source', models.IntegerField()),
                ('code', models.TextField()),
                ('count', models.BigIntegerField()),
                ('last_at', models.DateTimeField()),
                ('detail', models.TextField()),
            ],
        ),
        migrations.CreateModel(
            name='SourcePulse',
            fields=[
                ('source', models.IntegerField(primary_key=True, serialize=False)),
                ('at', models.DateTimeField()),
                ('lag_ms', models.FloatField(null=True)),
                ('load_at', models.DateTimeField(null=True)),
                ('queue_ms', models.FloatField(null=True)),
                ('running', models.IntegerField(null=True)),
                ('curve_a', models.FloatField(null=True)),
                ('curve_b', models.FloatField(null=True)),
                ('measured', models.BooleanField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name='TierMark',
            fields=[
                ('pk', models.CompositePrimaryKey('source', 'tier', blank=True, editable=False, primary_key=True, serialize=False)),
                ('source', models.IntegerField()),
                ('tier', models.TextField()),
                ('used', models.BigIntegerField()),
                ('capacity', models.BigIntegerField()),
                ('high', models.FloatField()),
                ('low', models.FloatField()),
                ('at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='Eviction',
            fields=[
                ('pk', models.CompositePrimaryKey('source', 'tier', 'reason', 'layer', 't0', blank=True, editable=False, primary_key=True, serialize=False)),
                ('source', models.IntegerField()),
                ('tier', models.TextField()),
                ('reason', models.TextField()),
                ('layer', models.SmallIntegerField()),
                ('t0', models.DateTimeField()),
                ('blocks', models.BigIntegerField()),
                ('bytes', models.BigIntegerField()),
            ],
            options={
                'indexes': [models.Index(models.F('layer'), models.F('t0'), name='eviction_time')],
            },
        ),
        migrations.CreateModel(
            name='MarkSample',
            fields=[
                ('pk', models.CompositePrimaryKey('source', 'tier', 'layer', 't0', blank=True, editable=False, primary_key=True, serialize=False)),
                ('source', models.IntegerField()),
                ('tier', models.TextField()),
                ('layer', models.SmallIntegerField()),
                ('t0', models.DateTimeField()),
                ('used', models.BigIntegerField()),
                ('peak', models.BigIntegerField()),
                ('capacity', models.BigIntegerField()),
                ('high', models.FloatField()),
                ('low', models.FloatField()),
            ],
            options={
                'indexes': [models.Index(models.F('layer'), models.F('t0'), name='marksample_time')],
            },
        ),
        migrations.CreateModel(
            name='Usage',
            fields=[
                ('pk', models.CompositePrimaryKey('keyspace', 'source', 'tier', 'layer', 't0', blank=True, editable=False, primary_key=True, serialize=False)),
                ('keyspace', models.IntegerField()),
                ('source', models.IntegerField()),
                ('tier', models.TextField()),
                ('layer', models.SmallIntegerField()),
                ('t0', models.DateTimeField()),
                ('tenant_id', models.UUIDField()),
                ('requests', models.BigIntegerField()),
                ('prompt_tokens', models.BigIntegerField()),
                ('hit_tokens', models.BigIntegerField()),
                ('saved_ms', models.FloatField()),
                ('measured_requests', models.BigIntegerField()),
            ],
            options={
                'indexes': [models.Index(models.F('layer'), models.F('t0'), name='usage_time'), models.Index(models.F('tenant_id'), models.F('layer'), models.F('t0'), name='usage_tenant')],
            },
        ),
        # what a writer rewrites with its commits stays within its page; what is packed is not packed again
        migrations.RunSQL(
            """
            ALTER TABLE catalog_tiermark SET (fillfactor = 60);
            ALTER TABLE catalog_sourcepulse SET (fillfactor = 60);
            ALTER TABLE catalog_pulse SET (fillfactor = 10);
            ALTER TABLE catalog_heatcolumn ALTER rows SET STORAGE EXTERNAL, ALTER values SET STORAGE EXTERNAL;
            ALTER TABLE catalog_heataxis ALTER rows SET STORAGE EXTERNAL, ALTER merged SET STORAGE EXTERNAL;
            """,
            migrations.RunSQL.noop,
        ),
        *protect("catalog_tiermark", tenant=None, operator="SELECT", ingest="SELECT, INSERT, UPDATE, DELETE", router="SELECT"),
        *protect("catalog_marksample", tenant=None, operator="SELECT", ingest="SELECT, INSERT, UPDATE, DELETE"),
        *protect("catalog_eviction", tenant=None, operator="SELECT", ingest="SELECT, INSERT, UPDATE, DELETE"),
        *protect("catalog_refusal", tenant=None, operator="SELECT", ingest="SELECT, INSERT, UPDATE, DELETE"),
        *protect("catalog_sourcepulse", tenant=None, operator="SELECT", ingest="SELECT, INSERT, UPDATE, DELETE", router="SELECT"),
        *protect("catalog_pulse", tenant=None, operator="SELECT", ingest="SELECT, INSERT, UPDATE, DELETE"),
        *protect("catalog_heataxis", tenant=None, operator="SELECT", ingest="SELECT, INSERT, UPDATE, DELETE"),
        *protect("catalog_heatcolumn", tenant=None, operator="SELECT", ingest="SELECT, INSERT, UPDATE, DELETE"),
        *protect("catalog_usage", tenant_may="SELECT", operator="SELECT", ingest="SELECT, INSERT, UPDATE, DELETE"),
        *protect("catalog_heatrow", operator="SELECT", ingest="SELECT, INSERT, UPDATE, DELETE"),
    ]

