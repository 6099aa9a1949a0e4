"""Decides the columns of the audit trail. The tables are made in SQL (`sql/event.sql`): partitions, triggers, grants.

Only `audit.services` appends, only the sequencer takes from the queue; nobody changes or deletes an event.
"""

from django.contrib.postgres.indexes import BTreeIndex
from django.db import models
from django.db.models import Q

from kvconsole.infra.sql import uuid7


class Event(models.Model):
    """One thing that was done, in the columns its 148-byte leaf is made of, and the bytes the leaf's hashes cover.

    Source: `docs/protocol.md`, the layout `kv-audit-leaf/1`. The database itself sets `id`, `time_us`, `producer_id`
    and `producer_seq`; no login role can choose them.
    """

    id = models.BigIntegerField(primary_key=True)
    event_id = models.UUIDField()
    event_type = models.IntegerField()
    time_us = models.BigIntegerField()
    tenant_id = models.UUIDField()
    tenant_ref = models.BinaryField()
    actor_ref = models.BinaryField()
    outcome = models.SmallIntegerField()
    flags = models.SmallIntegerField()
    producer_id = models.IntegerField()
    producer_seq = models.BigIntegerField()
    body = models.BinaryField()
    """RFC 8785 JSON, kept as the bytes that were hashed."""
    body_hash = models.BinaryField()
    pii_ct = models.BinaryField(null=True)
    """nonce ‖ AES-256-GCM of salt ‖ RFC 8785 JSON under the subject's key; unreadable once that key is destroyed."""
    pii_commit = models.BinaryField()
    pii_key = models.BinaryField(null=True)
    """Names the subject's key in the key store."""
    object_kind = models.TextField()
    object_id = models.TextField()
    request_id = models.TextField()

    class Meta:
        managed = False
        db_table = "audit_event"


class Pending(models.Model):
    """An event that is not in the log yet; filled by a trigger in the event's transaction, drained by the sequencer."""

    event = models.BigIntegerField(primary_key=True)
    time_us = models.BigIntegerField()

    class Meta:
        managed = False
        db_table = "audit_pending"


class Idempotency(models.Model):
    """What a POST with an Idempotency-Key answered, so that its repetition has no second effect.

    Neither the key nor the answer can be read from the table: the key is hashed, the answer encrypted under it.
    """

    pk = models.CompositePrimaryKey("tenant_id", "key_hash")
    tenant_id = models.UUIDField()
    key_hash = models.BinaryField()
    fingerprint = models.BinaryField()
    status = models.SmallIntegerField(null=True)
    response = models.BinaryField(null=True)
    created_at = models.DateTimeField()

    class Meta:
        indexes = [BTreeIndex(fields=["created_at"], name="audit_idempotency_age")]


class Approval(models.Model):
    """Something that a second person must agree to before it happens. It is decided once, never by who asked.

    Transitions: open → approved | denied | withdrawn. An open one is of no use after `expires_at`.
    """

    id = models.UUIDField(primary_key=True, default=uuid7)
    tenant_id = models.UUIDField()
    """Whose matter it is."""
    kind = models.CharField(max_length=63)
    """What is waiting; the owner of this kind is woken by name when it is decided."""
    object_id = models.CharField(max_length=63)
    what = models.JSONField()
    """What would happen, as plain facts for who decides."""
    risk = models.CharField(max_length=2)
    state = models.CharField(max_length=16, default="open")
    requested_by = models.CharField(max_length=100)
    """`Principal.subject` of who asked."""
    requested_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    decided_by = models.CharField(max_length=100, blank=True)
    decided_at = models.DateTimeField(null=True)
    reason = models.CharField(max_length=500, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant_id", "kind", "object_id"], name="audit_approval_object"),
            models.CheckConstraint(
                name="audit_approval_two_persons",
                condition=~Q(state__in=("approved", "denied"))
                | (~Q(decided_by=models.F("requested_by")) & ~Q(decided_by="")),
            ),
        ]
        indexes = [models.Index(fields=["state", "id"], name="audit_approval_state")]


