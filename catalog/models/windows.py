"""Decides the table of windows in which nothing destructive starts. They are policy, and have audit events."""

from django.db import models
from django.db.models import Q

from kvconsole.infra.sql import uuid7
from kvcore.risk import Risk

FROM_RISKS = (Risk.R1, Risk.R2, Risk.R3)
"""From which risk on; what is one's own and small starts always."""


class DenyWindow(models.Model):
    """From each minute that `cron` means (UTC), for `minutes`, nothing of `from_risk` or more starts.

    Of the platform: for the whole fleet. Of a tenant: for what is its matter alone.
    """

    id = models.UUIDField(primary_key=True, default=uuid7)
    tenant_id = models.UUIDField()
    cron = models.CharField(max_length=100)
    minutes = models.IntegerField()
    from_risk = models.CharField(max_length=2, default="R1")
    reason = models.CharField(max_length=500)
    requested_by = models.CharField(max_length=100)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(name="catalog_denywindow_minutes", condition=Q(minutes__gte=1)),
            models.CheckConstraint(name="catalog_denywindow_risk", condition=Q(from_risk__in=("R1", "R2", "R3"))),
        ]
        indexes = [models.Index(fields=["tenant_id", "id"], name="catalog_denywindow_tenant")]
