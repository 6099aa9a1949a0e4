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
