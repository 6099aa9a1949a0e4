"""Opens the operations of rules: each once for its matter, as the rule's own actor, and never twice.

Called by the rules.
"""

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from django.db import IntegrityError, transaction

from audit.standing import hindrance
from catalog.models import Operation
from catalog.operation_requests import deletion_request, plan_create
from kvconsole.infra.access import Principal, plane, system
from kvconsole.infra.rest import Problem
from kvcore import plans

TTL, SESSION_END, RESIDENCY, QUOTA = "ttl", "session_end", "residency", "quota"
"""What an operation says of why it was opened (`Operation.trigger`)."""
ACTORS = {trigger: system(f"rule-{trigger.replace('_', '-')}") for trigger in (TTL, SESSION_END, RESIDENCY, QUOTA)}
ONCE = "catalog_operation_about"
"""The constraint by which of one matter one operation is open."""
log = logging.getLogger("kvc.rules")


class Matter(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule found: `about` names it, so that it is not asked for again while somebody is at it.

    `believed_only`: there is nothing to do where the catalog believes nothing.
    """

    trigger: str
    about: str
    kind: str
    tenant: UUID
    selector: Mapping[str, Any]
    options: Mapping[str, Any] = {}
    reason: str
    believed_only: bool = True


def rule_open(matter: Matter, *, now: datetime, actor: Principal | None = None) -> Operation | None:
    """The operation of this matter; None: one is open, nothing is there, or the log is not signed in time.

    Args:
        matter: what was found.
        now: aware.
        actor: the rule; with a tenant where it acts in that tenant's plane.
    """
    open_ = Operation.objects.filter(
        tenant_id=matter.tenant, trigger=matter.trigger, about=matter.about, concluded_at=None
    )
    if hindrance() or open_.exists():
        return None
    who = actor or ACTORS[matter.trigger]
    try:
        with transaction.atomic(using=plane()):
            plan = plan_create(
                selector=matter.selector, options=matter.options, actor=who, now=now, kind=matter.kind
            )  # fmt: skip
            if matter.believed_only and not plans.plan_from_json(plan.body).blocks:
                raise Problem("nothing-selected")
            return deletion_request(
                plan_id=plan.id, plan_hash=bytes(plan.plan_hash).hex(), reason=matter.reason, trigger=matter.trigger,
                about=matter.about, actor=who, now=now,
            )  # fmt: skip
    except IntegrityError as e:
        if ONCE not in str(e):
            raise
        return None  # somebody else was quicker
    except Problem as problem:
        if problem.code != "nothing-selected":
            log.warning("a rule (%s, %s) could not open its operation: %s", matter.trigger, matter.about, problem.code)
        return None
