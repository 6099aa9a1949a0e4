"""Decides what the small time charts show: which rows are folded into one column, the axes, the legend and the twin.

Chart and table come from the same folded rows, so they cannot differ. A column that nobody reported is veiled; one
that was reported in part starts with ≥. Called by `pages`; drawn by `partials/_chart.html`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from django.utils.translation import gettext as _

from catalog.selectors import EvictionRow, Sample, TokenRow
from frontend import formats, shapes, wording

Row = TypeVar("Row", EvictionRow, TokenRow)


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart with its table. Coordinates are of a 100 × 100 box; `rects` and `paths` are `(css class, …)`."""

    label: str
    y: list[str]
    x: list[str]
    grid: list[float]
    rects: list[tuple[str, str, str, str, str]] = field(default_factory=list)
    veils: list[tuple[str, str]] = field(default_factory=list)
    paths: list[tuple[str, str]] = field(default_factory=list)
    legend: list[tuple[str, Any, str]] = field(default_factory=list)
    head: list[Any] = field(default_factory=list)
    rows: list[list[Any]] = field(default_factory=list)
    empty: bool = False
    letters: list[tuple[str, str, float]] = field(default_factory=list)


def ticks(since: datetime, until: datetime, count: int = 5) -> list[str]:
    """The words under a time axis; with the date where it is longer than two days."""
    wide = (until - since).total_seconds() > 2 * formats.DAY
    moments = [since + (until - since) * i / (count - 1) for i in range(count)]
    return [m.strftime("%m-%d" if wide else "%H:%M") for m in moments]


