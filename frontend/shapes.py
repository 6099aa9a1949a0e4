"""Decides where the lines and bars of the small server-drawn charts lie.

Lengths are SVG attributes, so no inline style is needed. Charts use a box of 100 × 100 that is stretched
(strokes do not scale); sparks one of 100 × 24. Called by the template tags.
"""

from collections.abc import Sequence
from itertools import pairwise


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


def line(values: Sequence[float | None], *, low: float, high: float, width: float = 100, height: float = 100) -> str:
    """An SVG path through the values; a value that is unknown breaks the line."""
    span = (high - low) or 1.0
    last = max(1, len(values) - 1)
    parts, pen = [], False
    for index, value in enumerate(values):
        if value is None:
            pen = False
            continue
        y = height * (1 - (value - low) / span)
        parts.append(f"{'L' if pen else 'M'}{width * index / last:.1f} {y:.1f}")
        pen = True
    return "".join(parts)


def spark(values: Sequence[float | None]) -> tuple[str, str]:
    """`(area, line)` of a spark; both are empty where fewer than two values are known."""
    known = [v for v in values if v is not None]
    if len(known) < 2:
        return "", ""
    low, high = min(known), max(known)
    if high == low:
        low, high = low - 1, high + 1
    path = "".join(
        f"{'M' if index == 0 else 'L'}{100 * index / (len(known) - 1):.1f} {2 + 20 * (1 - (v - low) / (high - low)):.1f}"
        for index, v in enumerate(known)
    )
    return f"{path}L100 24L0 24z", path


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
                out.append((series, f"{slot * (index + 0.12):.2f}", f"{base:.2f}", f"{slot * 0.76:.2f}", f"{height:.2f}"))
    return out


def gaps(times: Sequence[float], step: float) -> list[int]:
    """Indexes after which the next time is more than one and a half steps away: there the line is broken."""
    return [index for index, (a, b) in enumerate(pairwise(times)) if b - a > 1.5 * step]
