"""Decides where the lines and bars of the small server-drawn charts lie.

Lengths are SVG attributes, so no inline style is needed. Charts use a box of 100 × 100 that is stretched
(strokes do not scale); sparks one of 100 × 24. Called by the template tags.
"""

from collections.abc import Sequence


def nice(top: float, steps: int = 4) -> list[float]:
    """The ticks of an axis from zero: `steps` equal steps of 1, 2, 2.5 or 5 · 10ⁿ that cover `top`."""
    step = 1.0
    while step * steps < top:
        step *= 10
    while step > 1e-9 and step / 10 * steps >= top:
        step /= 10
    for factor in (0.2, 0.25, 0.5):
        if step * factor * steps >= top:
            step *= factor
            break
    return [step * i for i in range(steps + 1)]


def spark(values: Sequence[float | None], whole: Sequence[bool] | None = None) -> tuple[str, str, str]:
    """`(area, line, doubtful line)` of a spark; all are empty where fewer than two values are known.

    Time is never squeezed: a value of None is a gap. The line is doubtful next to a value that `whole` denies.
    """
    known = [v for v in values if v is not None]
    if len(known) < 2:
        return "", "", ""
    low, high = min(known), max(known)
    if high == low:
        low, high = low - 1, high + 1
    last, span = len(values) - 1, high - low
    sure = whole or [True] * len(values)
    area, lines = "", {True: "", False: ""}
    for run in _runs(values):
        at = {i: f"{100 * i / last:.1f} {2 + 20 * (1 - (v - low) / span):.1f}" for i, v in run}
        first, end = run[0][0], run[-1][0]
        area += f"M{'L'.join(at.values())}L{100 * end / last:.1f} 24.0L{100 * first / last:.1f} 24.0z"
        for i in range(first, max(end, first + 1)):
            after = min(i + 1, end)
            lines[sure[i] and sure[after]] += f"M{at[i]}L{at[after]}"
    return area, lines[True], lines[False]


def _runs(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """The known values with their places, in runs without a gap."""
    runs: list[list[tuple[int, float]]] = []
    for i, value in enumerate(values):
        if value is not None:
            if not runs or runs[-1][-1][0] != i - 1:
                runs.append([])
            runs[-1].append((i, value))
    return runs


def columns(rows: Sequence[Sequence[float]], top: float) -> list[tuple[int, str, str, str, str]]:
    """Stacked columns: `(series, x, y, width, height)` for every part that is not zero."""
    out: list[tuple[int, str, str, str, str]] = []
    if not rows:
        return out
    slot = 100 / len(rows)
    for index, parts in enumerate(rows):
        base = 100.0
        for series, value in enumerate(parts):
            height = 100 * value / top if top else 0
            if height > 0:
                base -= height
                x, width = slot * (index + 0.12), slot * 0.76
                out.append((series, f"{x:.2f}", f"{base:.2f}", f"{width:.2f}", f"{height:.2f}"))
    return out
