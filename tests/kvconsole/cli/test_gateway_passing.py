"""One request at one engine: its times are of one clock, and what was not measured is not told."""

import asyncio

import pytest

from kvconsole.cli.gateway_passing import Run, Wire
from kvconsole.cli.gateway_routes import Way

WAY = Way("n0", "http://engine", decision="d")


def run(*, stream=True, begun=10.0, sent=0.0, first=0.0, ended=0.0, chunks=(), status=200):
    made = Run(None, "/v1/completions", {"stream": stream}, WAY, begun)
    for chunk in chunks:
        made.seen.pass_(chunk)
    made.sent, made.first, made.ended, made.status = sent, first, ended, status
    return made


USAGE = b'data: {"usage":{"prompt_tokens":64,"prompt_tokens_details":{"cached_tokens":48}}}\n\n'


def test_the_time_to_the_first_token_is_by_one_clock():
    told = run(sent=10.004, first=10.104, ended=10.3, chunks=[USAGE]).outcome()
    assert told == {"ttft_ms": 104.0, "terms": {"router": 4.0}, "hit_tokens": 48}


def test_what_was_not_measured_is_left_out():
    assert run().outcome() == {}
    assert run(stream=False, sent=10.1, first=10.9, ended=11.0, chunks=[b"{}"]).outcome() == {}, "it has no first token"
    assert run(sent=10.1, first=10.2, ended=10.3, chunks=[USAGE], status=500).outcome() == {}
    silent = run(sent=10.1, first=10.2, ended=10.3, chunks=[b'data: {"choices":[]}\n\n'])
    assert "hit_tokens" not in silent.outcome(), "the engine did not say"


def test_who_does_not_take_an_answer_is_left():
    async def stuck(message):
        await asyncio.sleep(5)

    wire = Wire(stuck, 0.05)
    with pytest.raises(TimeoutError):
        asyncio.run(wire({"type": "http.response.start", "status": 200, "headers": []}))
    assert (wire.started, wire.ended) == (True, False)


def test_each_answer_has_an_id_of_its_own():
    sent = []

    async def take(message):
        sent.append(message)

    async def answer():
        wire = Wire(take, 1)
        await wire({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})
        await wire({"type": "http.response.body", "body": b"x", "more_body": True})
        assert not wire.ended
        await wire({"type": "http.response.body", "body": b""})
        return wire.ended

    assert asyncio.run(answer())
    asyncio.run(answer())
    ids = {dict(m["headers"])[b"x-request-id"] for m in sent if "headers" in m}
    assert (len(ids), len(sent)) == (2, 6)
