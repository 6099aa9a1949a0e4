"""A load report is believed whole or not at all, and what it leaves out stays unknown."""

import math

import pytest

from kvcore.loads import WorkerLoad, body_of, load_of

GOOD = {
    "source": "reference", "number": 7, "dp_rank": 0, "age_ms": 12.5, "queue_ms": 30.0, "waiting": 2, "running": 1,
    "curve": [1.0, 0.01, 1e-7, 12], "tiers": {"ssd": [5000.0, 0.2, 4]}, "edges": {"n2": [120.0, 1.5, 9]},
}  # fmt: skip


def test_a_report_is_read_and_what_is_left_out_is_unknown():
    load = load_of(GOOD)
    assert isinstance(load, WorkerLoad)
    assert load.curve == (1.0, 0.01, 1e-7, 12)
    assert load.edges["n2"] == (120.0, 1.5, 9)
    assert load.decode_queue_ms is None
    assert load.first_decode_ms is None
    body = body_of(load)
    assert body["queue_ms"] == 30.0
    assert not {"source", "dp_rank", "age_ms", "decode_queue_ms"} & body.keys()
    assert load_of(body | {"source": "reference"}).number == 7


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"queue_ms": -1.0}, "negative-size"), ({"queue_ms": math.nan}, "negative-size"),
        ({"queue_ms": math.inf}, "negative-size"), ({"queue_ms": "much"}, "wrong-type"),
        ({"waiting": -1}, "negative-size"), ({"waiting": 2**40}, "negative-size"), ({"number": -1}, "negative-size"),
        ({"curve": [1.0, 2.0]}, "wrong-type"), ({"curve": [0.0, -1e-9, 0.0, 3]}, "negative-size"),
        ({"tiers": {"ssd": [0.0, 0.1, 3]}}, "negative-size"), ({"tiers": {"ssd": [0.0, 0.0, 0]}}, ""),
        ({"edges": {"": [1.0, 0.1, 3]}}, "wrong-type"), ({"source": "a\x00"}, "wrong-type"),
        ({"age_ms": 10_001.0}, "load-late"), ({"dp_rank": True}, "wrong-type"), ({"edges": {"n": [1.0]}}, "wrong-type"),
    ],
)  # fmt: skip
def test_what_is_no_report_is_refused(change, code):
    found = load_of(GOOD | change)
    assert (found if isinstance(found, str) else "") == code


@pytest.mark.parametrize("raw", [None, 3, [], "x", {}, {"source": "reference"}])
def test_what_has_no_form_is_refused(raw):
    assert load_of(raw) == "wrong-type"
