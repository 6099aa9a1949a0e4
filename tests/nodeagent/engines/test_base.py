import msgspec
import pytest

from kvcore.messages import ticket_issue
from nodeagent.engines.base import Batch, Result

TICKET = ticket_issue(b"k" * 32, node="n", ns=bytes(32), gen=1, expires_at=1.5)
REQUEST = {"request": "r", "ns": bytes(32), "gen": 1, "hash_ids": [1, 2], "input_length": 900}


def test_a_body_of_requests():
    body = msgspec.msgpack.encode({"ticket": TICKET, "requests": [REQUEST]})
    batch = msgspec.msgpack.decode(body, type=Batch)
    assert batch.ticket == TICKET
    (request,) = batch.requests
    assert (request.hash_tokens, request.output_length, request.session, request.model_seed) == (512, 0, None, 0)


@pytest.mark.parametrize("wrong", [{"ns": "text"}, {"hash_ids": ["a"]}, {"input_length": 1.5}, {"request": None}])
def test_what_is_no_request(wrong):
    body = msgspec.msgpack.encode({"ticket": TICKET, "requests": [REQUEST | wrong]})
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(body, type=Batch)


def test_results_are_small():
    assert msgspec.to_builtins(Result(request="r", code="lease-over")) == {"request": "r", "code": "lease-over"}
