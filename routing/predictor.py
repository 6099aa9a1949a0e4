"""Decides how far the terms of a worker class are from what requests really took, and whether that may be believed.

Per class an online ridge regression in numpy over the terms as they are without it (router, queue, load, prefill,
transfer, decode queue, first step), the waiting and running requests, and a constant. It is drawn towards "the terms
are right", so a class about which little is known is served nearly as if nothing were learned. Errors count relative to
what was measured: 10 % of a short request weighs as much as 10 % of a long one. Older samples fade.

It serves only behind a gate: enough samples, an error below the bound, and no worse than the terms alone. Where the
last samples are far off what was usual, the class drifts: an alarm, the terms alone serve, and the class is learned
anew. Everything is judged by predictions that were made before the sample was used. Deterministic given its samples;
memory is bounded by the number of classes. Called by the router with each believed outcome.
"""

from collections import deque
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kvcore.cards import Candidate, Learned, Terms
from kvcore.fleets import FACTORS

Vector = NDArray[np.float64]
TERMS = 7
_PRIOR = np.array([1.0] * TERMS + [0.0] * (FACTORS - TERMS))
_LEAST, _MOST = np.array([0.2] * TERMS + [0.0] * 3), np.array([5.0] * TERMS + [1e6] * 3)
CLASSES = 64
"""Classes that are learned; those that come later are served by the terms."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """When what is learned is believed."""

    samples: int = 200
    most_error: float = 0.30
    """Mean error, relative, above which the terms serve."""
    memory: int = 2_000
    """Samples after which one has faded to about a third."""
    prior: float = 20.0
    """The terms as they are weigh as much as so many samples."""
    recent: int = 20
    """Samples that show a drift."""
    drift: float = 2.0
    """So many times the usual error, and above `most_error`, is a drift."""
    refit: int = 10


class Sample(NamedTuple):
    """One outcome: the terms that were predicted for it without what is learned, and what it took."""

    terms: Terms
    waiting: int
    running: int
    measured_ms: float


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What the Routing page shows of a class. Errors are relative; None = nothing was measured yet."""

    cls: str
    samples: int
    error: float | None
    """Of what is learned, over the recent samples."""
    error_terms: float | None
    """Of the terms alone."""
    serving: bool
    drifting: bool
    alarms: int


def bare(terms: Terms, cls: str, decode_cls: str, learned: Learned, waiting: int, running: int) -> Terms:
    """The terms as they would be without what was learned when they were made.

    Args:
        terms: of the decision's card.
        cls: of the worker that prefilled; `decode_cls` of the one that decoded.
        learned: what the decision was made with.
        waiting: of the worker that prefilled, as the decision knew it; `running` too.
    """
    p, d = learned.factors.get(cls), learned.factors.get(decode_cls)
    values = list(msgspec.structs.astuple(terms))
    if p is not None and len(p) == FACTORS:
        values[1] = max(0.0, values[1] - p[7] * waiting - p[8] * running - p[9])
        values[:5] = [v / f if f > 0 else v for v, f in zip(values[:5], p[:5], strict=True)]
    if d is not None and len(d) == FACTORS:
        values[5:] = [v / f if f > 0 else v for v, f in zip(values[5:], d[5:7], strict=True)]
    return Terms(*values)


