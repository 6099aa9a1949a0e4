"""Decides when a message is sent, sent again, or given up, and when a webhook is disabled.

Several are sent at once, few to one webhook. Each attempt is written down before the next; a worker that is killed
leaves messages whose turn comes again in a moment, so a receiver may get one twice, with the same id.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db import transaction

from audit.models import Delivery, Webhook
from audit.services import record
from audit.webhooks.client import Answered, post
from audit.webhooks.keys import secrets_of
from audit.webhooks.signature import headers
from kvconsole.infra.access import FLEET_PLANE, system
from kvconsole.infra.keystore import KeyStoreUnavailable

AT_ONCE, OF_ONE = 64, 4
CLAIM_SECONDS = 30.0
"""A message that is being sent is nobody else's for so long."""
BACKOFF = (5, 30, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
"""Seconds until the next attempt, up to a fifth more; after the last there is none."""
DISABLED_AFTER = timedelta(days=5)
"""Of failures without a success in between."""
GONE = 410


def send_due(*, now: datetime) -> int:
    """What is due was sent, or tried; how many messages. Index: audit_delivery_due."""
    claimed = _claim(now)
    hooks = {hook.id: hook for hook in Webhook.objects.filter(id__in={one.webhook for one in claimed})}
    ready = [one for one in claimed if one.webhook in hooks and hooks[one.webhook].state == "active"]
    for one in claimed:
        if one not in ready:
            Delivery.objects.filter(id=one.id).update(state="dropped", next_at=None)
    answers = asyncio.run(_send_all([(one, hooks[one.webhook]) for one in ready]))
    for one, answer in zip(ready, answers, strict=True):
        _conclude(one, hooks[one.webhook], answer, datetime.now(UTC))
    return len(ready)


def _claim(now: datetime) -> list[Delivery]:
    """Messages whose turn it is, few of each webhook; their turn comes again if this worker dies."""
    with transaction.atomic(using=FLEET_PLANE):
        due = Delivery.objects.select_for_update(skip_locked=True).filter(state="pending", next_at__lte=now)
        chosen: list[Delivery] = []
        of = Counter[UUID]()
        for one in due.order_by("next_at")[: AT_ONCE * 4]:
            if of[one.webhook] < OF_ONE and len(chosen) < AT_ONCE:
                of[one.webhook] += 1
                chosen.append(one)
        Delivery.objects.filter(id__in=[one.id for one in chosen]).update(
            next_at=now + timedelta(seconds=CLAIM_SECONDS)
        )
    return chosen


async def _send_all(messages: Sequence[tuple[Delivery, Webhook]]) -> list[Answered]:
    return list(await asyncio.gather(*(_send(one, hook) for one, hook in messages)))


async def _send(one: Delivery, hook: Webhook) -> Answered:
    now, body = datetime.now(UTC), one.payload.encode()
    try:
        keys = secrets_of(hook.id, hook.key_version, old=hook.old_key_until is not None and hook.old_key_until > now)
    except (LookupError, KeyStoreUnavailable):
        return Answered(None, "webhook-secret-missing")
    return await post(hook.url, body, headers(keys, str(one.id), int(now.timestamp()), body))


def _conclude(one: Delivery, hook: Webhook, answer: Answered, now: datetime) -> None:
    attempts = one.attempts + 1
    fields = {"attempts": attempts, "last_at": now, "status": answer.status, "problem": answer.code}
    if answer.taken:
        Delivery.objects.filter(id=one.id).update(**fields, state="delivered", next_at=None)
        Webhook.objects.filter(id=hook.id).exclude(failing_since=None).update(failing_since=None)
        return
    if attempts > len(BACKOFF):
        Delivery.objects.filter(id=one.id).update(**fields, state="failed", next_at=None)
    else:
        wait = BACKOFF[attempts - 1] * (1 + random.random() / 5)
        Delivery.objects.filter(id=one.id).update(**fields, next_at=now + timedelta(seconds=wait))
    Webhook.objects.filter(id=hook.id, failing_since=None).update(failing_since=now)
    since = Webhook.objects.filter(id=hook.id).values_list("failing_since", flat=True).first() or now
    if answer.status == GONE or now - since >= DISABLED_AFTER:
        _disable(hook, "receiver-gone" if answer.status == GONE else "failing", now)


def _disable(hook: Webhook, reason: str, now: datetime) -> None:
    """Nothing is sent there any more until its owner says so; the trail says why."""
    from audit.webhooks.services import host_of

    with transaction.atomic(using=FLEET_PLANE):
        if not Webhook.objects.filter(id=hook.id, state="active").update(state="disabled", reason=reason):
            return
        Delivery.objects.filter(webhook=hook.id, state="pending").update(state="dropped", next_at=None)
        record(
            event_type="webhook.changed",
            outcome="success",
            actor=system("worker"),
            tenant_id=hook.tenant_id,
            object_kind="webhook",
            object_id=str(hook.id),
            body={"events": hook.events, "host": host_of(hook.url), "state": "disabled", "changed": ["state"]},
        )
