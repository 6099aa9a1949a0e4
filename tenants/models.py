"""Decides the tables of who may have what: tenants, people, models, epochs, namespaces, generations, tokens, leases.

Row-level security is set in the migrations, and so are keys: in the database each begins with the tenant, whatever the
fields here say (`kvconsole.infra.sql.tenant_keys`). Where a field names something of another app it is a plain value.
"""

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from kvconsole.infra.sql import uuid7
from tenants.constants import ERASURE_SCOPES, ISOLATIONS, PLATFORM_TENANT


class Tenant(models.Model):
    """Whose KV blocks they are. `erasure_scope` decides what of its data can be erased apart from the rest."""

    id = models.UUIDField(primary_key=True, default=uuid7)
    slug = models.CharField(max_length=63, unique=True)
    lookalike = models.CharField(max_length=63, unique=True)
    """`slugs.slug_skeleton` of the slug: no two tenants' slugs look alike."""
    name = models.CharField(max_length=200)
    residency = models.CharField(max_length=63, blank=True)
    """The region its blocks must stay in; empty = any."""
    isolation = models.CharField(max_length=16, default="shared")
    classes = ArrayField(models.CharField(max_length=63), default=list)
    former_classes = ArrayField(models.CharField(max_length=63), db_default=[])
    """Classes that it had: what was cached without being told apart may still be of them."""
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
    """A person, or a service that owns tokens and cannot log in. Without a tenant: of the fleet.

    Rights come from `roles` alone. Who was removed keeps the row, which the audit trail names, without a name.
    """

    id = models.UUIDField(primary_key=True, default=uuid7)
    username = models.CharField(max_length=150, unique=True)
    lookalike = models.CharField(max_length=300, unique=True)
    """`lookalikes.skeleton` of the name: no two people's names look alike."""
    kind = models.CharField(max_length=16, default="person")
    email = models.EmailField(blank=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, null=True, related_name="users")
    roles = ArrayField(models.CharField(max_length=32), default=list)
    language = models.CharField(max_length=16, blank=True)
    theme = models.CharField(max_length=16, default="system")
    is_active = models.BooleanField(default=True)
    password_initial = models.BooleanField(default=False)
    """Somebody else made the password: until it is changed, it opens nothing but the page where it is."""
    removed_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField()

    objects = BaseUserManager["User"]()
    USERNAME_FIELD = "username"
    EMAIL_FIELD = "email"
    REQUIRED_FIELDS = []

    class Meta:
        constraints = [models.CheckConstraint(name="tenants_user_kind", condition=Q(kind__in=("person", "service")))]


class Model(models.Model):
    """A model as its HF `config.json` describes it, and the bytes a token of its KV takes. Platform = for all."""

    id = models.UUIDField(primary_key=True, default=uuid7)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False)
    name = models.CharField(max_length=200)
    config = models.JSONField()
    kv_dtype = models.CharField(max_length=32)
    block_tokens = models.IntegerField()
    tensor_parallel = models.IntegerField(default=1)
    bytes_per_token = models.BigIntegerField()
    per_group = models.JSONField(default=list)
    base = models.CharField(max_length=200, blank=True)
    """Name of the model that this one is a variant of; "" = of none."""
    family = models.CharField(max_length=200)
    """Name of the first of its bases, its own where it has none: variants differ by layout and weights only."""
    layout = models.JSONField(default=dict)
    """`kvcore.layout.Layout`: what beside the weights makes caches differ."""
    lookalike = models.CharField(max_length=400)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "name"], name="tenants_model_name"),
            models.UniqueConstraint(fields=["tenant", "lookalike"], name="tenants_model_lookalike"),
        ]
        indexes = [
            models.Index(fields=["tenant", "family"], name="tenants_model_family"),
            models.Index(fields=["name", "id"], name="tenants_model_listed"),
        ]


