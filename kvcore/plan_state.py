"""Decides where an operation stands: its conditions, state, finalizers and progress.

Nothing here is stored. Called by the console's engine and by whoever shows an operation.
"""

from enum import StrEnum
from typing import Literal

import msgspec

from kvcore.plan_steps import Intent, Observed

Status = Literal["true", "false", "unknown"]


class State(StrEnum):
    """The states of the API."""

    PLANNED = "planned"
    AWAITING_APPROVAL = "awaiting_approval"
    FENCED = "fenced"
    ERASING = "erasing"
    VERIFYING = "verifying"
    HELD = "held"
    COMPLETED = "completed"
    COMPLETED_WITH_EXCEPTIONS = "completed_with_exceptions"
    FAILED = "failed"
    DENIED = "denied"
    EXPIRED = "expired"
    STOPPED = "stopped"


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """A fact about an operation: `type` in PascalCase, `reason` a code, `message` for people."""

    type: str
    status: Status
    reason: str = ""
    message: str = ""
    since: float | None = None


class CellProgress(msgspec.Struct, frozen=True, kw_only=True, rename={"cls": "class"}):
    """How far one owner is. `state`: pending, erasing, erased, verified, blocked or silent."""

    node: str
    source: str
    tier: str
    owner: int
    state: str
    cls: int | None
    done_bytes: int
    total_bytes: int


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Percent of the owners' work, whole, 100 only when all is verified."""

    percent: int
    cells: tuple[CellProgress, ...]


def conditions(intent: Intent, observed: Observed) -> list[Condition]:
    """All conditions, in a fixed order."""
    raise NotImplementedError


def operation_state(found: list[Condition]) -> State:
    """The state that the conditions come to."""
    raise NotImplementedError


def finalizers_left(intent: Intent, observed: Observed) -> tuple[str, ...]:
    """The finalizers that still hold the operation; only when none is left may it be concluded."""
    raise NotImplementedError


def progress(intent: Intent, observed: Observed) -> Progress:
    """How far each owner is."""
    raise NotImplementedError
