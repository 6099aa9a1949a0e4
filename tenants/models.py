"""Decides the tables of who may have what: tenants, people, models, epochs, namespaces, generations, tokens, leases.

Row-level security is set in the migration. Where a field names something of another app it is a plain value.
"""

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from kvconsole.infra.sql import uuid7
from tenants.constants import ERASURE_SCOPES, ISOLATIONS


class Tenant(models.Model):
    """Whose KV blocks they are. `erasure_scope` decides what of its data can be erased apart from the rest."""

    id = models.UUIDField(primary_key=True, default=uuid7)
    slug = models.CharField(max_length=63, unique=True)
    name = models.CharField(max_length=200)
    residency = models.CharField(max_length=63, blank=True)
    """The region its blocks must stay in; empty = any."""
    isolation = models.CharField(max_length=16, default="shared")
    classes = ArrayField(models.CharField(max_length=63), default=list)
    erasure_scope = models.CharField(max_length=16, default="label")
    retention = models.JSONField(default=dict)
    """Data class → seconds."""
    state = models.CharField(max_length=16, default="active")
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(name="tenants_tenant_isolation", condition=Q(isolation__in=ISOLATIONS)),
            models.CheckConstraint(name="tenants_tenant_erasure", condition=Q(erasure_scope__in=ERASURE_SCOPES)),
        ]


class User(AbstractBaseUser):
    """A person. Without a tenant: staff of the fleet. Rights come from `roles` alone."""

    id = models.UUIDField(primary_key=True, default=uuid7)
    username = models.CharField(max_length=150, unique=True)
    email = models.EmailField(blank=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, null=True, related_name="users")
    roles = ArrayField(models.CharField(max_length=32), default=list)
    language = models.CharField(max_length=16, blank=True)
    theme = models.CharField(max_length=16, default="system")
    is_active = models.BooleanField(default=True)
    created_at = models.DateTimeField()

    objects = BaseUserManager["User"]()
    USERNAME_FIELD = "username"
    EMAIL_FIELD = "email"
    REQUIRED_FIELDS = []


class Model(models.Model):
    """A model as its HF `config.json` describes it, and the bytes a token of its KV takes. Platform = for all."""

    id = models.UUIDField(primary_key=True, default=uuid7)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    name = models.CharField(max_length=200)
    config = models.JSONField()
    kv_dtype = models.CharField(max_length=32)
    block_tokens = models.IntegerField()
    tensor_parallel = models.IntegerField(default=1)
    bytes_per_token = models.BigIntegerField()
    per_group = models.JSONField(default=list)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "name"], name="tenants_model_name")]


class Epoch(models.Model):
    """One set of weights of a model. Numbers only grow; rolled-back weights get a new one."""

    id = models.UUIDField(primary_key=True, default=uuid7)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    model = models.ForeignKey(Model, on_delete=models.PROTECT, related_name="epochs")
    epoch = models.IntegerField()
    weights_digest = models.CharField(max_length=128)
    note = models.TextField(blank=True)
    state = models.CharField(max_length=16, default="open")
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "model", "epoch"], name="tenants_epoch_number")]


class Adapter(models.Model):
    """A LoRA adapter, identified by the digest of its bytes, never by its name."""

    id = models.UUIDField(primary_key=True, default=uuid7)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    model = models.ForeignKey(Model, on_delete=models.PROTECT, related_name="adapters")
    name = models.CharField(max_length=200)
    digest = models.CharField(max_length=128)
    epoch = models.IntegerField()
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "model", "digest"], name="tenants_adapter_digest"),
            models.UniqueConstraint(fields=["tenant", "model", "name", "epoch"], name="tenants_adapter_epoch"),
        ]


class Namespace(models.Model):
    """The unit of sharing and of erasure. `generation` and `min_gen` only grow; what carries less is never routable.

    Transitions: active → closed (model epoch retired: `min_gen` is `kvcore.keys.GENERATION_CLOSED`).
    """

    id = models.UUIDField(primary_key=True, default=uuid7)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="namespaces")
    digest = models.BinaryField(unique=True)
    """32 bytes over `spec`; the spec names the tenant, so it is no oracle for another one's."""
    spec = models.JSONField()
    model = models.ForeignKey(Model, on_delete=models.PROTECT)
    model_epoch = models.IntegerField()
    adapter = models.ForeignKey(Adapter, on_delete=models.PROTECT, null=True)
    data_class = models.CharField(max_length=63, blank=True)
    label = models.CharField(max_length=200, blank=True)
    subject = models.CharField(max_length=64, blank=True)
    session = models.CharField(max_length=200, blank=True)
    generation = models.BigIntegerField(default=1)
    min_gen = models.BigIntegerField(default=1)
    key_scheme = models.CharField(max_length=63, default="content")
    state = models.CharField(max_length=16, default="active")
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(name="tenants_namespace_generation", condition=Q(generation__gte=1, min_gen__gte=1))
        ]
        indexes = [models.Index(fields=["tenant", "model", "label"], name="tenants_namespace_label")]


class FenceEntry(models.Model):
    """A fence was raised. `seq` is given by the database in the order of commits, so a reader's position is enough."""

    seq = models.BigIntegerField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    namespace = models.ForeignKey(Namespace, on_delete=models.PROTECT)
    digest = models.BinaryField()
    min_gen = models.BigIntegerField()
    at = models.DateTimeField()


class Token(models.Model):
    """A bearer token: the secret's SHA-256, who stands behind it, what it may. Never more than its user may."""

    id = models.CharField(max_length=16, primary_key=True)
    kind = models.CharField(max_length=16)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    user = models.ForeignKey(User, on_delete=models.PROTECT, null=True)
    holder = models.CharField(max_length=64, blank=True)
    """Id of the node or gateway it stands for."""
    name = models.CharField(max_length=200, blank=True)
    secret_hash = models.BinaryField()
    roles = ArrayField(models.CharField(max_length=32), default=list)
    scopes = ArrayField(models.CharField(max_length=63), default=list)
    cidr = models.CharField(max_length=64, blank=True)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True)
    used_at = models.DateTimeField(null=True)
    """When a token that works once was used."""
    revoked_at = models.DateTimeField(null=True)


class KeyLease(models.Model):
    """A holder may use a generation's subkeys until then; it keeps them in memory only."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    namespace = models.ForeignKey(Namespace, on_delete=models.PROTECT)
    holder_kind = models.CharField(max_length=16)
    holder = models.CharField(max_length=64)
    generation = models.BigIntegerField()
    granted_at = models.DateTimeField()
    until = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "namespace", "holder_kind", "holder", "generation"], name="tenants_keylease_once"
            )
        ]
        indexes = [models.Index(fields=["holder_kind", "holder"], name="tenants_keylease_holder")]


class FenceAck(models.Model):
    """How far a holder has applied the fences, and when it last said so."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    holder_kind = models.CharField(max_length=16)
    holder = models.CharField(max_length=64)
    seq = models.BigIntegerField()
    at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "holder_kind", "holder"], name="tenants_fenceack_holder")
        ]
