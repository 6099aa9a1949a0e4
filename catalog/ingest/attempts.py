"""Counts what nodes did not take and what lies where it must not, exactly once, until events have told it.

The rows go with the writer's commit; `catalog.refused` makes the events. A batch of refusals that a node sends again,
because it did not hear that it was counted, has the number it had before. Called by `folding`.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeGuard
from uuid import UUID

from catalog.ingest.policies import PolicyBook
from catalog.models import RefusedBatch
from kvconsole.infra.sql import PLATFORM
from kvcore.blocks import TIERS
from kvcore.messages import Heartbeat
from kvcore.residency import REASONS

REFUSED, FOUND = "refused", "found"
COUNT_MOST = 2**31
"""What one entry of a heartbeat may count: more is not a count of anything."""
UNREGISTERED = b""
"""Stands for all namespaces that nobody registered: there may be any number of them."""
Key = tuple[UUID, UUID, bytes, str, str, str]

UPSERT = """
INSERT INTO catalog_attempt (tenant_id, node_id, digest, tier, reason, kind, count, told, first_at, last_at)
SELECT u.*, 0, t.at, t.at FROM (SELECT %s::timestamptz AS at) t,
    unnest(%s::uuid[], %s::uuid[], %s::bytea[], %s::text[], %s::text[], %s::text[], %s::bigint[]) u
ON CONFLICT (tenant_id, node_id, digest, tier, reason, kind) DO UPDATE
    SET count = catalog_attempt.count + excluded.count, last_at = excluded.last_at"""
BATCHES = """
INSERT INTO catalog_refusedbatch (node_id, life, number) SELECT * FROM unnest(%s::uuid[], %s::text[], %s::bigint[])
ON CONFLICT (node_id) DO UPDATE SET life = excluded.life, number = excluded.number"""


class Attempts:
    """What has been counted since the last commit."""

    def __init__(self, policies: PolicyBook) -> None:
        self._policies = policies
        self._seen: dict[UUID, tuple[str, int]] = {
            node: (life, number) for node, life, number in RefusedBatch.objects.values_list("node_id", "life", "number")
        }
        self._counts: Counter[Key] = Counter()
        self._batches: set[UUID] = set()

    def fresh(self, node: UUID, beat: Heartbeat) -> bool:
        """Whether the refusals of this heartbeat were not counted yet; they are from now on."""
        if not beat.refused or beat.refused_seq <= 0:
            return True  # an agent that does not number them
        life, number = self._seen.get(node, ("", 0))
        if beat.life[:64] == life and beat.refused_seq <= number:
            return False
        self._seen[node] = beat.life[:64], min(beat.refused_seq, 2**62)
        self._batches.add(node)
        return True

    def told(self, node: UUID, entry: dict[str, Any]) -> bool:
        """Whether the entry of a heartbeat says that blocks were not taken for a reason of policy; it is counted."""
        ns, tier, reason, count = (entry.get(name) for name in ("ns", "tier", "reason", "count"))
        if not isinstance(reason, str) or reason not in REASONS or not isinstance(tier, str) or tier not in TIERS:
            return False
        if not countable(count):
            return False
        digest = digest_of(ns)
        if digest is None:
            return False
        self.note(node, digest, tier, reason, REFUSED, count)
        return True

    def note(self, node: UUID, digest: bytes, tier: str, reason: str, kind: str, count: int) -> None:
        """So many blocks more."""
        namespace = self._policies.known.get(digest)
        tenant = namespace.tenant.id if namespace else PLATFORM
        self._counts[tenant, node, digest if namespace else UNREGISTERED, tier, reason, kind] += count

    def rows(self, when: datetime) -> list[tuple[str, Sequence[Any]]]:
        """Statements for the commit; what they write is forgotten here."""
        out: list[tuple[str, Sequence[Any]]] = []
        if self._counts:
            keys = list(self._counts)
            columns = [[key[i] for key in keys] for i in range(6)]
            out.append((UPSERT, [when, *columns, [self._counts[key] for key in keys]]))
            self._counts = Counter()
        if self._batches:
            seen = [(node, *self._seen[node]) for node in self._batches]
            out.append((BATCHES, [[row[i] for row in seen] for i in range(3)]))
            self._batches = set()
        return out


def countable(count: object) -> TypeGuard[int]:
    """Whether a heartbeat's entry counts with it: a whole number, which `true` is not, that something can reach."""
    return type(count) is int and 0 < count < COUNT_MOST


def digest_of(ns: object) -> bytes | None:
    """The 32 bytes that an entry of a heartbeat names in hex or as they are, None if it is neither."""
    if isinstance(ns, str) and len(ns) == 64:
        try:
            return bytes.fromhex(ns)
        except ValueError:
            return None
    return ns if isinstance(ns, bytes) and len(ns) == 32 else None
