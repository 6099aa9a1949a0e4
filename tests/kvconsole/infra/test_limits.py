"""What no request may be."""

import io
import time

import pytest
from django.test import RequestFactory

from kvconsole.infra.limits import BODY_BYTES, DEPTH, refusal_code, unstorable

factory = RequestFactory()


def test_bodies_are_measured_also_without_a_length():
    for size, code in ((BODY_BYTES, None), (BODY_BYTES + 1, "body-too-large")):
        request = factory.post("/api/v1/x", b"x" * size, content_type="application/json")
        assert refusal_code(request) == code
        request.META["CONTENT_LENGTH"] = ""
        request._stream = io.BytesIO(b"x" * size)
        assert refusal_code(request) == code
        assert request._stream.tell() == 0
    assert refusal_code(factory.get("/")) is None


def test_nul_in_an_address_is_refused():
    assert refusal_code(factory.get("/api/v1/tenants/a%00b")) == "bad-request"
    assert refusal_code(factory.get("/api/v1/tenants?cursor=a%00b")) == "bad-request"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"a": [1, "x", {"b": "ok", "c": None, "d": True, "e": 1.5}]}, None),
        ("汉字 🙂", None),
        ("a\0b", ("/", "unstorable-text")),
        ({"a": ["x", "\0"]}, ("/a/1", "unstorable-text")),
        ({"a": {"b": "\ud800"}}, ("/a/b", "unstorable-text")),
        ({"a\0": 1}, ("/", "unstorable-text")),
        ({"a/b~": float("inf")}, ("/a~1b~0", "out-of-range")),
        ({"a": float("nan")}, ("/a", "out-of-range")),
    ],
)
def test_what_cannot_be_kept_is_pointed_at(value, found):
    assert unstorable(value) == found


def test_nesting_is_bounded():
    value = "x"
    for _ in range(DEPTH):
        value = [value]
    assert unstorable(value) is None
    assert unstorable([value])[1] == "body-too-deep"


def test_a_long_key_before_many_values_costs_no_more_than_its_length():
    value = {"k" * 500_000: [*range(250_000), {"a~/" + "b" * 100: "\0"}]}
    begun = time.process_time()
    pointer, code = unstorable(value)
    assert time.process_time() - begun < 2.0
    assert pointer.endswith("k/250000/a~0~1" + "b" * 100)
    assert code == "unstorable-text"
