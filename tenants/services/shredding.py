"""Decides how what the trail knows of a person ends: their keys are destroyed, so nobody can read or link it again."""

from datetime import UTC, datetime
from uuid import UUID

from django.db import transaction

from audit.drafts import forget_keys
from audit.services import record
from audit.standing import need_log
from kvconsole.infra.access import Principal, plane
from kvconsole.infra.keystore import PERIOD_SECONDS, keystore, subject_names
from kvconsole.infra.rest import Problem
from tenants.models import User
from tenants.services.person import check_grantable, not_oneself, person_remove


def person_shred(*, user_id: UUID, actor: Principal, now: datetime | None = None) -> int:
    """What is sealed for the person cannot be read any more, nor their acts be told from others', in no copy at all.

    Events, leaves and proofs stay as they are. Somebody who was not removed yet is. The keys of all periods go, also
    those that would be made next; they are destroyed last, within the transaction: should it fail then, the data is
    gone and the call can be repeated.

    Args:
        user_id: whose.
        actor: who orders it; who could remove the person.
        now: aware.

    Returns:
        How many keys there were.

    Raises:
        Problem: as `person_remove`; conflict: a service account, which is no person; audit-unavailable.
    """
    at = now or datetime.now(UTC)
    with transaction.atomic(using=plane()):
        need_log()
        user = User.objects.select_for_update(no_key=True).defer("password", "lookalike").filter(id=user_id).first()
        if user is None or (actor.tenant_id is not None and user.tenant_id != actor.tenant_id):
            raise Problem("not-found")
        not_oneself(user, actor)
        if user.removed_at is None:
            person_remove(user_id=user_id, actor=actor, now=at)
        else:
            check_grantable(user.roles, actor)
        names = subject_names(
            f"user:{user.id}", user.created_at.timestamp() - PERIOD_SECONDS, at.timestamp() + PERIOD_SECONDS
        )
        store = keystore()
        there = sum(store.exists(name) for name in names)
        record(
            event_type="key.destroyed",
            outcome="success",
            actor=actor,
            tenant_id=user.tenant_id,
            object_kind="user",
            object_id=str(user.id),
            body={"kind": "subject", "keys": there},
        )
        for name in names:
            store.destroy(name)
        forget_keys()
    return there
