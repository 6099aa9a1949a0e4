"""The rule of sessions: what was cached of a session goes when somebody who serves it says that it has ended.

Said once or ten times, it opens one operation. It can be told apart only where the tenant's erasure scope is the
session; where it is not, nothing is done and the answer says so. Called by REST.
"""

import hashlib
from dataclasses import replace
from datetime import datetime

from django.db import transaction

from audit.services import record
from audit.standing import need_log
from catalog.models import Operation
from catalog.rules.opening import ACTORS, SESSION_END, Matter, rule_open
from kvconsole.infra.access import Principal, plane
from kvconsole.infra.rest import Problem
from tenants.erasing import erasable_tenant, namespaces_selected


def session_end(*, tenant: str, session: str, actor: Principal, now: datetime) -> Operation | None:
    """What was cached of the session is fenced, or will be when a window is over; None: nothing of it was ever cached.

    Args:
        tenant: its slug.
        session: as requests name it.
        actor: who says so.
        now: aware.

    Raises:
        Problem: not-found, not-separable or audit-unavailable; nothing was done.
    """
    whose = erasable_tenant(tenant)
    if whose is None:
        raise Problem("not-found")
    rows = namespaces_selected(tenant=tenant, session=session, shared=False)
    if whose.erasure_scope != "session" and not rows:
        raise Problem(
            "not-separable",
            f"The erasure_scope of {tenant} is {whose.erasure_scope}: a session is not apart from the rest."
            " Nothing was fenced.",
        )
    about = "session/" + hashlib.sha256(session.encode()).hexdigest()
    rule = ACTORS[SESSION_END]
    if actor.tenant_id is not None:
        rule = replace(rule, tenant_id=actor.tenant_id, tenant_slug=actor.tenant_slug)
    with transaction.atomic(using=plane()):
        need_log()
        before = Operation.objects.filter(tenant_id=whose.id, trigger=SESSION_END, about=about)
        said = before.exclude(certificate=None).exists()  # once more: only what came since is worth an operation
        matter = Matter(
            trigger=SESSION_END, about=about, kind="deletion", tenant=whose.id,
            selector={"tenant": tenant, "session": session}, reason="the session has ended", believed_only=said,
        )  # fmt: skip
        made = rule_open(matter, now=now, actor=rule) if rows else None
        record(
            event_type="session.ended",
            outcome="success",
            actor=actor,
            tenant_id=whose.id,
            object_kind="tenant",
            object_id=str(whose.id),
            body={"namespaces": len(rows), "operation": str(made.id) if made else None},
        )
        if made is None:
            made = before.filter(concluded_at=None).first()
    return made
