"""What the pictures are drawn from: fills, evictions, usage, refusals and heat, in layers that grow coarser with age.

Written by ingest in the writer's own transactions (`catalog.ingest.pictures`), read by selectors. A time without a row
is a time nobody reported: a gap in the picture, never a zero. Rows carry the number of the source or keyspace and no
foreign keys: they outlive both.
"""

from django.db import models
from django.db.models import CompositePrimaryKey

LAYERS: tuple[tuple[int, int], ...] = ((10, 360), (60, 720), (600, 1008), (3600, 720), (21600, 360))
"""(seconds a column, columns kept): 1 h, 12 h, 7 d, 30 d, 90 d. Layer n is folded from layer n - 1."""
METRICS = ("resident", "hits", "misses", "stores", "evictions", "saved")
"""Order of the figures of a heat row. `resident` is a gauge in blocks, the others are sums over the column:
tokens (hits, misses), blocks (stores, evictions), milliseconds (saved)."""
ALL_KEYSPACES = -1
"""Keyspace of the usage rows that are the sum over all."""


class TierMark(models.Model):
    """The fill a source last reported for a tier."""

    pk = CompositePrimaryKey("source", "tier")
    source = models.IntegerField()
    tier = models.TextField()
    used = models.BigIntegerField()
    capacity = models.BigIntegerField()
    high = models.FloatField()
    low = models.FloatField()
    at = models.DateTimeField()


class MarkSample(models.Model):
    """The fill of a tier at the end of one column, and its peak within."""

    pk = CompositePrimaryKey("source", "tier", "layer", "t0")
    source = models.IntegerField()
    tier = models.TextField()
    layer = models.SmallIntegerField()
    t0 = models.DateTimeField()
    used = models.BigIntegerField()
    peak = models.BigIntegerField()
    capacity = models.BigIntegerField()
    high = models.FloatField()
    low = models.FloatField()

    class Meta:
        indexes = [models.Index("layer", "t0", name="marksample_time")]


class Eviction(models.Model):
    """Blocks that left a tier within one column, by the reason the node gave; each drop is counted exactly once."""

    pk = CompositePrimaryKey("source", "tier", "reason", "layer", "t0")
    source = models.IntegerField()
    tier = models.TextField()
    reason = models.TextField()
    layer = models.SmallIntegerField()
    t0 = models.DateTimeField()
    blocks = models.BigIntegerField()
    bytes = models.BigIntegerField()

    class Meta:
        indexes = [models.Index("layer", "t0", name="eviction_time")]


class Usage(models.Model):
    """What requests read within one column (from layer 1 on). Tier '' has the totals, the tiers have their hit tokens.

    Rows of keyspace -1 are the sums over all keyspaces and belong to the platform tenant.
    """

    pk = CompositePrimaryKey("keyspace", "source", "tier", "layer", "t0")
    keyspace = models.IntegerField()
    source = models.IntegerField()
    tier = models.TextField()
    layer = models.SmallIntegerField()
    t0 = models.DateTimeField()
    tenant_id = models.UUIDField()
    requests = models.BigIntegerField()
    prompt_tokens = models.BigIntegerField()
    hit_tokens = models.BigIntegerField()
    saved_ms = models.FloatField()
    measured_requests = models.BigIntegerField()

    class Meta:
        indexes = [
            models.Index("layer", "t0", name="usage_time"),
            models.Index("tenant_id", "layer", "t0", name="usage_tenant"),
        ]


class Refusal(models.Model):
    """How often something of a source was refused for one reason, and the last detail."""

    pk = CompositePrimaryKey("source", "code")
    source = models.IntegerField()
    code = models.TextField()
    count = models.BigIntegerField()
    last_at = models.DateTimeField()
    detail = models.TextField()


class SourcePulse(models.Model):
    """When a source was last heard, how long its last frame took to the commit, and its load."""

    source = models.IntegerField(primary_key=True)
    at = models.DateTimeField()
    lag_ms = models.FloatField(null=True)
    load_at = models.DateTimeField(null=True)
    queue_ms = models.FloatField(null=True)
    running = models.IntegerField(null=True)
    curve_a = models.FloatField(null=True)
    curve_b = models.FloatField(null=True)
    measured = models.BooleanField(null=True)


class Pulse(models.Model):
    """Rates of a writer over its last `window_seconds`, refreshed with its commits."""

    shard = models.SmallIntegerField(primary_key=True)
    at = models.DateTimeField()
    window_seconds = models.FloatField()
    requests = models.BigIntegerField()
    prompt_tokens = models.BigIntegerField()
    hit_tokens = models.BigIntegerField()
    saved_ms = models.FloatField()
    events = models.BigIntegerField()
    evictions = models.BigIntegerField()


class HeatRow(models.Model):
    """What a row of the heat map stands for. `id` is derived from the rest, so that it survives restarts.

    `kind`: family | other (the merged rest of a tenant's group) | new (prompts of a keyspace that hit nothing).
    """

    id = models.BigIntegerField(primary_key=True)
    tenant_id = models.UUIDField()
    kind = models.TextField()
    group = models.TextField()
    keyspace = models.IntegerField(null=True)
    family = models.BigIntegerField(null=True)
    told_at = models.DateTimeField()


class HeatAxis(models.Model):
    """The rows of a shard's map in the order they are drawn; `version` grows when they change."""

    shard = models.SmallIntegerField(primary_key=True)
    version = models.BigIntegerField()
    at = models.DateTimeField()
    rows = models.BinaryField()
    merged = models.BinaryField()


class HeatColumn(models.Model):
    """All metrics of one time. `rows` is i64 row ids, `values` f32 rows x METRICS, both zlib; NaN = unknown."""

    pk = CompositePrimaryKey("shard", "layer", "t0")
    shard = models.SmallIntegerField()
    layer = models.SmallIntegerField()
    t0 = models.DateTimeField()
    axis = models.BigIntegerField()
    families = models.IntegerField()
    rows = models.BinaryField()
    values = models.BinaryField()
