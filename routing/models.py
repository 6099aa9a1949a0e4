"""What routing keeps of its own: how far each process has applied fences, decisions, the policies behind them, what
tenants announced and what came of it, and the hits that were lost.
"""

from django.db import models


class IndexLease(models.Model):
    """One process with an index. Until `until` it may answer from it, and has applied all fences up to `fence_seq`.

    A fence is in force for look-ups once every row has reached it or is over.
    """

    name = models.TextField(primary_key=True)
    fence_seq = models.BigIntegerField()
    seq = models.BigIntegerField()
    mode = models.TextField()
    until = models.DateTimeField()


SLOTS, SLOT_SECONDS = 16, 6 * 3600
"""The ring of decisions: a slot is so many seconds; there are more of them than are kept."""


class Decision(models.Model):
    """One decision of a router, ours or a foreign one, with what it was made from; the table is a ring of partitions.

    answer: hit (from where it lies) | fetch (some of it from elsewhere) | compute (nothing of it is anywhere) |
    recompute (the index might not be used) | refused. kept: all | sample | refusal | fallback | outlier | foreign,
    and a sample stands for `stands_for` decisions. No prompt, token, key or salt is in `inputs`.
    """

    id = models.UUIDField(primary_key=True)
    slot = models.SmallIntegerField()
    tenant_id = models.UUIDField()
    at = models.DateTimeField()
    origin = models.TextField()
    """router, or the kind of the foreign one that reported it."""
    router = models.TextField()
    gateway = models.TextField()
    """Who got the answer: only it may report the outcome."""
    model = models.TextField()
    namespace = models.BinaryField(null=True)
    generation = models.BigIntegerField(null=True)
    answer = models.TextField()
    code = models.TextField()
    mode = models.TextField()
    index_age_ms = models.IntegerField(null=True)
    kept = models.TextField()
    stands_for = models.IntegerField()
    node = models.TextField()
    source = models.TextField()
    dp_rank = models.IntegerField()
    decode_node = models.TextField()
    policy = models.TextField()
    policy_version = models.IntegerField()
    prompt_tokens = models.IntegerField()
    overlap_tokens = models.IntegerField()
    predicted_ms = models.FloatField(null=True)
    inputs = models.BinaryField(null=True)
    measured_at = models.DateTimeField(null=True)
    measured = models.JSONField(null=True)
    measured_ms = models.FloatField(null=True)
    hit_tokens = models.IntegerField(null=True)
    regret_ms = models.FloatField(null=True)

    class Meta:
        managed = False
        db_table = "routing_decision"


class Policy(models.Model):
    """One version of a policy; the greatest is in force. Versions only come.

    `model`: whose requests it decides; "" with the name `default` = of all models that have none of their own.
    """

    name = models.CharField(max_length=63)
    version = models.IntegerField()
    model = models.CharField(max_length=200, blank=True)
    kind = models.CharField(max_length=32)
    document = models.JSONField()
    at = models.DateTimeField()
    by = models.CharField(max_length=200)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["name", "version"], name="routing_policy_version")]


class Tally(models.Model):
    """What one router process has counted since it began: decisions made, recorded, and lost on the way."""

    router = models.TextField(primary_key=True)
    at = models.DateTimeField()
    made = models.BigIntegerField()
    recorded = models.BigIntegerField()
    sampled_out = models.BigIntegerField()
    dropped = models.BigIntegerField()
    refused = models.BigIntegerField()
    fallback = models.BigIntegerField()
    outcomes = models.BigIntegerField()


class LostHit(models.Model):
    """Hit tokens of a namespace in one minute: what could have been reused, what was, and why the rest was not.

    The database itself keeps to it that available = achieved + the sum of the causes (`kvcore.lost_hits`).
    `beyond_tokens` are hits of engines that nobody knew of before.
    """

    tenant_id = models.UUIDField()
    minute = models.DateTimeField()
    namespace = models.BinaryField()
    decisions = models.BigIntegerField()
    available_tokens = models.BigIntegerField()
    achieved_tokens = models.BigIntegerField()
    beyond_tokens = models.BigIntegerField()
    rate_limit_tokens = models.BigIntegerField()
    timeout_tokens = models.BigIntegerField()
    no_slack_tokens = models.BigIntegerField()
    evicted_tokens = models.BigIntegerField()
    scope_tokens = models.BigIntegerField()
    epoch_tokens = models.BigIntegerField()
    fetch_not_worth_tokens = models.BigIntegerField()
    fence_tokens = models.BigIntegerField()
    target_refused_tokens = models.BigIntegerField()
    unknown_tokens = models.BigIntegerField()

    class Meta:
        managed = False
        db_table = "routing_losthit"


class LostHitMark(models.Model):
    """Up to where outcomes of decisions are in the ledger of lost hits: one row."""

    id = models.SmallIntegerField(primary_key=True)
    upto = models.DateTimeField()


class Announcement(models.Model):
    """What somebody said will be needed, what was done for it, and whether it came.

    `about`: SHA-256 of the session, or the first 8 bytes of the last block key; never the session or a prompt.
    """

    id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField()
    kind = models.CharField(max_length=8)
    """tool: the session comes back after a tool; prefix: a prefix will be needed."""
    about = models.BinaryField()
    blocks = models.IntegerField()
    namespace = models.BinaryField(null=True)
    said_at = models.DateTimeField()
    until = models.DateTimeField()
    """Comes it later, it did not come."""
    believed = models.FloatField()
    effect = models.CharField(max_length=8)
    """kept, wished (`wish` is not served yet), fetched, or nothing."""
    reason = models.CharField(max_length=63)
    """Why nothing was done; "" = something was."""
    bytes = models.BigIntegerField()
    pins = models.JSONField()
    operation = models.UUIDField(null=True)
    wish = models.JSONField(null=True)
    """What is to be fetched, with its block keys, until it was asked for."""
    state = models.CharField(max_length=8)
    """open, came, missed; unseen: nobody watched all of the time."""
    came_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["tenant_id", "kind", "about", "said_at"], name="routing_announced_about"),
            models.Index(fields=["state", "until"], name="routing_announced_due"),
            models.Index(fields=["said_at"], condition=models.Q(wish__isnull=False), name="routing_announced_wish"),
        ]


class TrustDay(models.Model):
    """How often on a day what a tenant announced came true."""

    tenant_id = models.UUIDField()
    day = models.DateField()
    came = models.BigIntegerField()
    missed = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "day"], name="routing_trust_once")]


class Watch(models.Model):
    """A router that looks whether what was announced comes: since when, and when it last told."""

    router = models.TextField(primary_key=True)
    since = models.DateTimeField()
    at = models.DateTimeField()
