"""Decides how it is remembered which tenant used which epoch when: a row a day, told at most every ten minutes.

Called whenever a namespace is resolved, so it must cost nothing nearly always: what was told is kept in the process.
"""

import threading
from datetime import datetime
from time import monotonic
from typing import Any
from uuid import UUID

from django.db import connections, transaction

from kvconsole.infra.access import plane
from kvconsole.infra.sql import named

QUIET_SECONDS = 600.0
REMEMBERED = 50_000
Use = tuple[UUID, UUID, int, str, int]
_lock = threading.Lock()
_told: dict[Use, float] = {}


def epoch_used(*, tenant_id: UUID, model_id: UUID, epoch: int, adapter_digest: str, now: datetime) -> bool:
    """The tenant's last use of the epoch and adapter on this day is known to ten minutes.

    Returns:
        Whether a row was written now, in the current transaction.
    """
    use, clock = (tenant_id, model_id, epoch, adapter_digest, now.toordinal()), monotonic()
    if clock - _told.get(use, -QUIET_SECONDS) < QUIET_SECONDS:
        return False
    values: dict[str, Any] = {
        "tenant": tenant_id,
        "model": model_id,
        "epoch": epoch,
        "adapter": adapter_digest,
        "day": now.date(),
        "now": now,
    }
    with connections[plane()].cursor() as cursor:
        cursor.execute(named("tenants")["epoch_used"], values)
    transaction.on_commit(lambda: _remember(use, clock), using=plane(), robust=True)
    return True


def _remember(use: Use, clock: float) -> None:
    with _lock:
        while len(_told) >= REMEMBERED:
            _told.pop(next(iter(_told)))
        _told.pop(use, None)
        _told[use] = clock
