"""Decides the tables of who may have how much where, and of what was used: quotas, allowances, class rules, usage.

Quotas, rules and rates are intent, written by operators with their audit events. Everything else is written by ingest
in the writer's own transactions: what was dealt to nodes, what nodes did not take, what requests saved.
"""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import CompositePrimaryKey


class Quota(models.Model):
    """What a tenant may hold on a tier of the whole fleet, in bytes of blocks. No row = unlimited, nothing guaranteed.

    `effective_bytes`: what the guarantee is worth while all guarantees together are more than the tier has.
    """

    pk = CompositePrimaryKey("tenant_id", "tier")
    tenant_id = models.UUIDField()
    tier = models.CharField(max_length=16)
    limit_bytes = models.BigIntegerField(null=True)
    guaranteed_bytes = models.BigIntegerField(default=0)
    effective_bytes = models.BigIntegerField(default=0)


class RateQuota(models.Model):
    """How often a tenant may call and delete. Null = unlimited, 0 = not at all."""

    tenant_id = models.UUIDField(primary_key=True)
    requests_per_second = models.IntegerField(null=True)
    deletions_per_hour = models.IntegerField(null=True)


class RateUse(models.Model):
    """How much of a window (a second of requests, an hour of deletions) is taken."""

    pk = CompositePrimaryKey("tenant_id", "kind")
    tenant_id = models.UUIDField()
    kind = models.CharField(max_length=16)
    window = models.BigIntegerField()
    taken = models.BigIntegerField()


class Allowance(models.Model):
    """A tenant's allowance on one tier of one node (`kvcore.quotas.Grant`); null = unlimited."""

    pk = CompositePrimaryKey("tenant_id", "node_id", "tier")
    tenant_id = models.UUIDField()
    node_id = models.UUIDField()
    tier = models.CharField(max_length=16)
    given = models.BigIntegerField(null=True)
    ceiling = models.BigIntegerField(null=True)
    floor = models.BigIntegerField(default=0)
    """Of the guarantee: what others may not evict."""


class NodeDeal(models.Model):
    """The version of a node's allowances, and the latest one that it said it has applied."""

    node_id = models.UUIDField(primary_key=True)
    version = models.BigIntegerField()
    applied = models.BigIntegerField()
    at = models.DateTimeField()


class ClassRule(models.Model):
    """Where blocks of a tenant's data class may be (`kvcore.residency.Rule`). Null = anywhere."""

    pk = CompositePrimaryKey("tenant_id", "data_class")
    tenant_id = models.UUIDField()
    data_class = models.CharField(max_length=63)
    tiers = ArrayField(models.CharField(max_length=16), null=True)
    regions = ArrayField(models.CharField(max_length=63), null=True)
    min_protection = models.CharField(max_length=16, default="plain")


class Attempt(models.Model):
    """Blocks of a namespace that a node did not take (`refused`), or holds although it must not (`found`).

    `told`: how many of `count` audit events have told.
    """

    pk = CompositePrimaryKey("tenant_id", "node_id", "digest", "tier", "reason", "kind")
    tenant_id = models.UUIDField()
    node_id = models.UUIDField()
    digest = models.BinaryField()
    tier = models.CharField(max_length=16)
    reason = models.CharField(max_length=32)
    kind = models.CharField(max_length=16)
    count = models.BigIntegerField()
    told = models.BigIntegerField(default=0)
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    told_at = models.DateTimeField(null=True)


class RefusedBatch(models.Model):
    """The last batch of refusals that a node told, so that one told twice counts once."""

    node_id = models.UUIDField(primary_key=True)
    life = models.CharField(max_length=64)
    number = models.BigIntegerField()


class UsageDay(models.Model):
    """What a tenant's requests of one day (UTC) read. Tier '' has the totals; the tiers' parts sum up to them.

    `unsized_requests`: the bytes of their hits are not known.
    """

    pk = CompositePrimaryKey("tenant_id", "day", "tier")
    tenant_id = models.UUIDField()
    day = models.DateField()
    tier = models.CharField(max_length=16)
    requests = models.BigIntegerField()
    prompt_tokens = models.BigIntegerField()
    hit_tokens = models.BigIntegerField()
    hit_bytes = models.BigIntegerField()
    saved_us = models.BigIntegerField()
    measured_requests = models.BigIntegerField()
    unsized_requests = models.BigIntegerField()


class UsageGap(models.Model):
    """A time of which requests may be missing. Of the platform, readable by all tenants: it names nobody."""

    pk = CompositePrimaryKey("tenant_id", "source", "since")
    tenant_id = models.UUIDField()
    source = models.IntegerField()
    """0 = the writer itself."""
    since = models.DateTimeField()
    until = models.DateTimeField(null=True)
    reason = models.CharField(max_length=32)


class UsageCover(models.Model):
    """From when to when the writer of a shard has counted. Of the platform, readable by all tenants."""

    pk = CompositePrimaryKey("tenant_id", "shard")
    tenant_id = models.UUIDField()
    shard = models.SmallIntegerField()
    since = models.DateTimeField()
    upto = models.DateTimeField()


class TenantTier(models.Model):
    """What a tenant holds on a tier of the fleet, as of `at`."""

    pk = CompositePrimaryKey("tenant_id", "tier")
    tenant_id = models.UUIDField()
    tier = models.CharField(max_length=16)
    blocks = models.BigIntegerField()
    bytes = models.BigIntegerField()
    at = models.DateTimeField()


class StaleHit(models.Model):
    """Tokens that requests read from a fenced generation, ever; anything but no row is a fault."""

    keyspace = models.IntegerField(primary_key=True)
    hit_tokens = models.BigIntegerField()
    requests = models.BigIntegerField()
    last_at = models.DateTimeField()
