"""Decides what a pin is: blocks of a namespace that stay where they lie until a time, whoever needs room.

Nodes are told with their leases, within seconds; evictions, trims and moves pass pinned blocks over, and plans name
them as blockers. A fence is stronger than a pin. Called by REST, by what a node is told (`placing`) and by sweeps.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction

from audit.services import portable, record
from catalog.models import Pin
from catalog.quotas import QUOTAS
from kvconsole.infra import nudge
from kvconsole.infra.access import Principal, plane, system
from kvconsole.infra.rest import Problem, add_codes
from kvcore.keys import KEY_BYTES
from tenants.erasing import namespaces_selected

add_codes({"pins-too-many": (409, "The tenant has as many pins as it may have")})
MOST_KEYS, MOST_PINS = 4096, 1000
"""Block keys of one pin; pins of one tenant: all of them are told to every node."""
LONGEST = timedelta(days=90)
SWEEPER = system("pins")
SWEPT = 500


def pin_create(
    *, namespace: str, keys: Sequence[str] | None, until: datetime, reason: str, actor: Principal, now: datetime
) -> Pin:
    """The blocks are pinned: nodes hear of it within seconds.

    Args:
        namespace: id or digest in hex.
        keys: block keys (hex) of a prefix; None = the whole namespace.
        until: aware, ahead, and within 90 days.
        reason: for who finds it in the way.
        actor: who.
        now: aware.

    Raises:
        Problem: not-found; validation-failed; pins-too-many.
    """
    if not now < until <= now + LONGEST:
        _invalid("/until", "It must be ahead, and within 90 days.")
    if keys is not None and (not keys or len(keys) > MOST_KEYS or not all(map(_key, keys))):
        _invalid("/prefix", f"1 to {MOST_KEYS} block keys in hex.")
    (row,) = namespaces_selected(namespace=namespace)
    if actor.tenant_id and row.tenant_id != actor.tenant_id:  # shared with it, and another's to keep
        raise Problem("not-found")
    with transaction.atomic(using=plane()):
        if Pin.objects.filter(tenant_id=row.tenant_id, until__gt=now).count() >= MOST_PINS:
            raise Problem("pins-too-many", f"At most {MOST_PINS}.")
        pin = Pin.objects.create(
            tenant_id=row.tenant_id,
            namespace=row.id,
            digest=row.digest,
            keys=None if keys is None else [key.lower() for key in keys],
            until=until,
            reason=reason,
            requested_by=actor.subject,
            created_at=now,
        )
        body = {"namespace": str(row.id), "blocks": len(keys or ()), "until": until, "reason": reason}
        _record("pin.created", pin, actor, body)
        nudge.on_commit(QUOTAS, using=plane())
    return pin


def pin_remove(*, pin_id: UUID, actor: Principal, now: datetime) -> None:
    """The pin is gone.

    Raises:
        Problem: not-found.
    """
    with transaction.atomic(using=plane()):
        pin = Pin.objects.filter(id=pin_id).first()
        if pin is None:
            raise Problem("not-found")
        _record("pin.removed", pin, actor, {"namespace": str(pin.namespace), "expired": pin.until <= now})
        Pin.objects.filter(id=pin_id).delete()
        nudge.on_commit(QUOTAS, using=plane())


def pins_sweep(*, now: datetime) -> int:
    """Pins whose time is over are taken away; how many."""
    over = list(Pin.objects.filter(until__lte=now).order_by("until").values_list("id", flat=True)[:SWEPT])
    for pin in over:
        try:
            pin_remove(pin_id=pin, actor=SWEEPER, now=now)
        except Problem:  # somebody else took it
            continue
    return len(over)


def pins_told(digests: Collection[bytes], now: datetime) -> dict[bytes, list[dict[str, Any]]]:
    """Digest → what nodes are told of the pins in force: until when, and which keys (None = all)."""
    found: dict[bytes, list[dict[str, Any]]] = {}
    for digest, until, keys in (
        pins_in_force(now).filter(digest__in=list(digests)).values_list("digest", "until", "keys")
    ):
        found.setdefault(bytes(digest), []).append({"until": until.timestamp(), "keys": keys})
    return found


def pins_in_force(now: datetime) -> Any:
    """The pins that hold now."""
    return Pin.objects.filter(until__gt=now).order_by("until", "id")


def pin_view(pin: Pin) -> dict[str, Any]:
    """A pin as it is shown."""
    shown = {name: getattr(pin, name) for name in ("id", "namespace", "until", "reason", "requested_by", "created_at")}
    return portable(  # type: ignore[no-any-return]
        {**shown, "digest": bytes(pin.digest).hex(), "whole": pin.keys is None, "blocks": len(pin.keys or ())}
    )


def _key(text: str) -> bool:
    try:
        return len(bytes.fromhex(text)) == KEY_BYTES
    except ValueError:
        return False


def _invalid(pointer: str, detail: str) -> None:
    raise Problem("validation-failed", errors=[{"pointer": pointer, "code": "invalid", "detail": detail}])


def _record(event_type: str, pin: Pin, actor: Principal, body: dict[str, Any]) -> None:
    record(
        event_type=event_type,
        outcome="success",
        actor=actor,
        tenant_id=pin.tenant_id,
        object_kind="pin",
        object_id=str(pin.id),
        body=body,
    )
