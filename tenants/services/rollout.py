"""Decides which share of a model's new requests each epoch gets, and keeps what the fleet holds of the epochs.

Old blocks are not flushed: they are asked for less and less and leave by themselves. `epoch_bytes_put` is how the
catalog, which knows bytes, tells this app, which may not ask it.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from django.db import connections, transaction

from audit.services import record
from kvconsole.infra.access import Principal, plane
from kvconsole.infra.rest import Problem, add_codes
from kvconsole.infra.sql import named
from kvcore.rollout import DEFAULT_HORIZON_SECONDS, HORIZON_SECONDS, WHOLE, shares_problem
from tenants.models import Epoch, EpochBytes, Model, Rollout
from tenants.services.identity import invalid

add_codes(
    {
        "rollout-shares": (422, "The shares are not whole per cent that sum to 100"),
        "epoch-unknown": (422, "The model has no such epoch"),
        "epoch-retired": (409, "The epoch is retired"),
    }
)
KEPT = timedelta(days=30)
"""How long it is kept what epochs held."""


class EpochHeld(msgspec.Struct, frozen=True):
    """What the fleet holds of an epoch now."""

    tenant_id: UUID
    model_id: UUID
    epoch: int
    size_bytes: int
    blocks: int
    stale_hit_tokens: int


def rollout_set(
    *,
    model: Model,
    shares: Mapping[int, int],
    horizon_seconds: int = DEFAULT_HORIZON_SECONDS,
    unless: Callable[[Rollout | None], bool] = lambda now: False,
    actor: Principal | None = None,
    now: datetime | None = None,
) -> Rollout:
    """New requests are shared among the epochs like this from commit on; what is cached already stays until it ages.

    Args:
        shares: epoch → whole per cent; what is left out gets nothing.
        horizon_seconds: after how long blocks that nobody asks for are thought to be gone; for the forecast only.
        unless: asked under the lock, with the roll-out as it is: whether the caller has seen an older one.

    Raises:
        Problem: validation-failed, rollout-shares, epoch-unknown, epoch-retired or etag-mismatch; nothing was changed.
    """
    low, high = HORIZON_SECONDS
    if not low <= horizon_seconds <= high:
        raise invalid("/horizon_seconds", f"{low} to {high}.", "out-of-range")
    with transaction.atomic(using=plane()):
        Model.objects.select_for_update(no_key=True).filter(tenant_id=model.tenant_id, id=model.id).first()
        current = Rollout.objects.filter(tenant_id=model.tenant_id, model=model).first()
        if unless(current):
            raise Problem("etag-mismatch")
        states = dict(Epoch.objects.filter(tenant_id=model.tenant_id, model=model).values_list("epoch", "state"))
        if wrong := shares_problem(shares, states):
            code, which = wrong
            said = f"They sum to {which}." if code == "rollout-shares" else f"Epoch {which}."
            raise Problem(code, said, errors=[{"pointer": "/shares", "code": code, "detail": said}])
        before = current.shares if current else _newest(states)
        after = current or Rollout(tenant_id=model.tenant_id, model=model, version=0)
        after.version += 1
        after.shares = {str(e): share for e, share in sorted(shares.items()) if share}
        after.before, after.held = before, _held(model)
        after.horizon_seconds, after.changed_at = horizon_seconds, now or datetime.now(UTC)
        after.save()
        _record(model, after, actor)
    return after


def _newest(states: Mapping[int, str]) -> dict[str, int]:
    """Shares of a model without a roll-out."""
    newest = max((e for e, state in states.items() if state == "open"), default=None)
    return {} if newest is None else {str(newest): WHOLE}


def _held(model: Model) -> dict[str, int]:
    """Epoch → bytes, as the catalog last told."""
    rows = EpochBytes.objects.filter(tenant_id=model.tenant_id, model_id=model.id).order_by("epoch", "-t0")
    return {str(e): size for e, size in rows.distinct("epoch").values_list("epoch", "size_bytes")}


def _record(model: Model, rollout: Rollout, actor: Principal | None) -> None:
    record(
        event_type="rollout.changed",
        outcome="success",
        actor=actor,
        tenant_id=model.tenant_id,
        object_kind="model",
        object_id=str(model.id),
        body={
            "model": model.name,
            "shares": rollout.shares,
            "before": rollout.before,
            "version": rollout.version,
            "horizon_seconds": rollout.horizon_seconds,
        },
    )


def epoch_bytes_put(*, rows: Sequence[EpochHeld], now: datetime) -> None:
    """What the fleet holds of these epochs is known for this minute; what is older than 30 days is forgotten."""
    minute = now.replace(second=0, microsecond=0)
    values: dict[str, Any] = {
        "tenants": [r.tenant_id for r in rows],
        "models": [r.model_id for r in rows],
        "epochs": [r.epoch for r in rows],
        "sizes": [r.size_bytes for r in rows],
        "blocks": [r.blocks for r in rows],
        "stale": [r.stale_hit_tokens for r in rows],
        "t0": minute,
    }
    with transaction.atomic(using=plane()):
        with connections[plane()].cursor() as cursor:
            cursor.execute(named("tenants")["epoch_bytes_put"], values)
        EpochBytes.objects.filter(t0__lt=now - KEPT).delete()
