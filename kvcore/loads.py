"""Decides what a worker says of its load and of what it has measured, and which of it is believed.

Rides in heartbeats, one entry per source and rank. What was not measured is left out or has 0 samples: it is unknown
or declared, never zero. Built by agents, read by the writer (which stores it) and by routers (which score with it).
"""

import math
from typing import Any

import msgspec

NAME_MAX = 200
MS_MAX = 86_400_000.0
"""A day: what is longer is not a wait."""
COUNT_MAX = 2**31
AGE_MAX_MS = 10_000.0
"""A report that was measured longer ago says nothing of now."""
EDGES_MAX = 1024

Fit = tuple[float, float, int]
"""(bytes per millisecond, milliseconds before the first byte, samples)."""


class WorkerLoad(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one source reports. Times in milliseconds; None = unknown.

    `number` grows with each report of a life of the agent. `age_ms`: how long before it was sent it was measured.
    `queue_ms`, `decode_queue_ms`: what a request that came now would wait before its prefill, its decode. `curve`:
    (base, linear, square, samples) of prefill milliseconds for n tokens; 0 samples = declared. `tiers`, `edges`: what
    loading from a tier, fetching from a node has cost. `emulated`: the time is spent, the arithmetic is not.
    """

    source: str
    number: int
    dp_rank: int = 0
    age_ms: float = 0.0
    queue_ms: float | None = None
    decode_queue_ms: float | None = None
    first_decode_ms: float | None = None
    waiting: int | None = None
    running: int | None = None
    decoding: int | None = None
    curve: tuple[float, float, float, int] | None = None
    tiers: dict[str, Fit] = {}
    edges: dict[str, Fit] = {}
    emulated: bool = False


def load_of(raw: object) -> WorkerLoad | str:
    """The report if it is one, else the code of the refusal: wrong-type, negative-size or load-late."""
    try:
        load = msgspec.convert(raw, WorkerLoad)
    except (msgspec.ValidationError, RecursionError):
        return "wrong-type"
    names = (load.source, *load.tiers, *load.edges)
    if not all(0 < len(name) <= NAME_MAX and name.isprintable() for name in names) or len(load.edges) > EDGES_MAX:
        return "wrong-type"
    if not all(0 <= n < COUNT_MAX for n in _counts(load)) or not all(0 <= x <= MS_MAX for x in _times(load)):
        return "negative-size"
    if not all(0 < rate < math.inf for rate, _, samples in (*load.tiers.values(), *load.edges.values()) if samples):
        return "negative-size"
    return "load-late" if load.age_ms > AGE_MAX_MS else load


def _counts(load: WorkerLoad) -> list[int]:
    fits = (*load.tiers.values(), *load.edges.values())
    said = [n for n in (load.waiting, load.running, load.decoding) if n is not None]
    return [load.dp_rank, load.number, *said, *(f[2] for f in fits), *([load.curve[3]] if load.curve else [])]


def _times(load: WorkerLoad) -> list[float]:
    """What must be finite and not negative; NaN is neither."""
    said = (load.age_ms, load.queue_ms, load.decode_queue_ms, load.first_decode_ms)
    fits = (*load.tiers.values(), *load.edges.values())
    return [*(x for x in said if x is not None), *(load.curve[:3] if load.curve else ()), *(f[1] for f in fits)]


def body_of(load: WorkerLoad) -> dict[str, Any]:
    """The report as it is stored: without what the row says."""
    body: dict[str, Any] = msgspec.to_builtins(load)
    for name in ("source", "dp_rank", "age_ms"):
        body.pop(name, None)
    return body
