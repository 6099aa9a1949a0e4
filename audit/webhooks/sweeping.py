"""Decides what beat does for webhooks: follows the log, sends what is due, and forgets old deliveries."""

from datetime import datetime, timedelta

from audit.models import Delivery
from audit.webhooks import feed, sending

KEPT = timedelta(days=30)
ROUNDS = 5
"""So often what is due is sent in one sweep, while there is more of it."""


def sweep(*, now: datetime) -> int:
    """What the log records is on its way, and what was due was sent; how many messages."""
    feed.follow(now=now)
    sent = 0
    for _ in range(ROUNDS):
        last = sending.send_due(now=now)
        sent += last
        if last < sending.AT_ONCE:
            break
    old = Delivery.objects.exclude(state="pending").filter(created_at__lt=now - KEPT)
    Delivery.objects.filter(id__in=list(old.values_list("id", flat=True)[:1_000])).delete()
    return sent