class _Class:
    """What is known of one class: the sums of the regression and the errors of the recent past."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.count, self.alarms, self.drifting = 0, 0, False
        self.errors: deque[float] = deque(maxlen=rules.samples)
        self.errors_terms: deque[float] = deque(maxlen=rules.samples)
        self.weights: Vector = _PRIOR.copy()
        self._anew()

    def _anew(self) -> None:
        self.square: Vector = np.zeros((FACTORS, FACTORS))
        self.cross: Vector = np.zeros(FACTORS)
        self.mass, self.fitted = 0.0, 0

    def observe(self, x: Vector, y: float) -> None:
        error, error_terms = abs(float(self.weights @ x) - y) / y, abs(float(_PRIOR @ x) - y) / y
        self.errors.append(error)
        self.errors_terms.append(error_terms)
        self.count += 1
        fade = 1.0 - 1.0 / self.rules.memory
        scaled = x / y
        self.square = fade * self.square + np.outer(scaled, scaled)
        self.cross = fade * self.cross + scaled
        self.mass = fade * self.mass + 1.0
        self.fitted += 1
        self._watch()
        if self.fitted and self.fitted % self.rules.refit == 0:
            self.weights = self._fit()

    def _fit(self) -> Vector:
        usual = np.diag(self.square) / self.mass
        prior = self.rules.prior * usual + 1e-9
        found = np.linalg.solve(self.square + np.diag(prior), self.cross + prior * _PRIOR)
        return np.asarray(np.clip(found, _LEAST, _MOST), dtype=np.float64)

    def _watch(self) -> None:
        recent, errors = self.rules.recent, list(self.errors)
        if len(errors) < 2 * recent:
            return
        last = sum(errors[-recent:]) / recent
        if self.drifting:
            # over once what is learned anew is right again
            self.drifting = last > self.rules.most_error
            return
        before = errors[:-recent]
        if last > self.rules.most_error and last > self.rules.drift * (sum(before) / len(before)):
            self.drifting = True
            self.alarms += 1
            self.weights = _PRIOR.copy()
            self._anew()

    @property
    def error(self) -> float | None:
        return sum(self.errors) / len(self.errors) if self.errors else None

    @property
    def error_terms(self) -> float | None:
        return sum(self.errors_terms) / len(self.errors_terms) if self.errors_terms else None

    @property
    def serving(self) -> bool:
        if self.count < self.rules.samples or self.drifting or self.error is None or self.error_terms is None:
            return False
        return self.error < self.rules.most_error and self.error <= self.error_terms


class Predictor:
    """What one router process has learned. Not for several threads at once."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        self.classes: dict[str, _Class] = {}
        self.version = 0
        self._made: Learned = Learned()

    def observe(self, cls: str, sample: Sample) -> bool:
        """Takes one outcome in; False where it says nothing (no finite times, or one class too many)."""
        x = np.array([*msgspec.structs.astuple(sample.terms), sample.waiting, sample.running, 1.0], dtype=np.float64)
        if not (np.isfinite(x).all() and np.isfinite(sample.measured_ms)) or sample.measured_ms <= 0 or x.min() < 0:
            return False
        known = self.classes.get(cls)
        if known is None:
            if len(self.classes) >= CLASSES:
                return False
            known = self.classes[cls] = _Class(self.rules)
        known.observe(x, max(sample.measured_ms, 1.0))
        return True

    def learned(self) -> Learned:
        """What the scorer may use now: only classes behind the gate. A new version whenever it differs."""
        factors = {
            cls: tuple(round(float(w), 6) for w in known.weights)
            for cls, known in self.classes.items()
            if known.serving
        }
        if factors != self._made.factors:
            self.version += 1
            self._made = Learned(factors, self.version)
        return self._made

    def predicted_ms(self, cls: str, sample: Sample) -> float:
        """What a sample would have been predicted to take, by what is learned where that serves."""
        x = [*msgspec.structs.astuple(sample.terms), sample.waiting, sample.running, 1.0]
        known = self.classes.get(cls)
        weights = known.weights if known is not None and known.serving else _PRIOR
        return float(weights @ np.array(x, dtype=np.float64))

    def states(self) -> list[State]:
        """Of every class, by name."""
        return [
            State(
                cls=cls, samples=c.count, error=c.error, error_terms=c.error_terms, serving=c.serving,
                drifting=c.drifting, alarms=c.alarms,
            )
            for cls, c in sorted(self.classes.items())
        ]  # fmt: skip


def sample_of(
    terms: Terms, prefill: Candidate, decode: Candidate, learned: Learned, measured_ms: float
) -> tuple[str, Sample]:
    """The class and sample of a decision's outcome."""
    waiting, running = prefill.waiting or 0, prefill.running or 0
    plain = bare(terms, prefill.cls, decode.cls, learned, waiting, running)
    return prefill.cls, Sample(plain, waiting, running, measured_ms)