class Epoch(models.Model):
    """One set of weights of a model. Numbers only grow; rolled-back weights get a new one."""

    id = models.UUIDField(primary_key=True, default=uuid7)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False)
    model = models.ForeignKey(Model, on_delete=models.PROTECT, related_name="epochs", db_constraint=False)
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
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False)
    model = models.ForeignKey(Model, on_delete=models.PROTECT, related_name="adapters", db_constraint=False)
    name = models.CharField(max_length=200)
    digest = models.CharField(max_length=128)
    epoch = models.IntegerField()
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "model", "digest"], name="tenants_adapter_digest"),
            models.UniqueConstraint(fields=["tenant", "model", "name", "epoch"], name="tenants_adapter_epoch"),
        ]
        indexes = [models.Index(fields=["created_at", "id"], name="tenants_adapter_listed")]


class Namespace(models.Model):
    """The unit of sharing and of erasure. `generation` and `min_gen` only grow; what carries less is never routable.

    Transitions: active → closed (model epoch retired: `min_gen` is `kvcore.keys.GENERATION_CLOSED`).
    """

    id = models.UUIDField(primary_key=True, default=uuid7)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, related_name="namespaces")
    digest = models.BinaryField(db_index=True)
    """32 bytes over `spec`; the spec names the tenant, so it is no oracle for another one's."""
    spec = models.JSONField()
    model = models.ForeignKey(Model, on_delete=models.PROTECT, db_constraint=False)
    model_epoch = models.IntegerField()
    adapter = models.ForeignKey(Adapter, on_delete=models.PROTECT, null=True, db_constraint=False)
    data_class = models.CharField(max_length=63, blank=True)
    label = models.CharField(max_length=200, blank=True)
    subject = models.CharField(max_length=64, blank=True)
    session = models.CharField(max_length=200, blank=True)
    generation = models.BigIntegerField(default=1)
    min_gen = models.BigIntegerField(default=1)
    key_scheme = models.CharField(max_length=63, default="content")
    share_group = models.UUIDField(null=True)
    """The group whose members share it; such a namespace belongs to the platform."""
    state = models.CharField(max_length=16, default="active")
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "digest"], name="tenants_namespace_digest"),
            models.CheckConstraint(name="tenants_namespace_generation", condition=Q(generation__gte=1, min_gen__gte=1)),
            models.CheckConstraint(
                name="tenants_namespace_shared", condition=Q(share_group=None) | Q(tenant=PLATFORM_TENANT)
            ),
        ]
        indexes = [
            models.Index(fields=["tenant", "model", "label"], name="tenants_namespace_label"),
            models.Index(fields=["share_group"], name="tenants_namespace_group", condition=~Q(share_group=None)),
        ]


class FenceEntry(models.Model):
    """A fence was raised. `seq` is given by the database in the order of commits, so a reader's position is enough."""

    seq = models.BigIntegerField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False)
    namespace = models.ForeignKey(Namespace, on_delete=models.PROTECT, db_constraint=False)
    digest = models.BinaryField()
    min_gen = models.BigIntegerField()
    share_group = models.UUIDField(null=True)
    at = models.DateTimeField()


class Token(models.Model):
    """A bearer token: the secret's SHA-256, who stands behind it, what it may. Never more than its user may."""

    id = models.CharField(max_length=16, primary_key=True)
    kind = models.CharField(max_length=16)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False)
    user = models.ForeignKey(User, on_delete=models.PROTECT, null=True, db_constraint=False)
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

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False)
    namespace = models.ForeignKey(Namespace, on_delete=models.PROTECT, db_constraint=False)
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

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False)
    holder_kind = models.CharField(max_length=16)
    holder = models.CharField(max_length=64)
    seq = models.BigIntegerField()
    at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "holder_kind", "holder"], name="tenants_fenceack_holder")
        ]


class FenceLife(models.Model):
    """Whether the fences were compared with what lies outside the database, in which of its lives. One row."""

    id = models.SmallIntegerField(primary_key=True)
    life = models.TextField()
    """As `tenants.whole` names it."""
    behind = models.BooleanField()
    """Something outside knows fences that were not here: every node has to be asked."""
    answered = models.JSONField(default=list)
    """Nodes that said what they know."""
    whole = models.BooleanField()


