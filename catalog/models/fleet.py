"""Decides what the console knows of its nodes: who they are, which tiers they have, what they were told to do."""

from django.db import models

from kvconsole.infra.sql import uuid7

NODE_ROLES = ("prefill", "decode", "mixed", "store")
NODE_STATES = ("joining", "ready", "degraded", "silent", "cordoned", "draining", "fenced", "lost")


class Node(models.Model):
    """One cache node and its agent. `state` is observed; `wanted` is what operators want it to be while it is heard.

    Transitions of `state`: joining → ready (first heard) · any → silent (> 5 s) → lost (> 10 s) · silent, lost →
    `wanted` (heard again) · any → fenced (retired), which ends with a new enrolment alone. A node that is lost or
    fenced has no routable owner.
    """

    id = models.UUIDField(primary_key=True, default=uuid7)
    name = models.CharField(max_length=63, unique=True)
    region = models.CharField(max_length=63)
    zone = models.CharField(max_length=63, blank=True)
    rack = models.CharField(max_length=63, blank=True)
    role = models.CharField(max_length=16, default="mixed")
    agent_url = models.CharField(max_length=255, blank=True)
    state = models.CharField(max_length=16, default="joining")
    state_since = models.DateTimeField()
    wanted = models.CharField(max_length=16, default="ready")
    dedicated_to = models.UUIDField(null=True)
    """The tenant (of isolation `node`) whose blocks alone may be here; null = anybody's."""
    public_key = models.BinaryField(null=True)
    """Ed25519, given at enrolment; receipts are verified with it."""
    agent_version = models.CharField(max_length=63, blank=True)
    engine = models.JSONField(default=dict)
    profile = models.CharField(max_length=63, blank=True)
    created_at = models.DateTimeField()
    enrolled_at = models.DateTimeField(null=True)
    last_heard_at = models.DateTimeField(null=True)
    """Written by the ingest process: a frame or heartbeat with this node's token was taken."""

    class Meta:
        constraints = [
            models.CheckConstraint(name="catalog_node_role", condition=models.Q(role__in=NODE_ROLES)),
            models.CheckConstraint(name="catalog_node_state", condition=models.Q(state__in=NODE_STATES)),
        ]


class NodeTier(models.Model):
    """One tier of a node as its agent declared it: bytes, and the high and low marks as shares of the capacity."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="tiers")
    tier = models.CharField(max_length=16)
    capacity_bytes = models.BigIntegerField()
    emulated = models.BooleanField(default=False)
    encrypted = models.BooleanField(default=False)
    high = models.FloatField()
    low = models.FloatField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["node", "tier"], name="catalog_nodetier_once")]


class NodeCommand(models.Model):
    """One order to one node. It is due while `state` is waiting and `due_at` has passed, whoever notices.

    Transitions: waiting → done | refused | failed | expired. The lease says who may send it now.
    """

    step = models.UUIDField(primary_key=True, default=uuid7)
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="commands")
    kind = models.CharField(max_length=32)
    body = models.JSONField()
    """The arguments."""
    order_hash = models.BinaryField()
    issued_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    due_at = models.DateTimeField()
    attempts = models.IntegerField(default=0)
    state = models.CharField(max_length=16, default="waiting")
    code = models.CharField(max_length=63, blank=True)
    receipt = models.JSONField(null=True)
    """The signed envelope as it came."""
    receipt_hash = models.CharField(max_length=64, blank=True)
    receipt_prev = models.CharField(max_length=64, blank=True)
    done_at = models.DateTimeField(null=True)
    lease_holder = models.CharField(max_length=127, blank=True)
    lease_until = models.DateTimeField(null=True)
    lease_token = models.BigIntegerField(default=0)

    class Meta:
        indexes = [models.Index(fields=["due_at"], name="catalog_command_due", condition=models.Q(state="waiting"))]
