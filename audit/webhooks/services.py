"""Decides what people may do with webhooks: make, change, pause, give a new secret, try and remove them.

Each change is in the trail with the host it leads to, never the whole address: paths of webhooks are secrets of others.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.utils.module_loading import import_string

from audit.models import Delivery, Webhook
from audit.selectors import webhooks
from audit.services import record
from audit.webhooks import keys
from audit.webhooks.client import Refused, check_wish
from audit.webhooks.kinds import KINDS, TEST, message
from kvconsole.infra.access import Principal, plane
from kvconsole.infra.rest import Problem, add_codes
from kvconsole.infra.sql import PLATFORM, uuid7

MOST = 50
"""Of one tenant."""
OLD_SECRET = timedelta(hours=24)
STATES = ("active", "paused", "disabled")
TASK = "audit.webhooks_sweep"
add_codes(
    {
        "webhook-url-refused": (422, "The console sends nothing to this address"),
        "too-many-webhooks": (409, "The tenant has as many webhooks as may be"),
    }
)


def webhook_create(
    *, url: str, name: str, events: Sequence[str], actor: Principal, now: datetime
) -> tuple[Webhook, bytes]:
    """A new webhook and its secret, which is shown once.

    Where the address leads is looked at when something is sent, each time anew.

    Raises:
        Problem: webhook-url-refused or too-many-webhooks; nothing was made.
    """
    _check(url)
    tenant = actor.tenant_id or PLATFORM
    if webhooks().count() >= MOST:
        raise Problem("too-many-webhooks")
    with transaction.atomic(using=plane()):
        hook = Webhook(
            id=uuid7(), tenant_id=tenant, url=url, name=name, events=_ordered(events), created_by=actor.subject,
            created_at=now,
        )  # fmt: skip
        hook.save(force_insert=True)
        _recorded("webhook.created", hook, actor, {"events": hook.events, "state": hook.state})
        secret = keys.secret_made(hook.id, 1)
    return hook, secret


def webhook_change(*, webhook_id: UUID, actor: Principal, **fields: Any) -> Webhook:
    """The webhook is as `fields` say (url, name, events, state); what is not named stays.

    Raises:
        Problem: not-found or webhook-url-refused; nothing was changed.
    """
    with transaction.atomic(using=plane()):
        hook = _locked(webhook_id)
        changed = [name for name, value in fields.items() if value is not None and getattr(hook, name) != value]
        if "url" in changed:
            _check(fields["url"])
        for name in changed:
            setattr(hook, name, _ordered(fields[name]) if name == "events" else fields[name])
        if "state" in changed:
            hook.reason, hook.failing_since = "", None
        if changed:
            hook.save(update_fields=[*changed, *(["reason", "failing_since"] if "state" in changed else [])])
            _recorded(
                "webhook.changed", hook, actor, {"events": hook.events, "state": hook.state, "changed": sorted(changed)}
            )
    return hook


def webhook_rotate(*, webhook_id: UUID, actor: Principal, now: datetime) -> tuple[Webhook, bytes]:
    """The webhook has another secret, shown once; for 24 hours messages carry a signature of the old one too.

    Raises:
        Problem: not-found; nothing was changed.
    """
    with transaction.atomic(using=plane()):
        hook = _locked(webhook_id)
        hook.key_version += 1
        hook.old_key_until = now + OLD_SECRET
        hook.save(update_fields=["key_version", "old_key_until"])
        changed = {"events": hook.events, "state": hook.state, "changed": ["secret"]}
        _recorded("webhook.changed", hook, actor, changed)
        secret = keys.secret_made(hook.id, hook.key_version)
    return hook, secret


def webhook_remove(*, webhook_id: UUID, actor: Principal) -> None:
    """It is gone, with what was on its way and its secret.

    Raises:
        Problem: not-found; nothing was done.
    """
    with transaction.atomic(using=plane()):
        hook = _locked(webhook_id)
        version = hook.key_version
        Webhook.objects.filter(id=webhook_id).delete()
        _recorded("webhook.removed", hook, actor, {"reason": "asked"})
        transaction.on_commit(lambda: keys.secrets_destroy(webhook_id, version), using=plane(), robust=True)


def webhook_test(*, webhook_id: UUID, now: datetime) -> Delivery:
    """A message that says nothing is on its way.

    Raises:
        Problem: not-found, or conflict: the webhook is not active.
    """
    hook = webhooks().filter(id=webhook_id).first()
    if hook is None:
        raise Problem("not-found")
    if hook.state != "active":
        raise Problem("conflict", f"The webhook is {hook.state}.")
    text = message(TEST, now.isoformat().replace("+00:00", "Z"), {"webhook": str(hook.id)})
    made = Delivery(
        tenant_id=hook.tenant_id, webhook=hook.id, kind=TEST, payload=text, created_at=now, next_at=now
    )  # fmt: skip
    made.save(force_insert=True)
    transaction.on_commit(lambda: import_string(settings.TASK_SENDER)(TASK), using=plane(), robust=True)
    return made


def host_of(url: str) -> str:
    """What of an address may be told."""
    return urlsplit(url).hostname or ""


def _locked(webhook_id: UUID) -> Webhook:
    hook = webhooks().filter(id=webhook_id).select_for_update(no_key=True).first()
    if hook is None:
        raise Problem("not-found")
    return hook


def _check(url: str) -> None:
    found = check_wish(url)
    if isinstance(found, Refused):
        raise Problem(found.code, f"It must be: {found.detail}.")


def _ordered(events: Sequence[str]) -> list[str]:
    return [kind for kind in KINDS if kind in events]


def _recorded(event_type: str, hook: Webhook, actor: Principal, body: dict[str, Any]) -> None:
    record(
        event_type=event_type,
        outcome="success",
        actor=actor,
        tenant_id=actor.tenant_id,
        object_kind="webhook",
        object_id=str(hook.id),
        body=body | {"host": host_of(hook.url)},
    )
