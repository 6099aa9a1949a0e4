"""Decides how use and quota are drawn: bars of use in a quota, and use by day in three units, with their tables.

Chart and table come from the same rows. A day that nobody counted is veiled, in the table it is unknown; a sum in
which something may be missing starts with ≥. Called by `pages`; drawn by `partials/_chart.html`.
"""

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any, NamedTuple

from django.utils.translation import gettext as _

from catalog.quotas import QuotaView, TierQuota
from catalog.usage import UsageLine, UsageView
from frontend import formats, shapes, wording
from frontend.pictures import Chart

NEAR = 0.9
"""From this part of a quota on it is said that little is left."""
UNITS: dict[str, tuple[Callable[[UsageLine], float], Callable[[float], Any]]] = {
    "tokens": (lambda line: line.hit_tokens, lambda v: formats.number(v)),
    "bytes": (lambda line: line.hit_bytes, formats.size),
    "saved": (lambda line: line.saved_prefill_ms, formats.milliseconds),
}
"""Unit → (what of a line, how it is written)."""


class Step(NamedTuple):
    """One tier of a tenant: what it uses of its quota. `part` None = no limit, or use not known."""

    tier: str
    used: Any
    limit: Any
    guarantee: Any
    effective: Any
    scaled: bool
    """The guarantee is worth less than was promised: all guarantees together are more than there is."""
    part: float | None
    share: Any
    state: str
    """ok | high | full | unknown | free"""
    used_bytes: int | None
    limit_bytes: int | None
    mark: float | None
    in_force: bool | None
    label: str


def steps(view: QuotaView) -> list[Step]:
    """All tiers, hot first."""
    return [_step(tier, view.tiers[tier]) for tier in wording.TIERS]


def tier_state(used: int | None, limit: int | None) -> str:
    """How full a quota is: ok, high (from nine tenths on), full, free (no limit) or unknown."""
    if limit is None:
        return "free" if used is not None else "unknown"
    if used is None:
        return "unknown"
    if used >= limit:
        return "full" if used else "ok"
    return "high" if used >= NEAR * limit else "ok"


def _step(tier: str, quota: TierQuota) -> Step:
    used, limit = quota.used_bytes, quota.limit_bytes
    part = None if used is None or limit is None else used / limit if limit else float(used > 0)
    scaled = quota.effective_guaranteed_bytes < quota.guaranteed_bytes
    words = {
        "tier": tier,
        "used": _("unknown") if used is None else formats.size(used),
        "limit": _("no limit") if limit is None else formats.size(limit),
        "floor": formats.size(quota.effective_guaranteed_bytes),
    }
    return Step(
        tier=tier,
        used=formats.size(used),
        limit=_("no limit") if limit is None else formats.size(limit),
        guarantee=formats.size(quota.guaranteed_bytes),
        effective=formats.size(quota.effective_guaranteed_bytes),
        scaled=scaled,
        part=part,
        share=formats.share(part, 0) if limit is not None else formats.DASH,
        state=tier_state(used, limit),
        used_bytes=used,
        limit_bytes=limit,
        mark=min(1.0, quota.effective_guaranteed_bytes / limit) if limit and quota.effective_guaranteed_bytes else None,
        in_force=quota.in_force,
        label=_("%(tier)s: %(used)s used, quota: %(limit)s, of which others cannot evict %(floor)s") % words,
    )


def usage(view: UsageView, unit: str) -> Chart:
    """Use by day, stacked by tier, in tokens, bytes or saved prefill; the table has all three."""
    of, write = UNITS[unit]
    days = [view.since.date() + timedelta(days=i) for i in range((view.until - view.since).days)]
    parts: dict[date, list[float]] = {day: [0.0] * len(wording.TIERS) for day in days}
    totals: dict[date, UsageLine] = {line.day: line for line in view.days if not line.tier}
    by_tier: dict[str, float] = dict.fromkeys(wording.TIERS, 0.0)
    for line in view.days:
        if line.tier in wording.TIERS and line.day in parts:
            parts[line.day][wording.TIERS.index(line.tier)] += of(line)
            by_tier[line.tier] += of(line)
    known = [day for day in days if day in totals or view.complete]
    top = max((sum(p) for p in parts.values()), default=0.0)
    grid = shapes.nice(top) if top else [0.0, 1.0, 2.0, 3.0, 4.0]
    bound = "" if view.complete else "≥ "
    total = sum(of(line) for line in totals.values())
    slot = 100 / max(1, len(days))
    return Chart(
        label=_("Use by day, stacked by tier. In all %(n)s.") % {"n": f"{bound}{write(total)}"},
        y=[_axis(value, unit, grid[-1]) for value in grid],
        x=_ends(days),
        grid=[100 - 100 * v / grid[-1] for v in grid],
        rects=[
            (f"t-{wording.TIERS[s]}", x, y, w, h)
            for s, x, y, w, h in shapes.columns([parts[day] for day in days], grid[-1])
        ],
        veils=[(f"{slot * i:.2f}", f"{slot:.2f}") for i, day in enumerate(days) if day not in known],
        legend=[(t, t, f"{bound}{write(by_tier[t])}") for t in wording.TIERS if by_tier[t]],
        head=[_("Day, UTC"), _("requests"), _("hit tokens"), _("hit bytes"), _("prefill saved")],
        rows=[
            *(
                _row(day.isoformat(), [totals[day]] if day in totals else [], day in known, "")
                for day in reversed(days)
            ),
            _row(_("all"), list(totals.values()), bool(totals) or view.complete, bound),
        ],
        empty=not total,
    )


def _row(name: str, lines: list[UsageLine], known: bool, bound: str) -> list[Any]:
    if not known:
        return [name, *[formats.unknown()] * 4]
    return [
        name,
        f"{bound}{sum(line.requests for line in lines):,}",
        *(f"{bound}{write(sum(of(line) for line in lines))}" for of, write in UNITS.values()),
    ]


def _axis(value: float, unit: str, top: float) -> str:
    if unit == "bytes":
        return " ".join(formats.iec(value, top)) if value else "0"
    if unit == "saved":
        return str(formats.milliseconds(value)) if value else "0"
    return "".join(formats.short(value))


def _ends(days: list[date]) -> list[str]:
    if len(days) <= 7:
        return [day.strftime("%m-%d") for day in days]
    return [days[round(i * (len(days) - 1) / 4)].strftime("%m-%d") for i in range(5)]
