"""Chooses what plans of a kind of operation are made of: each kind has its own reading of what is there.

Called when a plan is frozen and again when it is started.
"""

from datetime import datetime

from catalog.misplaced import KIND as RESIDENCY
from catalog.misplaced import residency_input
from catalog.operation_plans import plan_input, requester_of
from catalog.trimming import KIND as QUOTA_TRIM
from catalog.trimming import trim_input
from kvconsole.infra.access import Principal
from kvcore.plans import Options, PlanInput, Selector


def input_of(*, kind: str, selector: Selector, options: Options, actor: Principal, now: datetime) -> PlanInput:
    """All that a plan of this kind and selector is made of, as it is now.

    Raises:
        Problem: as the planner of the kind.
    """
    if kind == QUOTA_TRIM:
        return trim_input(selector=selector, options=options, requester=requester_of(actor), now=now)
    if kind == RESIDENCY:
        return residency_input(selector=selector, options=options, requester=requester_of(actor))
    return plan_input(kind=kind, selector=selector, options=options, actor=actor, now=now)
