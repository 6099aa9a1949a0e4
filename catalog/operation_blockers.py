"""Reads what stands in the way of a plan besides legal holds: pins, leases of keys, and transfers that go on.

None of them stops a fence: who plans sees them, and leases are waited for. Called by `operation_plans`.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from catalog.models import Pin
from kvconsole.infra.access import FLEET_PLANE
from kvconsole.infra.sql import named
from kvconsole.infra.statements import fetch
from kvcore.plans import Blocker
from tenants.erasing import Erasable, leases_of

DAY = timedelta(days=1)


def pins_on(rows: Sequence[Erasable], now: datetime) -> list[Blocker]:
    """Pins that are in force on these namespaces."""
    digests = {row.id: row.digest.hex() for row in rows}
    found = Pin.objects.using(FLEET_PLANE).filter(namespace__in=list(digests), until__gt=now)
    return [
        Blocker(
            kind="pin", ref=str(pin.id), ns=digests[pin.namespace], blocks=len(pin.keys or ()),
            until=pin.until.timestamp(), reason="keys" if pin.keys else "namespace",
        )
        for pin in found
    ]  # fmt: skip


def leases_on(rows: Sequence[Erasable], now: datetime) -> list[Blocker]:
    """Leases of keys of these namespaces: by kind of holder, how many and until when."""
    digests = {row.id: row.digest.hex() for row in rows}
    return [
        Blocker(kind="key_lease", ref=kind, ns=digests[namespace], until=until.timestamp(), reason=str(holders))
        for namespace, kind, holders, until in leases_of(list(digests), now)
    ]


def transfers_on(rows: Sequence[Erasable]) -> list[Blocker]:
    """Operations that move blocks of these namespaces now."""
    digests = [row.digest for row in rows]
    found = fetch(named("catalog", "operation_blocks.sql")["moving"], (digests,), using=FLEET_PLANE)
    return [Blocker(kind="transfer", ref=str(id_), ns=bytes(ns).hex(), reason=kind) for id_, kind, ns in found]


def hits_a_day(rows: Sequence[Erasable], now: datetime) -> float | None:
    """Tokens that requests read from these namespaces within the last day; None = nobody told of any request."""
    columns = (now - DAY, [row.digest for row in rows], now - DAY)
    tokens, told = fetch(named("catalog", "operation_blocks.sql")["hits"], columns, using=FLEET_PLANE)[0]
    return float(tokens or 0) if told else None
