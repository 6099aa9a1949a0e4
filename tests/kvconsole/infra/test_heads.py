"""Heads of requests on their way in: bounded in length and in time, by a real server and over raw sockets."""

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from kvconsole.infra import heads
from kvconsole.infra.heads import HEAD_BYTES, Heads


async def well(scope: Any, receive: Any, send: Any) -> None:
    """Answers 200 to everybody."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def port() -> Iterator[int]:
    config = uvicorn.Config(well, port=0, http=Heads, log_level="critical", lifespan="off", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join(10)


def dial(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def said(line: socket.socket) -> bytes:
    """What comes until the server closes."""
    raw = b""
    try:
        while piece := line.recv(65536):
            raw += piece
    except ConnectionError:
        pass
    return raw


def test_a_header_that_never_ends_is_cut(port: int) -> None:
    with dial(port) as line:
        line.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nX: ")
        sent, broken = 0, False
        while sent < 100 * HEAD_BYTES and not broken:
            try:
                line.sendall(b"a" * 8192)
            except ConnectionError:
                broken = True
            sent += 8192
        assert broken, f"{sent} bytes were taken"


def test_too_many_headers_are_answered_431(port: int) -> None:
    with dial(port) as line:
        line.sendall(b"GET / HTTP/1.1\r\n" + b"X-Y: 12345678\r\n" * 5000)
        assert said(line).startswith(b"HTTP/1.1 431 ")


def test_a_large_head_within_the_limit_and_a_large_body_pass(port: int) -> None:
    with dial(port) as line:
        head = b"POST / HTTP/1.1\r\nConnection: close\r\nX: " + b"a" * (HEAD_BYTES - 8192)
        line.sendall(head + b"\r\nContent-Length: 200000\r\n\r\n" + b"b" * 200_000)
        assert said(line).startswith(b"HTTP/1.1 200 ")


def test_requests_of_one_connection_are_counted_apart(port: int) -> None:
    with dial(port) as line:
        for last in (False, False, True):
            close = b"Connection: close\r\n" if last else b""
            line.sendall(b"GET / HTTP/1.1\r\n" + close + b"X: " + b"a" * (HEAD_BYTES // 2) + b"\r\n\r\n")
            if not last:
                assert line.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert said(line).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nX: y"])
def test_a_head_that_does_not_come_is_not_waited_for(port: int, monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    monkeypatch.setattr(heads, "HEAD_SECONDS", 0.5)
    with dial(port) as line:
        line.sendall(begun)
        started = time.monotonic()
        assert said(line).startswith(b"HTTP/1.1 408 ")
        assert time.monotonic() - started < 5
