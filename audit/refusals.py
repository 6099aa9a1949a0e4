"""Decides how refusals of audited routes become events: one at once, repetitions as one a minute with their count.

Called by `kvconsole.infra.access.PrincipalMiddleware` by name, after the refused call was rolled back.
"""

import threading
import time

from django.db import DatabaseError, transaction

from audit.services import record
from kvconsole.infra.access import Principal, plane, system, tenant_context
from kvconsole.infra.keystore import KeyStoreUnavailable

QUIET_SECONDS = 60.0
REMEMBERED = 10_000


class Repetitions:
    """How often the same refusal came since its last event."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, ...], tuple[float, int]] = {}

    def due(self, key: tuple[str, ...], now: float) -> int | None:
        """How many came before this one without an event, or None: too soon for another event.

        Args:
            key: what makes refusals the same.
            now: seconds of any steady clock.
        """
        with self._lock:
            last, silent = self._seen.get(key, (-QUIET_SECONDS, 0))
            if now - last < QUIET_SECONDS:
                self._seen[key] = (last, silent + 1)
                return None
            if key not in self._seen and len(self._seen) >= REMEMBERED:
                self._seen.pop(next(iter(self._seen)))
            self._seen.pop(key, None)
            self._seen[key] = (now, 0)
            return silent


_repetitions = Repetitions()


def refusal_record(*, principal: Principal | None, route: str, method: str, status: int, code: str) -> bool:
    """The refusal is an event of its own transaction, or counted towards the next one.

    Returns:
        Whether an event was written. A database that is away costs the event, not the answer.
    """
    who = principal.subject if principal else "nobody"
    repeated = _repetitions.due((who, route, method, str(status)), time.monotonic())
    if repeated is None:
        return False
    try:
        with tenant_context(principal or system("web")):
            _write(principal, route, method, status, code, repeated)
    except (DatabaseError, KeyStoreUnavailable):
        return False
    return True


def _write(principal: Principal | None, route: str, method: str, status: int, code: str, repeated: int) -> None:
    with transaction.atomic(using=plane()):
        record(
            event_type="access.refused",
            outcome="denied" if status in (401, 403, 404) else "failure",
            actor=principal,
            tenant_id=principal.tenant_id if principal else None,
            object_kind="route",
            object_id=route,
            body={"route": route, "method": method, "status": status, "code": code, "repeated": repeated},
        )
