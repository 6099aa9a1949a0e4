import msgspec
import pytest

from routing.codes import Refusal
from routing.foreign import ORIGINS, report

JSON, PACKED = b"application/json", b"application/msgpack"
BODY = {"origin": "dynamo", "chosen": {"node": "n1"}, "tenant": "t", "model": "m", "prompt_tokens": 5}


@pytest.mark.parametrize("origin", ORIGINS)
def test_a_report_is_a_request_with_what_was_chosen(origin):
    for kind, encode in ((JSON, msgspec.json.encode), (PACKED, msgspec.msgpack.encode)):
        told, asked = report(encode({**BODY, "origin": origin}), kind)
        assert (told.origin, told.chosen.node, asked.key[0], asked.prompt_tokens) == (origin, "n1", "t", 5)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"origin": "mystery"}, "validation-failed"), ({"origin": None}, "validation-failed"),
        ({"chosen": "n1"}, "validation-failed"), ({"chosen": {"node": "n", "extra": 1}}, "validation-failed"),
        ({"token_ids": [1]}, "token-ids-refused"), ({"more": 1}, "unknown-field"),
    ],
)  # fmt: skip
def test_what_is_no_report_is_refused(change, code):
    with pytest.raises(Refusal) as e:
        report(msgspec.json.encode({**BODY, **change}), JSON)
    assert e.value.code == code


@pytest.mark.parametrize("body", [b"[1]", b"{", b"\xff", b""])
def test_bytes_that_are_no_report_are_refused(body):
    with pytest.raises(Refusal) as e:
        report(body, JSON)
    assert e.value.code in ("bad-request", "validation-failed")
