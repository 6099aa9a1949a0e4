"""What outcomes teach serves only once it is right, is taken back when it no longer is, and is always the same."""

import math
import random
from statistics import median

import pytest

from kvcore.cards import Learned, Terms
from kvcore.policies import built_in
from kvcore.scoring import score
from routing.predictor import CLASSES, Predictor, Rules, Sample, bare, sample_of
from tests.kvcore.workers import asking, worker


def terms(r: random.Random) -> Terms:
    return Terms(1.0, r.uniform(0, 500), r.uniform(0, 100), r.uniform(20, 1000), 0.0, r.uniform(0, 50), 10.0)


def took(t: Terms, waiting: int, r: random.Random, *, prefill: float = 1.0, noise: float = 0.05) -> float:
    """What a worker really takes whose prefill is so many times as slow, with 4 ms a waiting request and 6 on all."""
    true = t.router + t.queue_p + t.cache_load + prefill * t.prefill + t.queue_d + t.first_decode + 4 * waiting + 6
    return true * (1 + r.gauss(0, noise))


def fed(predictor: Predictor, cls: str, count: int, *, seed: int = 1, prefill: float = 1.0) -> list[float]:
    """Relative errors of the predictions made before each sample was used."""
    r, errors = random.Random(seed), []
    for _ in range(count):
        t, waiting = terms(r), r.randint(0, 20)
        sample = Sample(t, waiting, 0, took(t, waiting, r, prefill=prefill))
        errors.append(abs(predictor.predicted_ms(cls, sample) - sample.measured_ms) / sample.measured_ms)
        assert predictor.observe(cls, sample)
    return errors


def test_two_speeds_are_told_apart_after_300_samples() -> None:
    predictor = Predictor()
    fast, slow = fed(predictor, "fast", 1000, prefill=0.5), fed(predictor, "slow", 1000, seed=2, prefill=4.0)
    assert median(slow[:200]) > 0.4
    for errors in (fast, slow):
        assert median(errors[300:]) <= 0.20
        assert median(errors[300:]) <= 0.06  # the noise is 5 %
    learned = predictor.learned().factors
    assert learned["fast"][3] == pytest.approx(0.5, abs=0.05)
    assert learned["slow"][3] == pytest.approx(4.0, abs=0.2)
    assert learned["slow"][7] == pytest.approx(4.0, abs=2.5)


def test_the_gate() -> None:
    predictor = Predictor()
    fed(predictor, "a", 199, prefill=2.0)
    assert predictor.learned() == Learned()
    fed(predictor, "a", 200, seed=3, prefill=2.0)
    first = predictor.learned()
    assert first.version == 1
    assert set(first.factors) == {"a"}
    assert predictor.learned() is first
    (state,) = predictor.states()
    assert (state.cls, state.samples, state.serving, state.drifting, state.alarms) == ("a", 399, True, False, 0)
    assert state.error is not None
    assert state.error_terms is not None
    assert state.error < 0.1 < state.error_terms


def test_what_cannot_be_predicted_is_not_served() -> None:
    predictor, r = Predictor(), random.Random(5)
    for _ in range(600):
        predictor.observe("a", Sample(terms(r), 0, 0, r.lognormvariate(5, 2)))
    assert not predictor.states()[0].serving
    assert predictor.learned().factors == {}


def test_terms_that_are_right_already_are_left_alone() -> None:
    predictor, r = Predictor(), random.Random(6)
    for _ in range(600):
        t = terms(r)
        predictor.observe("a", Sample(t, 0, 0, t.total_ms))
    for factor in predictor.learned().factors.get("a", (1.0,) * 7)[:7]:
        assert factor == pytest.approx(1.0, abs=0.01)


def test_drift_is_told_within_a_minute_of_samples_and_the_terms_serve() -> None:
    predictor = Predictor()
    fed(predictor, "a", 600)
    assert predictor.states()[0].serving
    fed(predictor, "other", 600)
    r, alarm = random.Random(7), None
    for i in range(600):  # ten a second: a minute
        t = terms(r)
        predictor.observe("a", Sample(t, 0, 0, took(t, 0, r, prefill=2.5)))
        if alarm is None and predictor.states()[0].drifting:
            alarm = i
            assert "a" not in predictor.learned().factors
            assert "other" in predictor.learned().factors
    assert alarm is not None
    assert alarm <= 60
    state = predictor.states()[0]
    assert (state.alarms, state.drifting, state.serving) == (1, False, True)
    assert predictor.learned().factors["a"][3] == pytest.approx(2.5, abs=0.15)


def test_the_same_samples_teach_the_same() -> None:
    one, two = Predictor(), Predictor()
    fed(one, "a", 500, prefill=3.0)
    fed(two, "a", 500, prefill=3.0)
    assert one.learned() == two.learned()
    assert one.states() == two.states()


def test_memory_is_bounded_and_nonsense_is_not_taken() -> None:
    predictor = Predictor(Rules(samples=10))
    r = random.Random(8)
    t = terms(r)
    for i in range(CLASSES + 5):
        assert predictor.observe(f"c{i}", Sample(t, 0, 0, 100.0)) == (i < CLASSES)
    for bad in (0.0, -1.0, math.nan, math.inf):
        assert not predictor.observe("c0", Sample(t, 0, 0, bad))
    assert not predictor.observe("c0", Sample(Terms(math.nan, 0, 0, 0, 0, 0, 0), 0, 0, 1.0))
    assert not predictor.observe("c0", Sample(Terms(-1.0, 0, 0, 0, 0, 0, 0), 0, 0, 1.0))
    for _ in range(100):
        predictor.observe("c0", Sample(t, 0, 0, 100.0))
    assert len(predictor.classes["c0"].errors) == 10


def test_what_was_learned_is_taken_out_of_the_terms_again() -> None:
    factors = {"p": (1.0, 2.0, 1.5, 3.0, 0.5, 1.0, 1.0, 4.0, 2.0, 7.0), "d": (1.0,) * 5 + (2.0, 0.5, 0.0, 0.0, 0.0)}
    learned = Learned(factors, 1)
    both = [
        worker("p", 40.0, cls="p", role="prefill", waiting=3, running=1),
        worker("d", cls="d", role="decode", decode_queue_ms=8.0),
    ]
    plain = score(asking(3_200), both, [], {}, built_in())
    known = score(asking(3_200), both, [], {}, built_in(), learned)
    assert plain.prefill is not None
    assert known.prefill is not None
    assert known.prefill.terms != plain.prefill.terms
    found = bare(known.prefill.terms, "p", "d", learned, 3, 1)
    for a, b in zip(
        (found.router, found.queue_p, found.prefill, found.transfer, found.queue_d, found.first_decode),
        (1.0, 40.0, plain.prefill.terms.prefill, plain.prefill.terms.transfer, 8.0, 10.0),
        strict=True,
    ):
        assert a == pytest.approx(b)
    cls, sample = sample_of(known.prefill.terms, both[0], both[1], learned, 123.0)
    assert (cls, sample.waiting, sample.running, sample.measured_ms) == ("p", 3, 1, 123.0)
    assert sample.terms == found