def slots(rows: Sequence[Row], since: datetime, until: datetime, count: int) -> list[list[Row]]:
    """The rows of each of `count` equal spans."""
    span = (until - since).total_seconds() / count
    out: list[list[Row]] = [[] for _slot in range(count)]
    for row in rows:
        at = int((row.t - since).total_seconds() // span)
        if 0 <= at < count:
            out[at].append(row)
    return out


def evictions(rows: Sequence[EvictionRow], since: datetime, until: datetime, count: int) -> Chart:
    """Evicted blocks a second by reason, stacked in the fixed order of reasons."""
    bins: list[Counter[str] | None] = []
    rates: list[dict[str, float]] = []
    partial = False
    for slot in slots(rows, since, until, count):
        known = [row for row in slot if row.reasons is not None]
        partial = partial or len(known) < len(slot)
        bins.append(sum((Counter(r.reasons) for r in known), Counter()) if known else None)
        seconds = sum(row.step_seconds for row in known) or 1
        rates.append({reason: blocks / seconds for reason, blocks in (bins[-1] or {}).items()})
    reported = sum(row.step_seconds for row in rows if row.reasons is not None) or 1
    totals: Counter[str] = sum((b for b in bins if b), Counter())
    order = [r for r in wording.EVICTION_REASONS if totals[r]] + sorted(set(totals) - set(wording.EVICTION_REASONS))
    top = max((sum(r.values()) for r in rates), default=0.0)
    grid = shapes.nice(max(top, 1e-9)) if top else [0, 1, 2, 3, 4]
    parts = [[r.get(reason, 0.0) for reason in order] for r in rates]
    latest = next((r for b, r in zip(reversed(bins), reversed(rates), strict=True) if b is not None), {})
    bound = "≥ " if partial else ""

    def word(reason: str) -> wording.Text:
        return wording.word(wording.EVICTION_REASONS, reason)

    def rate(value: float) -> str:
        return formats.significant(value, whole=True)

    return Chart(
        label=_("Evicted blocks per second, stacked by reason. In all %(n)s blocks.")
        % {"n": f"{bound}{sum(totals.values()):,}"},
        y=[formats.significant(v, whole=True) for v in grid],
        x=ticks(since, until),
        grid=[100 - 100 * v / grid[-1] for v in grid],
        rects=[(f"c-{1 + s % 6}", x, y, w, h) for s, x, y, w, h in shapes.columns(parts, grid[-1])],
        veils=[(f"{100 * i / count:.2f}", f"{100 / count:.2f}") for i, b in enumerate(bins) if b is None],
        legend=[(f"c-{1 + i % 6}", word(r), f"{rate(latest.get(r, 0.0))}/s") for i, r in enumerate(order)],
        head=[_("Reason"), _("mean /s"), _("now /s"), _("blocks")],
        rows=[[word(r), rate(totals[r] / reported), rate(latest.get(r, 0.0)), f"{bound}{totals[r]:,}"] for r in order],
        empty=not totals,
    )


def tokens(rows: Sequence[TokenRow], since: datetime, until: datetime, count: int = 60) -> Chart:
    """Share of prompt tokens by where they came from: one band a tier, the rest was computed."""
    sums = Counter[str]()
    shares: list[list[float] | None] = []
    veils = []
    for at, slot in enumerate(slots(rows, since, until, count)):
        if slot and all(row.prompt_tokens is None for row in slot):
            veils.append((f"{100 * at / count:.2f}", f"{100 / count:.2f}"))
        hits, prompt = Counter[str](), 0
        for row in slot:
            if row.hit_tokens is not None and row.prompt_tokens is not None:
                hits.update(row.hit_tokens)
                prompt += row.prompt_tokens
        sums.update(hits)
        sums["prompt"] += prompt
        shares.append([100 * hits[t] / prompt for t in wording.TIERS] if prompt else None)
    total = sums["prompt"]
    part = {t: sums[t] / total if total else 0.0 for t in wording.TIERS}
    computed = max(0.0, 1 - sum(part.values()))
    last = next((s for s in reversed(shares[-3:]) if s), None)  # letters stand at the right end, on a band or nowhere
    letters, base = [], 100.0
    for name, value in zip(wording.TIERS, last or [], strict=False):
        if value >= 7:
            letters.append((name, wording.LETTERS[name], base - value / 2))
        base -= value
    names = [(t, t, formats.share(part[t])) for t in wording.TIERS]
    return Chart(
        label=_("Share of prompt tokens served from each tier; %(n)s in all.")
        % {"n": formats.share(1 - computed if total else 0.0)},
        y=["0", "25", "50", "75", "100 %"],
        x=ticks(since, until),
        grid=[100, 75, 50, 25, 0],
        paths=[(f"t-{wording.TIERS[i]}", d) for i, d in enumerate(stacked(shares)) if d],
        legend=[*names, ("c-sunken", _("computed"), formats.share(computed))],
        head=[_("From"), _("tokens"), _("share")],
        rows=[
            *([t, f"{sums[t]:,}", formats.share(part[t])] for t in wording.TIERS),
            [_("computed"), f"{max(0, total - sum(sums[t] for t in wording.TIERS)):,}", formats.share(computed)],
        ],
        veils=veils,
        empty=not total,
        letters=letters,
    )


def stacked(rows: Sequence[Sequence[float] | None]) -> list[str]:
    """Closed paths of stacked bands (values in percent); rows of None break every band."""
    width = len(wording.TIERS)
    paths = ["" for _band in range(width)]
    run: list[tuple[float, Sequence[float]]] = []
    last = max(1, len(rows) - 1)

    def close() -> None:
        for band in range(width):
            if len(run) > 1 and any(r[band] for _x, r in run):
                upper = [f"{x:.2f} {100 - sum(r[: band + 1]):.2f}" for x, r in run]
                lower = [f"{x:.2f} {100 - sum(r[:band]):.2f}" for x, r in reversed(run)]
                paths[band] += f"M{'L'.join(upper + lower)}z"
        run.clear()

    for index, row in enumerate(rows):
        if row is None:
            close()
        else:
            run.append((100 * index / last, row))
    close()
    return paths


def _share(sample: Sample) -> float | None:
    if sample.used_bytes is None or not sample.capacity_bytes:
        return None
    return sample.used_bytes / sample.capacity_bytes


def fills(history: Mapping[str, Sequence[Sample]]) -> list[dict[str, Any]]:
    """The history of each tier's fill for the browser: times in seconds, percent of capacity, None = not reported."""
    out = []
    for tier, samples in history.items():
        known = [s for s in samples if _share(s) is not None]
        if not known:
            continue
        out.append(
            {
                "tier": tier,
                "t": [int(s.t.timestamp()) for s in samples],
                "full": [None if (part := _share(s)) is None else round(100 * part, 2) for s in samples],
                "high": known[-1].high,
            }
        )
    return out


def fill_rows(history: Mapping[str, Sequence[Sample]]) -> list[list[Any]]:
    """The twin of `fills`: per tier lowest, mean, highest and present fill, and how long it was above the mark."""
    rows: list[list[Any]] = []
    for tier, samples in history.items():
        known = [(part, s.high) for s in samples if (part := _share(s)) is not None]
        shares = [part for part, _high in known]
        if not shares:
            rows.append([tier, None, None, None, None, None])
            continue
        above = sum(high is not None and part > high for part, high in known)
        rows.append(
            [tier, min(shares), sum(shares) / len(shares), max(shares), _share(samples[-1]), above / len(shares)]
        )
    return rows
