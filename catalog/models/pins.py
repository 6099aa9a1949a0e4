"""Decides the table of pins: what is kept where it lies until a time, whoever needs room.

A pin is intent and has audit events. It does not outlive its time, and it never stands against a fence: what is
fenced goes, pinned or not.
"""

from django.db import models
from django.db.models import F, Q

from kvconsole.infra.sql import uuid7


class Pin(models.Model):
    """Blocks of a namespace's current generation that are neither evicted nor moved before `until`.

    One whose time is over is void; the row stays until somebody takes it away or the sweep does.
    """

    id = models.UUIDField(primary_key=True, default=uuid7)
    tenant_id = models.UUIDField()
    """Of the namespace; the platform's where it is shared."""
    namespace = models.UUIDField()
    digest = models.BinaryField()
    keys = models.JSONField(null=True)
    """Block keys (32 bytes in hex) of a prefix, from its start; null = the whole namespace."""
    until = models.DateTimeField()
    reason = models.CharField(max_length=500, blank=True)
    requested_by = models.CharField(max_length=100)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(name="catalog_pin_ahead", condition=Q(until__gt=F("created_at"))),
        ]
        indexes = [
            models.Index(fields=["tenant_id", "until"], name="catalog_pin_tenant"),
            models.Index(fields=["digest", "until"], name="catalog_pin_digest"),
        ]
