"""Rows of operations, plans, holds, pins and deny windows for pages, as the current plane shows them.

What it hides is not there. Lists are left open for the caller's pages; everything else is one query by key.
"""

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from django.db.models import QuerySet

from catalog.models import DenyWindow, Hold, Operation, Pin, Plan, Step

STEP_SHOWN = (
    *("id", "kind", "node", "tier", "state", "code", "done_at", "created_at", "done_blocks", "done_bytes"),
    "receipt_hash",
)
"""Of steps, what a page tells of one."""
IN_FORCE = ("active", "releasing")


def operation_row(operation_id: UUID | str) -> Operation | None:
    """The operation."""
    return Operation.objects.filter(id=operation_id).first()


def plan_row(plan_id: UUID) -> Plan | None:
    """The plan, also when it is too old."""
    return Plan.objects.filter(id=plan_id).first()


def plans_of(subject: str, *, ids: Collection[UUID]) -> list[Plan]:
    """Those of these plans that this subject asked for."""
    return list(Plan.objects.filter(id__in=ids, requested_by=subject))


def plans_ready(subject: str, *, now: datetime, most: int) -> list[Plan]:
    """What this subject planned and can still start, the newest first; those that were started are left out."""
    rows = Plan.objects.filter(requested_by=subject, expires_at__gt=now).order_by("-id")[:most]
    over = started([row.id for row in rows])
    return [row for row in rows if row.id not in over]


def started(plans: Collection[UUID]) -> dict[UUID, UUID]:
    """Plan → the operation that carries it out."""
    rows = Operation.objects.filter(plan__in=plans).values_list("plan", "id")
    return {plan: operation for plan, operation in rows if plan is not None}


def steps_newest(operation_id: UUID, most: int) -> list[Step]:
    """The last steps to be answered and then the last that were made, without what was sent and answered."""
    rows = Step.objects.filter(operation=operation_id).only(*STEP_SHOWN)
    return list(rows.order_by("-done_at", "-created_at", "-id")[:most])


def hold_row(hold_id: UUID | str) -> Hold | None:
    """The legal hold."""
    return Hold.objects.filter(id=hold_id).first()


def hold_rows(*, in_force: bool = False) -> QuerySet[Hold]:
    """Legal holds; `in_force`: those that keep bytes now, also when their end was asked for."""
    return Hold.objects.filter(state__in=IN_FORCE) if in_force else Hold.objects.all()


def pin_row(pin_id: UUID) -> Pin | None:
    """The pin."""
    return Pin.objects.filter(id=pin_id).first()


def pin_rows() -> QuerySet[Pin]:
    """Pins, also those whose time is over."""
    return Pin.objects.all()


def window_row(window_id: UUID) -> DenyWindow | None:
    """The deny window."""
    return DenyWindow.objects.filter(id=window_id).first()


def window_rows() -> QuerySet[DenyWindow]:
    """Deny windows, those of the whole fleet too, as far as the current plane shows them."""
    return DenyWindow.objects.all()


def drain_open(node: str) -> Operation | None:
    """The drain of the node of this name that has not ended, the newest if there are several."""
    rows = Operation.objects.filter(kind="drain", concluded_at=None, selector__node=node)
    return rows.order_by("-id").first()
