"""Turns what nodes did not take, and what was found where it must not be, into audit events.

The first of a kind is told at once, repeated ones once a minute with their count: the counts of all events add up to
what nodes told. Called by a task; whoever is lost, the rows say what is not told yet.
"""

from datetime import datetime, timedelta

from django.db import connections, transaction

from audit.services import record
from kvconsole.infra.access import plane, system
from kvconsole.infra.sql import named

QUIET = timedelta(seconds=60)
AT_ONCE = 500
KINDS = {"refused": "placement.refused", "found": "placement.violated"}


def attempts_tell(*, now: datetime) -> int:
    """Events were written for what is due; answers how many."""
    queries = named("catalog", "quotas.sql")
    with transaction.atomic(using=plane()), connections[plane()].cursor() as cursor:
        cursor.execute(queries["attempts_due"], (now - QUIET, AT_ONCE))
        due = cursor.fetchall()
        for tenant, node, digest, tier, reason, kind, count, told in due:
            record(
                event_type=KINDS[kind],
                outcome="denied" if kind == "refused" else "failure",
                actor=system("writer"),
                tenant_id=tenant,
                object_kind="namespace",
                object_id=bytes(digest).hex(),
                body={"namespace": bytes(digest), "node": str(node), "tier": tier, "reason": reason,
                      "count": count - told},
            )  # fmt: skip
            cursor.execute(queries["attempt_told"], (count, now, tenant, node, digest, tier, reason, kind))
    return len(due)
