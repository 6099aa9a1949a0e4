import contextlib
import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.asks import BLOCKS_MOST, prints, wanted, within_vocabulary
from routing.codes import Refusal

JSON, PACKED = b"application/json", b"application/msgpack"
KEY = bytes(range(32))


def ask(kind=PACKED, gateway=True, **fields):
    body = {"tenant": "t", "model": "m", "prompt_tokens": 100, **fields}
    body = {k: v for k, v in body.items() if v is not None}
    return wanted(json.dumps(body).encode() if kind == JSON else msgspec.msgpack.encode(body), kind, gateway=gateway)


def code(**fields):
    with pytest.raises(Refusal) as e:
        ask(**fields)
    return e.value.code


@pytest.mark.parametrize("size", [8, 16, 32])
@pytest.mark.parametrize("form", ["packed", "list", "hex", "hexes"])
def test_keys_come_in_four_forms_and_three_lengths_and_mean_the_same(size, form):
    keys = [bytes([n]) * size for n in range(5)]
    given = {"packed": b"".join(keys), "list": keys, "hex": b"".join(keys).hex(), "hexes": [k.hex() for k in keys]}[
        form
    ]
    found = ask(JSON if form.startswith("hex") else PACKED, block_keys=given, key_bytes=size)
    assert (found.blocks, found.keys, found.prints) == (5, b"".join(keys), b"".join(k[:8] for k in keys))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"block_keys": KEY[:-1]}, "keys-length"),
        ({"block_keys": [KEY, KEY[:-1], KEY + b"x"]}, "keys-length"),
        ({"block_keys": KEY.hex()[:-2], "kind": JSON}, "keys-length"),
        ({"block_keys": "zz" * 32, "kind": JSON}, "validation-failed"),
        ({"block_keys": " ".join([KEY.hex()] * 2), "kind": JSON}, "keys-length"),
        ({"block_keys": KEY, "key_bytes": 12}, "keys-length"),
        ({"block_keys": b"x" * 8 * (BLOCKS_MOST + 1), "key_bytes": 8}, "too-many-blocks"),
        ({"block_keys": [b"x" * 8] * (BLOCKS_MOST + 1), "key_bytes": 8}, "too-many-blocks"),
        ({"slo": {"ttft_ms": 0}}, "slo-invalid"),
        ({"slo": {"ttft_ms": math.nan}}, "slo-invalid"),
        ({"slo": {"tpot_ms": -1.0}}, "slo-invalid"),
        ({"slo": {"tpot_ms": math.inf}}, "slo-invalid"),
        ({"slo": {"other": 1}}, "unknown-field"),
        ({"token_ids": [1, 2], "gateway": False}, "token-ids-refused"),
        ({"token_ids": [1, -2], "prompt_tokens": None}, "token-beyond-vocabulary"),
        ({"token_ids": [1, 2**32], "prompt_tokens": None}, "token-beyond-vocabulary"),
        ({"token_ids": b"123", "prompt_tokens": None}, "validation-failed"),
        ({"token_ids": [1, 2], "prompt_tokens": 3}, "prompt-mismatch"),
        ({"token_ids": [1], "block_keys": KEY}, "validation-failed"),
        ({"prompt_tokens": 0}, "out-of-range"),
        ({"prompt_tokens": 2**40}, "out-of-range"),
        ({"model": ""}, "validation-failed"),
        ({"model": "x" * 201}, "out-of-range"),
        ({"label": "a\x00b"}, "unstorable-text"),
        ({"session": " a"}, "unstorable-text"),
        ({"candidates": []}, "no-candidates"),
        ({"candidates": ["a"] * 5000}, "out-of-range"),
        ({"surprise": 1}, "unknown-field"),
        ({"model": 7}, "validation-failed"),
    ],
)
def test_each_wrong_body_has_its_own_code(fields, expected):
    assert code(**fields) == expected


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        (b"", JSON, "bad-request"), (b"{", JSON, "bad-request"), (b"[]", JSON, "validation-failed"),
        (b'{"model":"m","slo":{"ttft_ms":NaN}}', JSON, "bad-request"), (b"\xc1", PACKED, "bad-request"),
        (b"{}", b"text/plain", "unsupported-media-type"), (b'{"model":"\xff"}', JSON, "bad-request"),
        (b"[" * 100_000, JSON, "body-too-deep"), (b'{"prompt_tokens":1}', JSON, "validation-failed"),
    ],
)  # fmt: skip
def test_bytes_that_are_no_body_are_refused(body, kind, expected):
    with pytest.raises(Refusal) as e:
        wanted(body, kind, gateway=True)
    assert e.value.code == expected or (expected == "body-too-deep" and e.value.code == "validation-failed")


@given(st.binary(max_size=200), st.sampled_from([JSON, PACKED]))
def test_whatever_comes_is_a_request_or_a_refusal(body, kind):
    with contextlib.suppress(Refusal):  # anything else is a bug
        assert wanted(body, kind, gateway=True).key[1]


def test_a_vocabulary_is_kept_where_the_model_says_one():
    tokens = b"".join(n.to_bytes(4, "little") for n in (1, 31_999))
    assert within_vocabulary(tokens, 32_000)
    assert not within_vocabulary(tokens, 31_999)
    assert within_vocabulary(tokens, None)
    assert within_vocabulary(b"", 1)


def test_token_ids_are_the_same_as_bytes_and_as_a_list():
    packed = b"".join(n.to_bytes(4, "little") for n in (5, 6, 70_000))
    one, two = ask(token_ids=packed, prompt_tokens=None), ask(token_ids=[5, 6, 70_000], prompt_tokens=None)
    assert one.tokens == two.tokens == packed
    assert one.prompt_tokens == 3


def test_no_keys_have_no_prints():
    assert prints(b"", 32) == b""