class Job(models.Model):
    """Long work over the log: an export or a verification. A worker goes on with it where the last one stopped.

    Transitions: queued → running → done | failed | cancelled; done → removed, when its file is.
    """

    id = models.UUIDField(primary_key=True, default=uuid7)
    tenant_id = models.UUIDField()
    """Whose view of the log it has; the platform's sees all."""
    kind = models.CharField(max_length=16)
    state = models.CharField(max_length=16, default="queued")
    params = models.JSONField()
    requester = models.JSONField()
    """Who asked: what `audit.jobs.principal_of` makes the actor of its events from."""
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    done_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField()
    done = models.BigIntegerField(default=0)
    total = models.BigIntegerField(default=0)
    position = models.JSONField(default=dict)
    """How far it is, on disk too: what comes after is done again."""
    result = models.JSONField(default=dict)
    problem = models.CharField(max_length=63, blank=True)
    """Code of why it failed, or of what it waits for."""
    cancel_asked = models.BooleanField(default=False)
    lease_holder = models.TextField(blank=True)
    lease_until = models.DateTimeField(null=True)
    lease_token = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            models.CheckConstraint(name="audit_job_kind", condition=Q(kind__in=("export", "verify"))),
            models.CheckConstraint(
                name="audit_job_states",
                condition=Q(state__in=("queued", "running", "done", "failed", "cancelled", "removed")),
            ),
        ]
        indexes = [models.Index(fields=["state", "created_at"], name="audit_job_state")]


class Webhook(models.Model):
    """Where somebody wants to be told of what the log records. Its secret is in the key store.

    Transitions: active ↔ paused; active → disabled after days of failures; disabled → active by its owner.
    """

    id = models.UUIDField(primary_key=True, default=uuid7)
    tenant_id = models.UUIDField()
    """Whose events it is told of; the platform's are all."""
    url = models.CharField(max_length=500)
    name = models.CharField(max_length=100, blank=True)
    events = models.JSONField()
    state = models.CharField(max_length=16, default="active")
    reason = models.CharField(max_length=63, blank=True)
    key_version = models.IntegerField(default=1)
    old_key_until = models.DateTimeField(null=True)
    """Until then what is sent carries the signature of the secret before, too."""
    created_by = models.CharField(max_length=100)
    created_at = models.DateTimeField()
    failing_since = models.DateTimeField(null=True)
    checkpoint_at = models.DateTimeField(null=True)
    """When it was last told of a checkpoint."""

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="audit_webhook_states", condition=Q(state__in=("active", "paused", "disabled"))
            ),
        ]


class Delivery(models.Model):
    """One message to one webhook. Its id is the message's, the same in every attempt.

    Transitions: pending → delivered | failed (no more attempts) | dropped (the webhook is gone, paused or disabled).
    """

    id = models.UUIDField(primary_key=True, default=uuid7)
    tenant_id = models.UUIDField()
    webhook = models.UUIDField()
    kind = models.CharField(max_length=63)
    payload = models.TextField()
    """The body as it is sent: no personal data."""
    state = models.CharField(max_length=16, default="pending")
    attempts = models.IntegerField(default=0)
    created_at = models.DateTimeField()
    next_at = models.DateTimeField(null=True)
    last_at = models.DateTimeField(null=True)
    status = models.IntegerField(null=True)
    """HTTP status of the last attempt; none = there was no answer."""
    problem = models.CharField(max_length=63, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="audit_delivery_states",
                condition=Q(state__in=("pending", "delivered", "failed", "dropped")),
            ),
        ]
        indexes = [
            models.Index(fields=["next_at"], name="audit_delivery_due", condition=Q(state="pending")),
            models.Index(fields=["webhook", "created_at"], name="audit_delivery_webhook"),
        ]


