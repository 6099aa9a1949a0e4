"""Decides what the tenants app is told of model epochs: bytes held in the fleet, and tokens read from behind a fence.

Bytes are known here, roll-outs there, and `tenants` may not ask: so this is told to it periodically, through its
service. Called by the task `catalog.epoch_bytes_tell`. Index of the reads: holding by keyspace.
"""

from datetime import datetime
from uuid import UUID

from django.db import connections

from catalog.models import Keyspace
from kvconsole.infra.access import plane
from tenants.reading import namespace_epochs
from tenants.services import EpochHeld, epoch_bytes_put

_HELD = """
SELECT k.namespace_id, sum(h.blocks)::bigint, sum(h.blocks * k.block_bytes)::bigint
  FROM catalog_holding h
  JOIN catalog_keyspace k ON k.id = h.keyspace
  JOIN catalog_owner o ON o.id = h.owner AND NOT o.retired
 WHERE k.namespace_id IS NOT NULL AND h.blocks > 0
 GROUP BY k.namespace_id"""
_STALE = """
SELECT k.namespace_id, sum(s.hit_tokens)::bigint
  FROM catalog_stalehit s JOIN catalog_keyspace k ON k.id = s.keyspace
 WHERE k.namespace_id IS NOT NULL GROUP BY k.namespace_id"""
"""Counted by the writer (`catalog.ingest.stale`) and kept for good."""


def epoch_bytes_tell(*, now: datetime) -> int:
    """What the fleet holds of each epoch that anything is or was held of is known to the tenants app.

    Returns:
        How many epochs were told of. One of which nothing is held any more is told of with 0.
    """
    with connections[plane()].cursor() as cursor:
        cursor.execute(_HELD)
        held = {namespace: (blocks, size) for namespace, blocks, size in cursor}
        cursor.execute(_STALE)
        stale: dict[UUID, int] = dict(cursor.fetchall())
    named = Keyspace.objects.filter(namespace_id__isnull=False).values_list("namespace_id", flat=True)
    known = {namespace for namespace in named.distinct() if namespace}
    sums: dict[tuple[UUID, UUID, int], list[int]] = {}
    for namespace, epoch in namespace_epochs(known).items():
        at = sums.setdefault(epoch, [0, 0, 0])
        blocks, size = held.get(namespace, (0, 0))
        at[0], at[1], at[2] = at[0] + size, at[1] + blocks, at[2] + stale.get(namespace, 0)
    epoch_bytes_put(rows=[EpochHeld(*epoch, *told) for epoch, told in sums.items()], now=now)
    return len(sums)
