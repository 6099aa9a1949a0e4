"""Decides the windows in which nothing destructive starts, and whether one is open for an operation.

Whoever starts an operation asks here: people are refused, rules wait, and what a second person agreed to waits too,
unless it was asked to pass. What runs already goes on. Called by REST, by requests and by the engine.
"""

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from django.db import transaction

from audit.services import record
from audit.standing import need_log
from catalog.models import FROM_RISKS, DenyWindow
from kvconsole.infra.access import FLEET_PLANE, Principal, plane
from kvconsole.infra.rest import Problem, add_codes
from kvconsole.infra.sql import PLATFORM
from kvcore.windows import MOST_MINUTES, BadCron, Window, cron_check, denied_until
from tenants.placing import TenantPlace

add_codes({"deny-window": (409, "Nothing of this risk starts now")})
MOST = 50
"""Windows of one tenant, or of the fleet: all of them are read where something starts."""


def window_create(
    *, tenant: TenantPlace | None, cron: str, minutes: int, from_risk: str, reason: str, actor: Principal, now: datetime
) -> DenyWindow:
    """From now on nothing of this risk starts within the window. `tenant` None: in the whole fleet.

    Raises:
        Problem: validation-failed; nothing was changed.
    """
    wrong = _wrong(cron, minutes, from_risk)
    whose = tenant.id if tenant else PLATFORM
    with transaction.atomic(using=plane()):
        if wrong is None and DenyWindow.objects.filter(tenant_id=whose).count() >= MOST:
            wrong = ("/cron", f"At most {MOST} windows.")
        if wrong is not None:
            raise Problem("validation-failed", errors=[{"pointer": wrong[0], "code": "invalid", "detail": wrong[1]}])
        window = DenyWindow.objects.create(
            tenant_id=whose, cron=cron, minutes=minutes, from_risk=from_risk, reason=reason,
            requested_by=actor.subject, created_at=now,
        )  # fmt: skip
        _record("window.created", window, actor)
    return window


def _wrong(cron: str, minutes: int, from_risk: str) -> tuple[str, str] | None:
    try:
        cron_check(cron)
    except BadCron as e:
        return "/cron", f"{str(e)[:1].upper()}{str(e)[1:200]}."
    if not 1 <= minutes <= MOST_MINUTES:
        return "/minutes", f"1 to {MOST_MINUTES}."
    return None if from_risk in FROM_RISKS else ("/from_risk", f"One of {', '.join(FROM_RISKS)}.")


def window_remove(*, window_id: UUID, actor: Principal) -> None:
    """The window is gone: what it held back may start.

    Raises:
        Problem: not-found, or audit-unavailable, as more may be destroyed then; nothing was changed.
    """
    with transaction.atomic(using=plane()):
        window = DenyWindow.objects.filter(id=window_id).first()
        if window is None:
            raise Problem("not-found")
        need_log()
        _record("window.removed", window, actor)
        DenyWindow.objects.filter(tenant_id=window.tenant_id, id=window.id).delete()


def denied(tenant_id: UUID, risk: str, now: datetime, *, only: Iterable[DenyWindow] | None = None) -> datetime | None:
    """Until when nothing of this risk starts for the tenant, or for the fleet; None = it may start.

    `only`: by these windows.
    """
    known = DenyWindow.objects.using(FLEET_PLANE).filter(tenant_id__in={tenant_id, PLATFORM})
    rows = known if only is None else only
    windows = [Window(cron=row.cron, minutes=row.minutes, from_risk=row.from_risk) for row in rows]
    return denied_until(windows, str(risk), now)


def need_open(tenant_id: UUID, risk: str, now: datetime) -> None:
    """Passes if no window is in the way.

    Raises:
        Problem: deny-window.
    """
    until = denied(tenant_id, risk, now)
    if until is not None:
        seconds = max(1, int((until - now).total_seconds()))
        detail = f"Its risk is {risk}, and a deny window is open until {until.isoformat().replace('+00:00', 'Z')}."
        raise Problem("deny-window", detail, retry_after_seconds=seconds)


def _record(event_type: str, window: DenyWindow, actor: Principal) -> None:
    record(
        event_type=event_type,
        outcome="success",
        actor=actor,
        tenant_id=window.tenant_id,
        object_kind="window",
        object_id=str(window.id),
        body={
            "cron": window.cron,
            "minutes": window.minutes,
            "from_risk": str(window.from_risk),
            "reason": window.reason,
        },
    )
