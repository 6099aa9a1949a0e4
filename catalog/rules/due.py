"""Looks at all rules that look by themselves. Called by beat's task and by the web process's own look."""

from collections.abc import Callable
from datetime import datetime

from django.db import DatabaseError

from catalog.models import Operation
from catalog.rules.opening import log
from catalog.rules.quota import quota_due
from catalog.rules.residency import residency_due
from catalog.rules.retention import retention_due

RULES: tuple[Callable[..., list[Operation]], ...] = (retention_due, residency_due, quota_due)


def rules_due(*, now: datetime) -> list[Operation]:
    """Operations that rules opened now. A rule that fails keeps no other from looking.

    Raises:
        DatabaseError: nobody can look now.
    """
    found: list[Operation] = []
    for rule in RULES:
        try:
            found += rule(now=now)
        except DatabaseError:
            raise
        except Exception:
            log.exception("the rule %s could not be looked at", rule.__name__)
    return found
