"""Decides the tables of intent: frozen plans, operations with what they reach, and their steps on nodes.

An operation's state is computed from what is observed (`kvcore.plans`), never stored. Plans, operations and holds are
intent and have audit events; steps are work, and their receipts have events of their own.
"""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from kvconsole.infra.sql import uuid7

STEP_STATES = ("waiting", "done", "partial", "failed", "refused", "cancelled")
HOLD_STATES = ("awaiting_approval", "active", "releasing", "released", "denied")


class Plan(models.Model):
    """What a deletion would reach, as it was when somebody looked: `body` is `kvcore.plans.Plan`, never changed."""

    id = models.UUIDField(primary_key=True, default=uuid7)
    tenant_id = models.UUIDField()
    kind = models.CharField(max_length=16, default="deletion")
    requested_by = models.CharField(max_length=100)
    selector = models.JSONField()
    options = models.JSONField(default=dict)
    body = models.JSONField()
    plan_hash = models.BinaryField()
    risk = models.CharField(max_length=2)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["expires_at"], name="catalog_plan_expiry")]


class Operation(models.Model):
    """One intent that is being made true. Its finalizers fall one by one; without any it is concluded.

    Transitions (see `kvcore.plans.operation_state`): asked → ordered (its order stands in the log) → fenced → erased →
    verified → concluded; stopped, denied and expired ones are concluded too, without a certificate.
    """

    id = models.UUIDField(primary_key=True, default=uuid7)
    tenant_id = models.UUIDField()
    kind = models.CharField(max_length=16)
    trigger = models.CharField(max_length=16, default="user")
    about = models.CharField(max_length=200, blank=True)
    """What a rule asked it for: of one matter at most one operation is open."""
    selector = models.JSONField()
    options = models.JSONField(default=dict)
    plan = models.UUIDField(null=True)
    plan_hash = models.BinaryField()
    risk = models.CharField(max_length=2)
    requested_by = models.CharField(max_length=100)
    requester = models.JSONField()
    """Kind, id, person and roles of who asked: the actor of what follows."""
    reason = models.CharField(max_length=500, blank=True)
    said_at = models.DateTimeField(null=True)
    """When a session of a tenant wrote it, by the database's clock: it is not believed. Null: the fleet asked."""
    generation = models.IntegerField(default=1)
    """Of the intent: grows with each change of it."""
    observed_generation = models.IntegerField(default=0)
    finalizers = ArrayField(models.CharField(max_length=16), default=list)
    paused = models.BooleanField(default=False)
    stopped_at = models.DateTimeField(null=True)
    drain_from = models.DateTimeField(null=True)
    drain_until = models.DateTimeField(null=True)
    """Set when a drain begins: what is drained stays readable until then at most."""
    windows_passed = models.BooleanField(default=False)
    """Whether it starts in a deny window too; then a second person must have agreed."""
    grace_until = models.DateTimeField(null=True)
    throttle = models.BigIntegerField(null=True)
    """Bytes a second and node; null = as fast as it goes."""
    deadline = models.DateTimeField()
    """Until when blocks in use are waited for; then they are taken by force, and the certificate says so."""
    not_after = models.DateTimeField()
    """Of its order: no command is signed for it later."""
    approval = models.UUIDField(null=True)
    needs_approval = models.BooleanField(default=False)
    fence_seq = models.BigIntegerField(default=0)
    order_event = models.BigIntegerField(null=True)
    order_hash = models.BinaryField(null=True)
    created_at = models.DateTimeField()
    fenced_at = models.DateTimeField(null=True)
    routed_at = models.DateTimeField(null=True)
    """When no look-up of ours could answer with it any more."""
    erased_at = models.DateTimeField(null=True)
    verified_at = models.DateTimeField(null=True)
    concluded_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=32, blank=True)
    """How it ended: completed, completed_with_exceptions, stopped, denied, expired or failed."""
    certificate = models.UUIDField(null=True)
    problem = models.CharField(max_length=63, blank=True)
    """Code of why it failed, or of what it waits for."""
    due_at = models.DateTimeField()
    """When somebody has to look at it next; nobody needs to be woken for it."""

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="catalog_operation_finalized",
                condition=Q(concluded_at__isnull=True) | Q(finalizers__len=0),
            ),
            models.CheckConstraint(
                name="catalog_operation_observed", condition=Q(observed_generation__lte=F("generation"))
            ),
            models.UniqueConstraint(
                name="catalog_operation_plan", fields=["tenant_id", "plan"], condition=Q(plan__isnull=False)
            ),
            models.UniqueConstraint(
                name="catalog_operation_about",
                fields=["tenant_id", "trigger", "about"],
                condition=Q(concluded_at__isnull=True) & ~Q(about=""),
            ),
        ]
        indexes = [
            models.Index(fields=["due_at"], name="catalog_operation_due", condition=Q(concluded_at__isnull=True)),
            models.Index(fields=["tenant_id", "id"], name="catalog_operation_tenant"),
        ]


