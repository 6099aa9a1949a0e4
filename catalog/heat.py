"""Turns heat figures into the bytes a browser draws: one level per cell on a symlog scale, unknown apart from zero.

Pure. Levels: 0 = zero, 1..254 = linear * expm1((level - 1) / 253 * log1p(max / linear)), 255 = nobody reported.
Called by selectors (levels) and `map_api` (the file).
"""

import math
import struct
from datetime import datetime
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from catalog.models.pictures import LAYERS

MAGIC = b"KVH1"
TOP, UNKNOWN = 254, 255
LINEAR = 1.0
COLUMNS_MAX = 480
UNITS = {
    "resident": "blocks",
    "hits": "tokens/s",
    "misses": "tokens/s",
    "stores": "blocks/s",
    "evictions": "blocks/s",
    "saved": "ms/s",
}
Figures = NDArray[np.float32]


def exponent(figures: Figures) -> int:
    """n of the scale's end 2^n: the smallest that no figure exceeds, at least 2^0. A scale that jumps is rare so."""
    known = figures[np.isfinite(figures)]
    top = float(known.max()) if known.size else 0.0
    return max(0, math.ceil(math.log2(top))) if top > 1 else 0


def levels(figures: Figures, scale_max: float, linear: float = LINEAR) -> bytes:
    """One byte per figure; NaN becomes 255, and what is above zero is never drawn as zero."""
    with np.errstate(invalid="ignore"):
        share = np.log1p(np.maximum(figures, 0) / linear) / math.log1p(scale_max / linear)
        out = 1 + np.rint(np.clip(share, 0, 1) * (TOP - 1))
        out = np.where(figures > 0, out, 0)
    return bytes(np.where(np.isnan(figures), UNKNOWN, out).astype(np.uint8).tobytes())


def layer_for(since: datetime, now: datetime) -> int:
    """The finest layer that still holds `since`, the coarsest if none does."""
    age = (now - since).total_seconds()
    return next((i for i, (step, kept) in enumerate(LAYERS) if age <= step * (kept + 1)), len(LAYERS) - 1)


def times_of(since: datetime, until: datetime, layer: int, newest: int | None, now: datetime) -> list[int]:
    """Begins of the layer's columns in the window. It ends with the newest column there is, unless the writer is away
    for longer than two of them: then it runs on to the present, unknown."""
    step = LAYERS[layer][0]
    last = (int(until.timestamp()) - step) // step * step
    present = (int(now.timestamp()) - step) // step * step
    if newest is not None and newest < last and present - newest <= 2 * step:
        last = newest
    first = max(int(since.timestamp()) // step * step, last - step * (LAYERS[layer][1] - 1))
    return list(range(first, last + 1, step))


def neighbours(columns: int) -> int:
    """How many columns become one, so that at most `COLUMNS_MAX` are drawn."""
    return max(1, -(-columns // COLUMNS_MAX))


def thin(figures: Figures, times: list[int], step: int, *, gauge: bool) -> tuple[Figures, list[int], int]:
    """At most `COLUMNS_MAX` columns: k neighbours become one, the mean of the known rates or the last known gauge."""
    k = neighbours(len(times))
    if k == 1:
        return figures, times, step
    pad = -len(times) % k
    padded = np.pad(figures, ((0, 0), (pad, 0)), constant_values=np.nan).reshape(len(figures), -1, k)
    count = np.isfinite(padded).sum(axis=2)
    if gauge:
        last = k - 1 - np.argmax(np.isfinite(padded)[:, :, ::-1], axis=2)
        merged = np.take_along_axis(padded, last[:, :, None], axis=2)[:, :, 0]
    else:
        merged = np.nansum(padded, axis=2) / np.maximum(count, 1)
    merged = np.where(count > 0, merged, np.nan).astype(np.float32)
    first = times[0] - pad * step
    return merged, list(range(first, times[-1] + 1, step * k)), step * k


def file(header: dict[str, Any], body: bytes) -> bytes:
    """The file: magic, length of the header, header as JSON, levels row by row."""
    head = msgspec.json.encode(header)
    return MAGIC + struct.pack("<I", len(head)) + head + body
