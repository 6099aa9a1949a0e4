"""Which bytes are a JSON body."""

import io
import json
import time
import uuid
from datetime import UTC, datetime

import pytest
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy

from kvconsole.infra import bodies
from kvconsole.infra.rest import Problem


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b'{"a": 1, "a": 2}', "duplicate-field"),
        (b'{"b": {"a/~": 1, "a/~": 2}}', "duplicate-field"),
        (b'[{"a": [{"x": 1, "y": 2, "x": 3}]}]', "duplicate-field"),
        (b"[" * 100_000 + b"]" * 100_000, "body-too-deep"),
        (b'{"a": ' + b"9" * 5000 + b"}", "out-of-range"),
        (b'{"a": NaN}', "bad-request"),
        (b'{"a": -Infinity}', "bad-request"),
        (b"{", "bad-request"),
        (b"", "bad-request"),
        (b'{"a": "\xff"}', "bad-request"),
        (b"\xef\xbb\xbf{}", "bad-request"),
        (b"{'a': 1}", "bad-request"),
        (b'{"a": 1} x', "bad-request"),
        (b'{"a": "\x00"}', "bad-request"),
    ],
)
def test_what_is_ambiguous_or_endless_is_refused(raw, code):
    with pytest.raises(Problem) as caught:
        bodies.read(raw)
    assert caught.value.code == code
    assert caught.value.text


def test_a_body_is_what_it_says():
    raw = '{"a": [1, -2.5, "汉 \\u0000", null, true], "b": {}}'.encode()
    assert bodies.StrictJSON().parse(io.BytesIO(raw)) == {"a": [1, -2.5, "汉 \0", None, True], "b": {}}


def test_a_key_that_comes_twice_is_named_safely():
    with pytest.raises(Problem) as caught:
        bodies.read(b'{"\\ud800/": 1, "\\ud800/": 2}')
    assert caught.value.errors[0]["pointer"] == "/\\ud800~1"


def test_answers_are_json_whatever_they_are_made_of():
    class Named(int):
        pass

    at = datetime(2026, 11, 30, 4, 5, 6, 7, tzinfo=UTC)
    found = {"at": at, "id": uuid.UUID(int=7), "safe": SafeString("<汉>"), "n": Named(7), "none": None}
    more = {"t": (1.5, True), "lazy": gettext_lazy("No such thing"), "nan": float("nan"), 1: {}}
    text = bodies.Json().render(found | more)
    assert json.loads(text) == {
        "at": "2026-11-30T04:05:06.000007Z", "id": str(uuid.UUID(int=7)), "safe": "<汉>", "n": 7, "none": None,
        "t": [1.5, True], "lazy": "No such thing", "nan": None, "1": {},
    }  # fmt: skip
    assert bodies.Json().render(None) == b""
    with pytest.raises(TypeError):
        bodies.Json().render({"x": object()})


@pytest.mark.parametrize("last", ["k119999", "k0"])
def test_a_hundred_thousand_keys_are_looked_through_once(last):
    keys = "".join(f'"k{i}":0,' for i in range(120_000))
    raw = f'{{{keys}"{last}":1}}'.encode()
    begun = time.process_time()
    with pytest.raises(Problem) as caught:
        bodies.read(raw)
    assert time.process_time() - begun < 1.0
    assert caught.value.errors[0]["pointer"] == f"/{last}"