class OperationTarget(models.Model):
    """A namespace that the operation reaches: everything of it below `min_gen`, or keys of it, in parts."""

    pk = models.CompositePrimaryKey("tenant_id", "operation", "digest", "part")
    tenant_id = models.UUIDField()
    operation = models.UUIDField()
    namespace = models.UUIDField(null=True)
    digest = models.BinaryField()
    min_gen = models.BigIntegerField()
    fence_seq = models.BigIntegerField()
    part = models.IntegerField(default=0)
    cache_group = models.SmallIntegerField(null=True)
    """Null = all groups."""
    keys = models.BinaryField(null=True)
    """Finer than the namespace: packed keys (`kvcore.targets`); null = all of it."""
    keys_hash = models.CharField(max_length=64, blank=True)
    key_count = models.IntegerField(default=0)
    below = models.BooleanField(default=False)
    """With all that continues the keys."""

    class Meta:
        indexes = [
            models.Index(fields=["operation"], name="catalog_target_operation"),
            models.Index(fields=["digest"], name="catalog_target_digest"),
        ]


class Step(models.Model):
    """One step of an operation for one place (node, source, tier). It is due while it waits and `due_at` has passed.

    A command to an agent (erase, verify, shred, fence), or the console's own: `purge` is the writer's, `keys` the key
    store's.

    Transitions: waiting → done | partial | failed | refused | cancelled. What is partial or failed is tried again as
    another step, whose id has another `attempt`.
    """

    id = models.UUIDField(primary_key=True)
    """`kvcore.plans.step_id`: the same wish is the same step, whoever makes it."""
    operation = models.UUIDField()
    tenant_id = models.UUIDField()
    intent_generation = models.IntegerField()
    attempt = models.IntegerField(default=0)
    node = models.UUIDField(null=True)
    """Null: the console does it itself."""
    source = models.TextField(blank=True)
    dp_rank = models.IntegerField(default=0)
    tier = models.CharField(max_length=16, blank=True)
    owner = models.BigIntegerField(default=0)
    """Number of the place (`catalog.operation_owners`)."""
    kind = models.CharField(max_length=16)
    boot = models.TextField(blank=True)
    args = models.JSONField()
    """Those of the command, without its targets: they are the operation's."""
    state = models.CharField(max_length=16, default="waiting")
    code = models.CharField(max_length=63, blank=True)
    tries = models.IntegerField(default=0)
    created_at = models.DateTimeField()
    due_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True)
    done_at = models.DateTimeField(null=True)
    lease_holder = models.CharField(max_length=127, blank=True)
    lease_until = models.DateTimeField(null=True)
    lease_token = models.BigIntegerField(default=0)
    receipt = models.JSONField(null=True)
    """The signed envelope as it came."""
    receipt_hash = models.CharField(max_length=64, blank=True)
    receipt_prev = models.CharField(max_length=64, blank=True)
    receipt_event = models.BigIntegerField(null=True)
    told = models.JSONField(default=dict)
    """What of the receipt progress and classes need (`kvcore.told`): who looks at an operation reads no receipts."""
    total_bytes = models.BigIntegerField(default=0)
    total_blocks = models.BigIntegerField(default=0)
    done_bytes = models.BigIntegerField(default=0)
    done_blocks = models.BigIntegerField(default=0)
    at_boot = models.TextField(blank=True)
    at_stream = models.TextField(blank=True)
    at_seq = models.BigIntegerField(default=-1)
    """Position of the source's stream: in a receipt, or up to where the writer must have heard before it purges."""

    class Meta:
        constraints = [models.CheckConstraint(name="catalog_step_state", condition=Q(state__in=STEP_STATES))]
        indexes = [
            models.Index(fields=["operation", "kind"], name="catalog_step_operation"),
            models.Index(fields=["due_at"], name="catalog_step_due", condition=Q(state="waiting")),
            models.Index(fields=["id"], name="catalog_step_purges", condition=Q(kind="purge", state="waiting")),
            models.Index(fields=["node"], name="catalog_step_node"),
        ]


class Hold(models.Model):
    """A legal hold: what it covers is fenced when it is deleted, but not erased before the hold is released.

    Transitions: awaiting_approval → active | denied; active → releasing → released | active. Each needs two persons.
    """

    id = models.UUIDField(primary_key=True, default=uuid7)
    tenant_id = models.UUIDField()
    selector = models.JSONField()
    namespaces = ArrayField(models.UUIDField(), default=list)
    """Those that it covered when it was placed; later ones are found by the selector."""
    authority = models.CharField(max_length=200)
    reason = models.CharField(max_length=500)
    review_at = models.DateTimeField()
    state = models.CharField(max_length=24, default="awaiting_approval")
    requested_by = models.CharField(max_length=100)
    requested_at = models.DateTimeField()
    releases = models.IntegerField(default=0)
    """How often its release was asked for: each has an approval of its own."""
    decided_at = models.DateTimeField(null=True)
    released_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.CheckConstraint(name="catalog_hold_state", condition=Q(state__in=HOLD_STATES))]
        indexes = [models.Index(fields=["tenant_id", "state"], name="catalog_hold_tenant")]
