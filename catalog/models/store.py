"""What is where: the tables of the block catalog. Written by `catalog.store` alone; everybody else only reads.

The tables are made by `catalog/sql/store_schema.sql`, which says what each column means. Rows name each other by
number and have no foreign keys: the one writer checks before it writes.
"""

from django.contrib.postgres.fields import ArrayField
from django.db import models

SOURCE_STATES = ("exact", "recovering", "degraded", "lost")


class Shard(models.Model):
    """One writer: its fence, how far its ledger is, and from where on rows may lag behind it."""

    id = models.SmallIntegerField(primary_key=True)
    writer = models.BigIntegerField(default=0)
    seq = models.BigIntegerField(default=0)
    redo = models.BigIntegerField(default=1)
    next_seg = models.BigIntegerField(default=0)
    next_owner = models.IntegerField()
    next_keyspace = models.IntegerField()
    next_source = models.IntegerField()
    wanted = models.BigIntegerField(default=0)
    url = models.TextField(default="")
    seen_at = models.DateTimeField(null=True)
    listens_since = models.DateTimeField(null=True)

    class Meta:
        managed = False


class Source(models.Model):
    """One engine or store of a node with its cursor; `state` and `reason` say how far it can be trusted."""

    id = models.IntegerField(primary_key=True)
    shard = models.SmallIntegerField()
    node_id = models.UUIDField()
    name = models.TextField()
    dp_rank = models.IntegerField()
    boot = models.TextField()
    stream = models.TextField()
    seq = models.BigIntegerField()
    old_boots = ArrayField(models.TextField(), default=list)
    state = models.TextField()
    reason = models.TextField(default="")
    since = models.DateTimeField()
    last_verified_at = models.DateTimeField(null=True)
    last_frame_at = models.DateTimeField(null=True)
    can_list = models.BooleanField(default=True)
    gaps = models.BigIntegerField(default=0)

    class Meta:
        managed = False


class Owner(models.Model):
    """One incarnation of (source, tier); what a retired one holds is void."""

    id = models.IntegerField(primary_key=True)
    shard = models.SmallIntegerField()
    source_id = models.IntegerField()
    tier = models.TextField()
    retired = models.BooleanField()
    born = models.DateTimeField()

    class Meta:
        managed = False


class Keyspace(models.Model):
    """Number of one (namespace digest, generation, cache group)."""

    id = models.IntegerField(primary_key=True)
    shard = models.SmallIntegerField()
    tenant_id = models.UUIDField()
    namespace_id = models.UUIDField(null=True)
    digest = models.BinaryField()
    generation = models.BigIntegerField()
    cache_group = models.SmallIntegerField()
    block_tokens = models.IntegerField()
    block_bytes = models.BigIntegerField()
    claimed = models.BooleanField()

    class Meta:
        managed = False


class Segment(models.Model):
    """Consecutive keys of one chain. May lag: use `store_reads.barrier` first where it must be exact."""

    pk = models.CompositePrimaryKey("keyspace", "id")
    id = models.BigIntegerField()
    head = models.BigIntegerField()
    up = models.BigIntegerField(null=True)
    family = models.BigIntegerField()
    keyspace = models.IntegerField()
    up_off = models.SmallIntegerField(null=True)
    tenant_id = models.UUIDField()
    parent = models.BinaryField(null=True)
    keys = models.BinaryField()

    class Meta:
        managed = False


class Placement(models.Model):
    """What one owner holds of one segment. May lag: use `store_reads.barrier` first where it must be exact."""

    pk = models.CompositePrimaryKey("keyspace", "owner", "seg")
    seg = models.BigIntegerField()
    born = models.DateTimeField()
    owner = models.IntegerField()
    keyspace = models.IntegerField()
    tenant_id = models.UUIDField()
    n = models.SmallIntegerField()
    held = models.BinaryField(null=True)
    states = models.BinaryField(null=True)

    class Meta:
        managed = False


class Holding(models.Model):
    """Blocks and digest of one (keyspace, owner): exact at every commit."""

    pk = models.CompositePrimaryKey("keyspace", "owner")
    keyspace = models.IntegerField()
    owner = models.IntegerField()
    tenant_id = models.UUIDField()
    blocks = models.BigIntegerField()
    lo = models.BigIntegerField()
    hi = models.BigIntegerField()

    class Meta:
        managed = False


class Ledger(models.Model):
    """What one transaction of the writer changed (`catalog.index.facts`); followed by replicas and live pictures."""

    pk = models.CompositePrimaryKey("shard", "seq")
    shard = models.SmallIntegerField()
    seq = models.BigIntegerField()
    at = models.DateTimeField()
    body = models.BinaryField()

    class Meta:
        managed = False


class Reader(models.Model):
    """Who follows the ledger and how far it has come: what it has not read is not pruned for a minute."""

    pk = models.CompositePrimaryKey("name", "shard")
    name = models.TextField()
    shard = models.SmallIntegerField()
    seq = models.BigIntegerField()
    seen_at = models.DateTimeField()

    class Meta:
        managed = False