class Certificate(models.Model):
    """What can be said of a deletion: canonical bytes, signed, never changed; what supplements one is another row."""

    id = models.UUIDField(primary_key=True, default=uuid7)
    tenant_id = models.UUIDField()
    operation = models.UUIDField()
    body = models.BinaryField()
    """RFC 8785 JSON of `kvcore.receipts.CertificateBody`, kept as the bytes that were hashed."""
    body_hash = models.BinaryField()
    note = models.TextField()
    """The export key's note over the hash."""
    erasure = models.SmallIntegerField()
    flags = models.JSONField()
    seal = models.BooleanField()
    exceptions = models.IntegerField()
    supplements = models.UUIDField(null=True)
    """The operation whose certificate this one completes."""
    event = models.BigIntegerField()
    """`Event.id` of `certificate.issued`."""
    issued_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "operation"], name="audit_certificate_operation")]


class HookPosition(models.Model):
    """How far webhooks were told of the log: one row."""

    id = models.SmallIntegerField(primary_key=True)
    next_index = models.BigIntegerField()
    checkpoint_size = models.BigIntegerField()

    class Meta:
        constraints = [models.CheckConstraint(name="audit_hookposition_one", condition=Q(id=1))]


class Leaf(models.Model):
    """The 148 bytes by which an event stands in the log, and their hash. `idx` is its place in the tree."""

    idx = models.BigIntegerField(primary_key=True)
    event = models.BigIntegerField()
    """`Event.id`; with `time_us` the key of its row."""
    time_us = models.BigIntegerField()
    hash = models.BinaryField()
    data = models.BinaryField()

    class Meta:
        managed = False
        db_table = "audit_leaf"


class Tree(models.Model):
    """The one row that says how large the log is, and what it needs to grow."""

    one = models.BooleanField(primary_key=True)
    size = models.BigIntegerField()
    frontier = models.BinaryField()
    root = models.BinaryField()
    at = models.DateTimeField()

    class Meta:
        managed = False
        db_table = "audit_tree"


class Checkpoint(models.Model):
    """A size of the log that the signer put its name to."""

    size = models.BigIntegerField(primary_key=True)
    root = models.BinaryField()
    note = models.TextField()
    signed_at = models.DateTimeField()

    class Meta:
        managed = False
        db_table = "audit_checkpoint"


class Signing(models.Model):
    """The one row on how the log stands with signer and witness; `note` is the newest signed note."""

    one = models.BooleanField(primary_key=True)
    size = models.BigIntegerField()
    root = models.BinaryField()
    note = models.TextField()
    signed_at = models.DateTimeField(null=True)
    """Also of a heartbeat at the same size."""
    signer = models.TextField()
    """ok, refused or away."""
    signer_why = models.TextField()
    witness = models.TextField()
    """ok, refused, away or none."""
    witness_why = models.TextField()
    witness_size = models.BigIntegerField()
    cosigned_at = models.DateTimeField(null=True)

    class Meta:
        managed = False
        db_table = "audit_signing"


class Finding(models.Model):
    """Something that is not as it must be: found by the gap finder, the scrubber, or the signer's refusal.

    Transitions: open → resolved, once a later look finds it no more; that is an event of its own.
    """

    id = models.BigIntegerField(primary_key=True)
    at = models.DateTimeField()
    kind = models.TextField()
    subject = models.TextField()
    first_index = models.BigIntegerField(null=True)
    """Of the first leaf that it concerns."""
    detail = models.TextField()
    seen_at = models.DateTimeField()
    """When it was found so last; `at`: first."""
    resolved_at = models.DateTimeField(null=True)

    class Meta:
        managed = False
        db_table = "audit_finding"


class Walk(models.Model):
    """How far the gap finder or the scrubber is in the log; it goes on from there after a restart."""

    name = models.TextField(primary_key=True)
    next = models.BigIntegerField()
    frontier = models.BinaryField()
    tally = models.JSONField()
    started_at = models.DateTimeField(null=True)
    spent = models.FloatField()
    found = models.BigIntegerField()
    done_at = models.DateTimeField(null=True)
    done_size = models.BigIntegerField(null=True)

    class Meta:
        managed = False
        db_table = "audit_walk"
