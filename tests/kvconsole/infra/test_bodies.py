"""Which bytes are a JSON body."""

import io

import pytest

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
