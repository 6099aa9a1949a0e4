import django.contrib.postgres.fields
import django.db.models.deletion
import kvconsole.infra.sql
from django.conf import settings
from django.db import migrations, models

from kvconsole.infra.sql import PLATFORM, audited, protect, script

ALL = "SELECT, INSERT, UPDATE, DELETE"
USER = ("id", "username", "email", "tenant_id", "roles", "language", "theme", "is_active", "created_at", "last_login")
TOKEN = "SELECT, INSERT, UPDATE (expires_at, revoked_at)"


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ("audit", "0001_event"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("sessions", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name='Model',
            fields=[
                ('id', models.UUIDField(default=kvconsole.infra.sql.uuid7, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=200)),
                ('config', models.JSONField()),
                ('kv_dtype', models.CharField(max_length=32)),
                ('block_tokens', models.IntegerField()),
                ('tensor_parallel', models.IntegerField(default=1)),
                ('bytes_per_token', models.BigIntegerField()),
                ('per_group', models.JSONField(default=list)),
                ('created_at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='Adapter',
            fields=[
                ('id', models.UUIDField(default=kvconsole.infra.sql.uuid7, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=200)),
                ('digest', models.CharField(max_length=128)),
                ('epoch', models.IntegerField()),
                ('created_at', models.DateTimeField()),
                ('model', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='adapters', to='tenants.model')),
            ],
        ),
        migrations.CreateModel(
            name='Tenant',
            fields=[
                ('id', models.UUIDField(default=kvconsole.infra.sql.uuid7, primary_key=True, serialize=False)),
                ('slug', models.CharField(max_length=63, unique=True)),
                ('name', models.CharField(max_length=200)),
                ('residency', models.CharField(blank=True, max_length=63)),
                ('isolation', models.CharField(default='shared', max_length=16)),
                ('classes', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=63), default=list, size=None)),
                ('erasure_scope', models.CharField(default='label', max_length=16)),
                ('retention', models.JSONField(default=dict)),
                ('state', models.CharField(default='active', max_length=16)),
                ('created_at', models.DateTimeField()),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('isolation__in', ('shared', 'arena', 'node'))), name='tenants_tenant_isolation'), models.CheckConstraint(condition=models.Q(('erasure_scope__in', ('tenant', 'class', 'label', 'subject', 'session'))), name='tenants_tenant_erasure')],
            },
        ),
        migrations.CreateModel(
            name='Namespace',
            fields=[
                ('id', models.UUIDField(default=kvconsole.infra.sql.uuid7, primary_key=True, serialize=False)),
                ('digest', models.BinaryField(unique=True)),
                ('spec', models.JSONField()),
                ('model_epoch', models.IntegerField()),
                ('data_class', models.CharField(blank=True, max_length=63)),
                ('label', models.CharField(blank=True, max_length=200)),
                ('subject', models.CharField(blank=True, max_length=64)),
                ('session', models.CharField(blank=True, max_length=200)),
                ('generation', models.BigIntegerField(default=1)),
                ('min_gen', models.BigIntegerField(default=1)),
                ('key_scheme', models.CharField(default='content', max_length=63)),
                ('state', models.CharField(default='active', max_length=16)),
                ('created_at', models.DateTimeField()),
                ('adapter', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.adapter')),
                ('model', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.model')),
                ('tenant', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='namespaces', to='tenants.tenant')),
            ],
        ),
        migrations.AddField(
            model_name='model',
            name='tenant',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant'),
        ),
        migrations.CreateModel(
            name='KeyLease',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('holder_kind', models.CharField(max_length=16)),
                ('holder', models.CharField(max_length=64)),
                ('generation', models.BigIntegerField()),
                ('granted_at', models.DateTimeField()),
                ('until', models.DateTimeField()),
                ('namespace', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.namespace')),
                ('tenant', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
        ),
        migrations.CreateModel(
            name='FenceEntry',
            fields=[
                ('seq', models.BigIntegerField(primary_key=True, serialize=False)),
                ('digest', models.BinaryField()),
                ('min_gen', models.BigIntegerField()),
                ('at', models.DateTimeField()),
                ('namespace', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.namespace')),
                ('tenant', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
        ),
        migrations.CreateModel(
            name='FenceAck',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('holder_kind', models.CharField(max_length=16)),
                ('holder', models.CharField(max_length=64)),
                ('seq', models.BigIntegerField()),
                ('at', models.DateTimeField()),
                ('tenant', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
        ),
        migrations.CreateModel(
            name='Epoch',
            fields=[
                ('id', models.UUIDField(default=kvconsole.infra.sql.uuid7, primary_key=True, serialize=False)),
                ('epoch', models.IntegerField()),
                ('weights_digest', models.CharField(max_length=128)),
                ('note', models.TextField(blank=True)),
                ('state', models.CharField(default='open', max_length=16)),
                ('created_at', models.DateTimeField()),
                ('model', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='epochs', to='tenants.model')),
                ('tenant', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
        ),
        migrations.AddField(
            model_name='adapter',
            name='tenant',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant'),
        ),
        migrations.CreateModel(
            name='User',
            fields=[
                ('password', models.CharField(max_length=128, verbose_name='password')),
                ('last_login', models.DateTimeField(blank=True, null=True, verbose_name='last login')),
                ('id', models.UUIDField(default=kvconsole.infra.sql.uuid7, primary_key=True, serialize=False)),
                ('username', models.CharField(max_length=150, unique=True)),
                ('email', models.EmailField(blank=True, max_length=254)),
                ('roles', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=32), default=list, size=None)),
                ('language', models.CharField(blank=True, max_length=16)),
                ('theme', models.CharField(default='system', max_length=16)),
                ('is_active', models.BooleanField(default=True)),
                ('created_at', models.DateTimeField()),
                ('tenant', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='users', to='tenants.tenant')),
            ],
            options={
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='Token',
            fields=[
                ('id', models.CharField(max_length=16, primary_key=True, serialize=False)),
                ('kind', models.CharField(max_length=16)),
                ('holder', models.CharField(blank=True, max_length=64)),
                ('name', models.CharField(blank=True, max_length=200)),
                ('secret_hash', models.BinaryField()),
                ('roles', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=32), default=list, size=None)),
                ('scopes', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=63), default=list, size=None)),
                ('cidr', models.CharField(blank=True, max_length=64)),
                ('created_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
                ('last_used_at', models.DateTimeField(null=True)),
                ('used_at', models.DateTimeField(null=True)),
                ('revoked_at', models.DateTimeField(null=True)),
                ('tenant', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
                ('user', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.AddIndex(
            model_name='namespace',
            index=models.Index(fields=['tenant', 'model', 'label'], name='tenants_namespace_label'),
        ),
        migrations.AddConstraint(
            model_name='namespace',
            constraint=models.CheckConstraint(condition=models.Q(('generation__gte', 1), ('min_gen__gte', 1)), name='tenants_namespace_generation'),
        ),
        migrations.AddConstraint(
            model_name='model',
            constraint=models.UniqueConstraint(fields=('tenant', 'name'), name='tenants_model_name'),
        ),
        migrations.AddIndex(
            model_name='keylease',
            index=models.Index(fields=['holder_kind', 'holder'], name='tenants_keylease_holder'),
        ),
        migrations.AddConstraint(
            model_name='keylease',
            constraint=models.UniqueConstraint(fields=('tenant', 'namespace', 'holder_kind', 'holder', 'generation'), name='tenants_keylease_once'),
        ),
        migrations.AddConstraint(
            model_name='fenceack',
            constraint=models.UniqueConstraint(fields=('tenant', 'holder_kind', 'holder'), name='tenants_fenceack_holder'),
        ),
        migrations.AddConstraint(
            model_name='epoch',
            constraint=models.UniqueConstraint(fields=('tenant', 'model', 'epoch'), name='tenants_epoch_number'),
        ),
        migrations.AddConstraint(
            model_name='adapter',
            constraint=models.UniqueConstraint(fields=('tenant', 'model', 'digest'), name='tenants_adapter_digest'),
        ),
        migrations.AddConstraint(
            model_name='adapter',
            constraint=models.UniqueConstraint(fields=('tenant', 'model', 'name', 'epoch'), name='tenants_adapter_epoch'),
        ),
        script("tenants", "fences.sql"),
        script("tenants", "lookup.sql"),
        *protect("tenants_tenant", tenant="id", tenant_may="SELECT", operator=ALL, ingest="SELECT", router="SELECT"),
        *protect("tenants_user", tenant_may=f"SELECT ({', '.join(USER)}), UPDATE (language, theme)", operator=ALL),
        *protect("tenants_model", shared=True, tenant_may="SELECT", operator=ALL, ingest="SELECT",
                 router="SELECT"),
        *protect("tenants_epoch", shared=True, tenant_may="SELECT", operator="SELECT, INSERT, UPDATE", ingest="SELECT",
                 router="SELECT"),
        *protect("tenants_adapter", shared=True, tenant_may="SELECT, INSERT", operator=ALL, ingest="SELECT",
                 router="SELECT"),
        *protect("tenants_namespace", tenant_may="SELECT, INSERT, UPDATE (generation, min_gen)", operator=ALL,
                 ingest="SELECT", router="SELECT"),
        *protect("tenants_fenceentry", tenant_may="SELECT, INSERT", operator="SELECT, INSERT", ingest="SELECT",
                 router="SELECT"),
        *protect("tenants_token", tenant_may=TOKEN, operator=ALL),
        *protect("tenants_keylease", tenant_may="SELECT, INSERT (tenant_id, namespace_id, holder_kind, holder, generation,"
                 " granted_at, until), UPDATE (until)", operator=ALL, router="SELECT"),
        *protect("tenants_fenceack", tenant_may="SELECT, INSERT (tenant_id, holder_kind, holder, seq, at), UPDATE (seq, at)",
                 operator="SELECT, INSERT, UPDATE",
                 ingest="SELECT, INSERT, UPDATE", router="SELECT"),
        *protect("django_session", tenant=None, operator=ALL),
        *protect("django_content_type", tenant=None, operator="SELECT"),
        *protect("django_migrations", tenant=None, operator="SELECT", ingest="SELECT", router="SELECT",
                 seq="SELECT", audit="SELECT"),
        migrations.RunSQL(
            "INSERT INTO tenants_tenant (id, slug, name, residency, isolation, classes, erasure_scope, retention, state,"
            f" created_at) VALUES ('{PLATFORM}', 'platform', 'Platform', '', 'shared', '{{}}', 'label', '{{}}', 'active',"
            " now())",
            migrations.RunSQL.noop,
        ),
        *[audited(f"tenants_{name}") for name in ("tenant", "model", "adapter", "epoch", "fenceentry")],
        audited("tenants_user", "INSERT OR DELETE OR UPDATE OF username, email, password, tenant_id, roles, is_active"),
        audited("tenants_namespace"),
        audited("tenants_token", "INSERT OR DELETE OR UPDATE OF user_id, roles, scopes, cidr, expires_at, used_at, "
                                 "revoked_at, secret_hash"),
        audited("tenants_keylease", "INSERT OR UPDATE"),
    ]
