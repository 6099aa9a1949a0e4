"""Decides which webhooks are told of what: follows the log by its own order and makes a delivery of each match.

The log's index is contiguous and never changes, so a position in it is enough: nothing is told twice or left out,
whatever was killed in between. A tenant's webhook is told of the tenant's own events, and of checkpoints.
"""

from datetime import datetime, timedelta
from typing import Any

from django.db import connections, transaction

from audit.models import Delivery, HookPosition, Webhook
from audit.selectors import NAMES, moment
from audit.tree import checkpoint_latest
from audit.webhooks.kinds import CHECKPOINT, NUMBERS, checkpoint_message, event_message
from kvconsole.infra.access import FLEET_PLANE
from kvconsole.infra.sql import PLATFORM

LEAVES = 5_000
"""Of the log that are looked through in one transaction."""
CHECKPOINT_SECONDS = 60.0
MOST_PENDING = 10_000
"""Messages of one webhook that wait; what comes beyond is left out, and the log still has it."""
_EVENTS = """
SELECT l.idx, e.event_id, e.event_type, e.time_us, e.tenant_id, e.body
  FROM audit_leaf l JOIN audit_event e ON e.id = l.event AND e.time_us = l.time_us
 WHERE l.idx >= %s AND l.idx < %s AND e.event_type = ANY(%s) ORDER BY l.idx"""
_SIZE = "SELECT size FROM audit_tree"


def follow(*, now: datetime) -> int:
    """Deliveries are made of what the log holds beyond the position; how many."""
    made = 0
    while True:
        with transaction.atomic(using=FLEET_PLANE):
            position = HookPosition.objects.select_for_update(skip_locked=True).filter(id=1).first()
            if position is None:  # another worker is at it
                return made
            with connections[FLEET_PLANE].cursor() as cursor:
                cursor.execute(_SIZE)
                size = cursor.fetchone()[0]
            end = min(size, position.next_index + LEAVES)
            made += _tell(position.next_index, end, now)
            made += _tell_checkpoint(position, now)
            position.next_index = end
            position.save(update_fields=["next_index", "checkpoint_size"])
            if end == size:
                return made


def _tell(first: int, end: int, now: datetime) -> int:
    hooks = [hook for hook in _hooks() if set(hook.events) - {CHECKPOINT}]
    if not hooks or first >= end:
        return 0
    wanted = {kind for hook in hooks for kind in hook.events}
    numbers = [number for number, kind in NUMBERS.items() if kind in wanted]
    with connections[FLEET_PLANE].cursor() as cursor:
        cursor.execute(_EVENTS, [first, end, numbers])
        rows = cursor.fetchall()
    found = [delivery for row in rows for delivery in _deliveries(row, hooks, now)]
    Delivery.objects.bulk_create(_bounded(found))
    return len(found)


def _deliveries(row: tuple[Any, ...], hooks: list[Webhook], now: datetime) -> list[Delivery]:
    index, event_id, event_type, time_us, tenant_id, body = row
    kind = NUMBERS[event_type]
    meant = [h for h in hooks if kind in h.events and h.tenant_id in (PLATFORM, tenant_id)]
    if not meant:
        return []
    time = moment(time_us).isoformat().replace("+00:00", "Z")
    text = event_message(
        kind, action=NAMES[event_type], index=index, event_id=str(event_id), time=time, body=bytes(body or b"")
    )
    return [_delivery(hook, kind, text, now) for hook in meant]


def _tell_checkpoint(position: HookPosition, now: datetime) -> int:
    newest = checkpoint_latest()
    if newest is None or newest.size <= position.checkpoint_size:
        return 0
    due = now - timedelta(seconds=CHECKPOINT_SECONDS)
    hooks = [h for h in _hooks() if CHECKPOINT in h.events and (h.checkpoint_at is None or h.checkpoint_at <= due)]
    time = newest.signed_at.isoformat().replace("+00:00", "Z")
    text = checkpoint_message(size=newest.size, root=newest.root, note=newest.note, time=time)
    Delivery.objects.bulk_create(_bounded([_delivery(hook, CHECKPOINT, text, now) for hook in hooks]))
    Webhook.objects.filter(id__in=[hook.id for hook in hooks]).update(checkpoint_at=now)
    if len(hooks) == sum(CHECKPOINT in hook.events for hook in _hooks()):
        position.checkpoint_size = newest.size
    return len(hooks)


def _hooks() -> list[Webhook]:
    return list(Webhook.objects.filter(state="active"))


def _bounded(found: list[Delivery]) -> list[Delivery]:
    """Without those of webhooks that have too much waiting already."""
    full = {
        hook
        for hook in {one.webhook for one in found}
        if Delivery.objects.filter(webhook=hook, state="pending").count() >= MOST_PENDING
    }
    return [one for one in found if one.webhook not in full]


def _delivery(hook: Webhook, kind: str, text: str, now: datetime) -> Delivery:
    return Delivery(
        tenant_id=hook.tenant_id, webhook=hook.id, kind=kind, payload=text, created_at=now, next_at=now
    )  # fmt: skip
