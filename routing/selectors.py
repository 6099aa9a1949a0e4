"""Reads of the routing app."""

from datetime import datetime

from kvconsole.infra.access import FLEET_PLANE
from routing.models import IndexLease


def fence_in_force(*, seq: int, now: datetime) -> bool:
    """Whether no process answers look-ups any more without the fence at `seq`: acknowledged, or its lease is over."""
    return not IndexLease.objects.filter(until__gt=now, fence_seq__lt=seq).exists()


def routers_behind(*, seq: int, now: datetime) -> int:
    """How many processes may still answer look-ups without the fence at `seq`. Named in settings for the catalog."""
    return IndexLease.objects.using(FLEET_PLANE).filter(until__gt=now, fence_seq__lt=seq).count()