class Rollout(models.Model):
    """Which share of a model's new requests each epoch gets. No row = all go to the newest open epoch."""

    id = models.UUIDField(primary_key=True, default=uuid7)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False)
    model = models.ForeignKey(Model, on_delete=models.PROTECT, related_name="rollouts", db_constraint=False)
    version = models.IntegerField()
    shares = models.JSONField()
    """Epoch → per cent; whole numbers that sum to 100."""
    before = models.JSONField()
    held = models.JSONField()
    """Epoch → bytes, when the shares were set: where the forecast begins."""
    horizon_seconds = models.IntegerField()
    changed_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "model"], name="tenants_rollout_model")]


class EpochBytes(models.Model):
    """What the fleet held of an epoch in one minute, as the catalog says; written by it through a service."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False)
    model_id = models.UUIDField()
    epoch = models.IntegerField()
    t0 = models.DateTimeField()
    size_bytes = models.BigIntegerField()
    blocks = models.BigIntegerField()
    stale_hit_tokens = models.BigIntegerField()
    """Tokens read from fenced generations of the epoch since their fence; anything but 0 is a fault."""

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "model_id", "epoch", "t0"], name="tenants_epochbytes_minute")
        ]


class EpochUse(models.Model):
    """On this day the tenant's requests were of this epoch and adapter: first and last resolved then."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False)
    model_id = models.UUIDField()
    epoch = models.IntegerField()
    adapter_digest = models.CharField(max_length=128, blank=True)
    day = models.DateField()
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "model_id", "epoch", "adapter_digest", "day"], name="tenants_epochuse_day"
            )
        ]


class ShareGroups(models.Manager["ShareGroup"]):
    """Groups as the current plane may read them: who asked and who decided is the fleet's own."""

    def get_queryset(self) -> models.QuerySet["ShareGroup"]:
        """All columns for the fleet; for a tenant those that its role may select."""
        from kvconsole.infra.access import FLEET_PLANE, plane

        found = super().get_queryset()
        return found if plane() == FLEET_PLANE else found.defer(*ShareGroup.STAFF_ONLY)


class ShareGroup(models.Model):
    """Tenants that may share namespaces, once a second person approved it and until it expires or is revoked.

    Transitions: awaiting_approval → approved | denied | expired; approved → revoked | expired. The tenant is the owner.
    """

    STAFF_ONLY = ("requested_by", "decided_by")
    """Columns that no session of a tenant may read."""
    objects = ShareGroups()

    id = models.UUIDField(primary_key=True, default=uuid7)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False)
    owner_slug = models.CharField(max_length=63)
    name = models.CharField(max_length=63)
    reason = models.CharField(max_length=500)
    residency = models.CharField(max_length=63, blank=True)
    """That of all its members: where its blocks may be."""
    state = models.CharField(max_length=24, default="awaiting_approval")
    requested_by = models.CharField(max_length=100)
    requested_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    decided_by = models.CharField(max_length=100, blank=True)
    decided_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "name"],
                name="tenants_sharegroup_name",
                condition=Q(state__in=("awaiting_approval", "approved")),
            )
        ]
        indexes = [models.Index(fields=["requested_at", "id"], name="tenants_sharegroup_listed")]


class ShareMember(models.Model):
    """The grant: this tenant may use the group's namespaces while `state` is approved and it has not expired."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False)
    group = models.ForeignKey(ShareGroup, on_delete=models.PROTECT, related_name="members", db_constraint=False)
    owner = models.UUIDField()
    slug = models.CharField(max_length=63)
    """Of the member when it was named: its owner may know with whom it shares, but sees no other tenant's row."""
    state = models.CharField(max_length=24)
    expires_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "group"], name="tenants_sharemember_once")]
        indexes = [models.Index(fields=["group"], name="tenants_sharemember_group")]
