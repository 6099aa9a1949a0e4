"""Decides what this worker knows of its own speed: lines fitted to what was measured, with old measurements fading.

A prefill of n tokens behind m cached ones costs base + linear*n + square*((m+n)^2 - m^2); loading or fetching s bytes
costs latency + s / rate. Nothing is guessed: before enough was measured the declared figures stand, with 0 samples.
Used by `load` and whoever does the work; methods are safe from any thread.
"""

import threading
from collections.abc import Sequence

FADE = 0.97
"""What one measurement is worth after the next: the last thirty or so decide."""
ENOUGH = 4
"""Measurements before a fit is told."""
RIDGE = 1e-9
SCALE = 1e-3
"""Tokens and bytes are put in thousands, so that sums of their squares stay of one size."""


class Fit:
    """Least squares of milliseconds over a few features, none of whose parts may be negative."""

    def __init__(self, size: int) -> None:
        self._a = [[0.0] * size for _ in range(size)]
        self._b = [0.0] * size
        self.samples = 0

    def learn(self, features: Sequence[float], ms: float) -> None:
        """One measurement more."""
        for i, x in enumerate(features):
            self._b[i] = FADE * self._b[i] + x * ms
            for j, y in enumerate(features):
                self._a[i][j] = FADE * self._a[i][j] + x * y
        self.samples += 1

    def parts(self) -> list[float]:
        """What each feature costs. A part that would be negative is 0, and the others are fitted without it."""
        free = list(range(len(self._b)))
        while free:
            found = self._solved(free)
            worst = min(range(len(free)), key=lambda i: found[i])
            if found[worst] >= 0:
                return [found[free.index(i)] if i in free else 0.0 for i in range(len(self._b))]
            del free[worst]
        return [0.0] * len(self._b)

    def _solved(self, free: list[int]) -> list[float]:
        """Gauss with a trace of a ridge: features that never varied share what they explain together."""
        trace = sum(self._a[i][i] for i in free) or 1.0
        rows = [[self._a[i][j] + (RIDGE * trace if i == j else 0.0) for j in free] + [self._b[i]] for i in free]
        size = len(free)
        for at in range(size):
            pivot = max(range(at, size), key=lambda r: abs(rows[r][at]))
            rows[at], rows[pivot] = rows[pivot], rows[at]
            for r in range(size):
                if r != at:
                    part = rows[r][at] / rows[at][at]
                    rows[r] = [x - part * y for x, y in zip(rows[r], rows[at], strict=True)]
        return [rows[i][size] / rows[i][i] for i in range(size)]


class Meters:
    """What was measured on this worker."""

    def __init__(self, declared: tuple[float, float]) -> None:
        """Nothing was measured.

        Args:
            declared: prefill milliseconds a·n + b·n² of n tokens.
        """
        self._lock = threading.Lock()
        self._declared = declared
        self._prefill = Fit(3)
        self._tiers: dict[str, Fit] = {}
        self._edges: dict[str, Fit] = {}
        self._first: float | None = None

    def prefill(self, cached: int, tokens: int, ms: float) -> None:
        """`tokens` behind `cached` ones took so long."""
        if tokens > 0:
            with self._lock:
                n, m = tokens * SCALE, cached * SCALE
                self._prefill.learn((1.0, n, (m + n) ** 2 - m**2), ms)

    def loaded(self, tier: str, size: int, ms: float) -> None:
        """Bytes of a tier were brought up."""
        self._moved(self._tiers, tier, size, ms)

    def fetched(self, node: str, size: int, ms: float) -> None:
        """Bytes of another node came."""
        self._moved(self._edges, node, size, ms)

    def _moved(self, fits: dict[str, Fit], name: str, size: int, ms: float) -> None:
        with self._lock:
            fits.setdefault(name, Fit(2)).learn((1.0, size * SCALE), ms)

    def decoded(self, ms: float) -> None:
        """A first token took so long once its turn had come."""
        with self._lock:
            self._first = ms if self._first is None else self._first + 0.1 * (ms - self._first)

    @property
    def first_decode_ms(self) -> float | None:
        """Moving mean; None before the first one."""
        return self._first

    def curve(self) -> tuple[float, float, float, int]:
        """(base, linear, square, samples) of prefill milliseconds; the declared one with 0 samples."""
        with self._lock:
            if self._prefill.samples < ENOUGH:
                return 0.0, self._declared[0], self._declared[1], 0
            base, linear, square = self._prefill.parts()
            return base, linear * SCALE, square * SCALE**2, self._prefill.samples

    def prefill_ms(self, cached: int, tokens: int) -> float:
        """What it will probably take."""
        base, linear, square, _ = self.curve()
        return base + linear * tokens + square * ((cached + tokens) ** 2 - cached**2)

    def tiers(self) -> dict[str, tuple[float, float, int]]:
        """(bytes per millisecond, latency, samples) of each tier that was measured enough."""
        return self._lines(self._tiers)

    def edges(self) -> dict[str, tuple[float, float, int]]:
        """As `tiers`, of each node that was fetched from."""
        return self._lines(self._edges)

    def _lines(self, fits: dict[str, Fit]) -> dict[str, tuple[float, float, int]]:
        out = {}
        with self._lock:
            for name, fit in fits.items():
                latency, per_kilo = fit.parts()
                if fit.samples >= ENOUGH and per_kilo > 0:
                    out[name] = 1.0 / (per_kilo * SCALE), latency, fit.samples
        return out
