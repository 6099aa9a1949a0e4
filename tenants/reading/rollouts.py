"""Reads a model's roll-out: shares, what the fleet holds of each epoch, what was expected of it and what came."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from django.db.models import QuerySet

from kvconsole.infra.rest import etag
from kvcore.rollout import DEFAULT_HORIZON_SECONDS, WHOLE, forecast
from tenants.models import Epoch, EpochBytes, Model, Rollout

HISTORY = timedelta(days=7)
MOST_POINTS = 360


class RolloutEpoch(msgspec.Struct, frozen=True):
    """An epoch in its model's roll-out. None = the catalog has not told yet."""

    epoch: int
    state: str
    share: int
    size_bytes: int | None
    blocks: int | None
    stale_hit_tokens: int | None
    as_of: datetime | None


class Point(msgspec.Struct, frozen=True):
    """Bytes at one moment: of epochs that lose traffic, and of all."""

    at: datetime
    old_bytes: int
    all_bytes: int


class RolloutView(msgspec.Struct, frozen=True):
    """A model's roll-out. `version` 0 = none: all requests go to the newest open epoch."""

    model: str
    version: int
    shares: dict[str, int]
    before: dict[str, int]
    changed_at: datetime | None
    horizon_seconds: int
    epochs: list[RolloutEpoch]
    forecast: list[Point]
    peak_bytes: int | None
    measured: list[Point]
    measured_peak_bytes: int | None

    @property
    def tag(self) -> str:
        """As `rollout_tag` of the same rows."""
        return rollout_etag(self.shares, self.horizon_seconds, self.version)


def rollout_etag(shares: Mapping[str, int], horizon_seconds: int, version: int) -> str:
    """The ETag over what PUT sets; bytes come and go without changing it."""
    return etag({"shares": dict(shares), "horizon_seconds": horizon_seconds, "version": version})


def rollout_of(model: Model) -> Rollout | None:
    """The row of a model's roll-out."""
    return Rollout.objects.filter(tenant_id=model.tenant_id, model=model).first()


def rollout_tag(model: Model, current: Rollout | None) -> str:
    """The ETag of a model's roll-out as it is."""
    if current is not None:
        return rollout_etag(current.shares, current.horizon_seconds, current.version)
    return rollout_etag(_implicit(_states(model)), DEFAULT_HORIZON_SECONDS, 0)


def rollout(model: Model, *, now: datetime) -> RolloutView:
    """Shares, what the fleet holds of each epoch, what was expected and what came."""
    current, states = rollout_of(model), _states(model)
    shares = current.shares if current else _implicit(states)
    mine = EpochBytes.objects.filter(tenant_id=model.tenant_id, model_id=model.id)
    last = {b.epoch: b for b in mine.order_by("epoch", "-t0").distinct("epoch")}
    expected = _expected(current)
    measured = _measured(mine.filter(t0__gte=now - HISTORY), current)
    return RolloutView(
        model=model.name,
        version=current.version if current else 0,
        shares=shares,
        before=current.before if current else {},
        changed_at=current.changed_at if current else None,
        horizon_seconds=current.horizon_seconds if current else DEFAULT_HORIZON_SECONDS,
        epochs=[_epoch(e, state, shares, last.get(e)) for e, state in sorted(states.items())],
        forecast=expected,
        peak_bytes=max((p.all_bytes for p in expected), default=None),
        measured=measured,
        measured_peak_bytes=max((p.all_bytes for p in measured), default=None),
    )


def _states(model: Model) -> dict[int, str]:
    return dict(Epoch.objects.filter(tenant_id=model.tenant_id, model=model).values_list("epoch", "state"))


def _implicit(states: Mapping[int, str]) -> dict[str, int]:
    newest = max((e for e, state in states.items() if state == "open"), default=None)
    return {} if newest is None else {str(newest): WHOLE}


def _epoch(epoch: int, state: str, shares: Mapping[str, int], held: EpochBytes | None) -> RolloutEpoch:
    told: Any = (held.size_bytes, held.blocks, held.stale_hit_tokens, held.t0) if held else (None,) * 4
    return RolloutEpoch(epoch, state, shares.get(str(epoch), 0), *told)


def _expected(current: Rollout | None) -> list[Point]:
    if current is None:
        return []
    held, before, after = ({int(e): n for e, n in d.items()} for d in (current.held, current.before, current.shares))
    points = forecast(held, before, after, horizon=current.horizon_seconds)
    return [Point(current.changed_at + timedelta(seconds=p.seconds), p.old_bytes, p.all_bytes) for p in points]


def _measured(rows: QuerySet[EpochBytes], current: Rollout | None) -> list[Point]:
    """From the last change on, at most `MOST_POINTS` of them, evenly thinned."""
    if current is None:
        return []
    since = current.changed_at.replace(second=0, microsecond=0)
    old = {e for e, share in current.before.items() if share > current.shares.get(e, 0)}
    sums: dict[datetime, list[int]] = {}
    for t0, epoch, size in rows.filter(t0__gte=since).order_by("t0").values_list("t0", "epoch", "size_bytes"):
        at = sums.setdefault(t0, [0, 0])
        at[0] += size if str(epoch) in old else 0
        at[1] += size
    points = [Point(t0, *both) for t0, both in sums.items()]
    step = -(-len(points) // MOST_POINTS) or 1
    return points[::-1][::step][::-1]
