"""Requests under ASGI: each in one thread, whatever its middleware; files in pieces."""

import asyncio
import gc
import sys
import threading
from pathlib import Path

import pytest
from django.core import signals

from kvconsole.infra import serving
from tests.architecture.tree import CLONE


@pytest.fixture(scope="module")
def handler():
    made = serving.Handler(threads=2)
    yield made
    made._threads.shutdown()


def ask(handler, path, *, method="GET", body=b"", end=True):
    """(status, headers, body), or None: nothing was sent."""
    pieces, sent = [{"type": "http.request", "body": body}] if end else [], []

    async def receive():
        return pieces.pop() if pieces else {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": [(b"host", b"localhost")],
             "client": ("127.0.0.1", 1)}  # fmt: skip
    asyncio.run(handler(scope, receive, send))
    if not sent:
        return None
    return sent[0]["status"], dict(sent[0]["headers"]), b"".join(m.get("body", b"") for m in sent[1:])


@pytest.fixture
def walked():
    """Thread in which each request began and ended."""
    seen = []

    def note(**_):
        seen.append(threading.get_ident())

    signals.request_started.connect(note)
    signals.request_finished.connect(note)
    yield seen
    signals.request_started.disconnect(note)
    signals.request_finished.disconnect(note)


def test_a_request_keeps_to_one_thread_that_stays(handler, walked) -> None:
    assert not asyncio.iscoroutinefunction(handler._middleware_chain)
    assert not any(map(asyncio.iscoroutinefunction, handler._view_middleware))
    before = threading.active_count()
    for _ in range(5):
        status, _, body = ask(handler, "/healthz")
        assert (status, body) == (200, b"ok\n")
    assert len(walked) == 10
    assert all(walked[i] == walked[i + 1] != threading.get_ident() for i in range(0, 10, 2))
    assert threading.active_count() <= before + 2


def test_what_streams_arrives_whole(handler, walked) -> None:
    status, _, body = ask(handler, "/static/frontend/mark.svg")
    assert (status, body) == (200, Path(CLONE / "frontend/static/frontend/mark.svg").read_bytes())
    assert len(walked) == 2


def test_an_address_that_is_none_is_answered_too(handler) -> None:
    status, headers, _ = ask(handler, "/api/v1/nothing-there", method="POST", body=b'{"a": 1}')
    assert (status, headers[b"Content-Type"]) == (404, b"application/problem+json")


def test_who_hangs_up_before_the_end_of_the_body_is_not_answered(handler, walked) -> None:
    assert ask(handler, "/healthz", end=False) is None
    assert walked == []


def test_sockets_are_not_its_matter(handler) -> None:
    with pytest.raises(ValueError, match="websocket"):
        asyncio.run(handler({"type": "websocket"}, None, None))


def test_what_is_there_at_the_start_is_not_looked_through_again() -> None:
    before, turn = gc.get_threshold(), sys.getswitchinterval()
    try:
        serving.ready()
        assert gc.get_freeze_count() > 10_000
        assert gc.get_threshold()[0] == serving.YOUNG
        assert sys.getswitchinterval() == pytest.approx(serving.TURN_SECONDS)
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
        sys.setswitchinterval(turn)
