import django.db.models.deletion
import kvconsole.infra.sql
from django.db import migrations, models

from kvconsole.infra.sql import audited, protect


class Migration(migrations.Migration):

    initial = True

    dependencies = [("audit", "0001_event")]

    operations = [
        migrations.CreateModel(
            name='Node',
            fields=[
                ('id', models.UUIDField(default=kvconsole.infra.sql.uuid7, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=63, unique=True)),
                ('region', models.CharField(max_length=63)),
                ('zone', models.CharField(blank=True, max_length=63)),
                ('rack', models.CharField(blank=True, max_length=63)),
                ('role', models.CharField(default='mixed', max_length=16)),
                ('agent_url', models.CharField(blank=True, max_length=255)),
                ('state', models.CharField(default='joining', max_length=16)),
                ('state_since', models.DateTimeField()),
                ('wanted', models.CharField(default='ready', max_length=16)),
                ('public_key', models.BinaryField(null=True)),
                ('agent_version', models.CharField(blank=True, max_length=63)),
                ('engine', models.JSONField(default=dict)),
                ('profile', models.CharField(blank=True, max_length=63)),
                ('created_at', models.DateTimeField()),
                ('enrolled_at', models.DateTimeField(null=True)),
                ('last_heard_at', models.DateTimeField(null=True)),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('role__in', ('prefill', 'decode', 'mixed', 'store'))), name='catalog_node_role'), models.CheckConstraint(condition=models.Q(('state__in', ('joining', 'ready', 'degraded', 'silent', 'cordoned', 'draining', 'fenced', 'lost'))), name='catalog_node_state')],
            },
        ),
        migrations.CreateModel(
            name='NodeCommand',
            fields=[
                ('step', models.UUIDField(default=kvconsole.infra.sql.uuid7, primary_key=True, serialize=False)),
                ('kind', models.CharField(max_length=32)),
                ('body', models.JSONField()),
                ('order_hash', models.BinaryField()),
                ('issued_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
                ('due_at', models.DateTimeField()),
                ('attempts', models.IntegerField(default=0)),
                ('state', models.CharField(default='waiting', max_length=16)),
                ('code', models.CharField(blank=True, max_length=63)),
                ('receipt', models.JSONField(null=True)),
                ('receipt_hash', models.CharField(blank=True, max_length=64)),
                ('receipt_prev', models.CharField(blank=True, max_length=64)),
                ('done_at', models.DateTimeField(null=True)),
                ('lease_holder', models.CharField(blank=True, max_length=127)),
                ('lease_until', models.DateTimeField(null=True)),
                ('lease_token', models.BigIntegerField(default=0)),
                ('node', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='commands', to='catalog.node')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('state', 'waiting')), fields=['due_at'], name='catalog_command_due')],
            },
        ),
        migrations.CreateModel(
            name='NodeTier',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('tier', models.CharField(max_length=16)),
                ('capacity_bytes', models.BigIntegerField()),
                ('emulated', models.BooleanField(default=False)),
                ('encrypted', models.BooleanField(default=False)),
                ('high', models.FloatField()),
                ('low', models.FloatField()),
                ('node', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tiers', to='catalog.node')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('node', 'tier'), name='catalog_nodetier_once')],
            },
        ),
        *protect("catalog_node", tenant=None, operator="SELECT, INSERT, UPDATE, DELETE",
                 ingest="SELECT, UPDATE (last_heard_at)", router="SELECT"),
        *protect("catalog_nodetier", tenant=None, operator="SELECT, INSERT, UPDATE, DELETE", ingest="SELECT",
                 router="SELECT"),
        *protect("catalog_nodecommand", tenant=None, operator="SELECT, INSERT, UPDATE", ingest="SELECT"),
        audited("catalog_node", "INSERT OR DELETE OR UPDATE OF name, region, zone, rack, role, agent_url, state, wanted,"
                                " public_key"),
        audited("catalog_nodecommand", "INSERT OR UPDATE OF state, kind, body, receipt"),
    ]
