"""Decides whether what cannot be undone may be done now: only while the log is sequenced, signed and cosigned in time.

Ordinary work goes on without signer, sequencer or witness; its events wait in the queue. What destroys, widens who may
see what, or takes the log away asks `need_log` first, in the transaction of its change.
"""

from django.conf import settings

from audit.tree import Ask, asked
from kvconsole.infra.access import FLEET_PLANE
from kvconsole.infra.rest import Problem, add_codes

HEARTBEAT_SECONDS = 60.0
"""A log that does not grow is signed again so often; silence is only known to be one after that."""
RETRY_SECONDS = 10
add_codes({"audit-unavailable": (503, "The log is not signed in time: what cannot be undone has to wait")})
_STANDING = """
SELECT s.signer, extract(epoch FROM t.now)::float8, extract(epoch FROM s.signed_at)::float8,
       extract(epoch FROM s.cosigned_at)::float8,
       (SELECT time_us FROM audit_pending ORDER BY event LIMIT 1) / 1e6::float8,
       (SELECT time_us FROM audit_leaf WHERE idx = s.size) / 1e6::float8,
       (SELECT time_us FROM audit_leaf WHERE idx = s.witness_size) / 1e6::float8
  FROM audit_signing s, (SELECT clock_timestamp() AS now) t"""


def hindrance(ask: Ask | None = None, *, at: float | None = None) -> str:
    """What keeps the log from being signed in time: sequencer, signer, refused, witness, or "" = nothing.

    refused: the signer says that this is not the log it signed; that is so at once, not after a minute.

    Args:
        ask: where; None: the fleet's plane.
        at: seconds since 1970; None: now, by the database's clock.
    """
    ((signer, now, signed, cosigned, waiting, unsigned, unseen),) = (ask or asked(FLEET_PLANE))(_STANDING, ())
    now = now if at is None else at
    if signer == "refused":
        return "refused"
    if waiting is not None and now - waiting > settings.LOG_LATE_SECONDS:
        return "sequencer"
    if _late(now, signed, unsigned):
        return "signer"
    return "witness" if settings.WITNESS_URL and _late(now, cosigned, unseen) else ""


def need_log() -> None:
    """What cannot be undone may be done.

    Raises:
        Problem: audit-unavailable; nothing was done.
    """
    if why := hindrance():
        raise Problem("audit-unavailable", f"It waits for: {why}.", retry_after_seconds=RETRY_SECONDS)


def _late(now: float, last: float | None, oldest: float | None) -> bool:
    """Whether a leaf waits for too long, or no signature came when one was due.

    Args:
        now: seconds since 1970.
        last: when it was signed last; None: never.
        oldest: of the first leaf that is not signed; None: all are.
    """
    waits = oldest is not None and now - oldest > settings.LOG_LATE_SECONDS
    return waits or (last is not None and now - last > HEARTBEAT_SECONDS + settings.LOG_LATE_SECONDS)
