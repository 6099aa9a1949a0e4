"""Bodies on their way in: counted as they come, by a real server and over raw sockets."""

import asyncio
import contextlib
import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from kvconsole.infra import intake
from kvconsole.infra.intake import Intake, said
from kvconsole.infra.limits import BODY_BYTES
from tests.running import Console

KIB = 1024


class Reader:
    """An application that reads a body to its end, as Django does, and says how long it was."""

    def __init__(self) -> None:
        self.hung_up = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.hung_up += 1
                return
            size += len(message.get("body", b""))
            if not message.get("more_body"):
                break
        await asyncio.sleep(0.3 if scope["path"] == "/slow" else 0)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"8")]})
        await send({"type": "http.response.body", "body": f"{size:8}".encode()})


@contextlib.contextmanager
def serving(app: Any) -> Iterator[int]:
    """A real server before the application; its port."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", lifespan="off", access_log=False))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(10)


def dial(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def head(*fields: str, path: str = "/") -> bytes:
    return "\r\n".join((f"POST {path} HTTP/1.1", "Host: localhost", *fields, "", "")).encode()


def answer_of(line: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Status, fields and body of what is answered until the server closes, or until the body is whole."""
    raw = b""
    with contextlib.suppress(ConnectionError, TimeoutError):
        while b"\r\n\r\n" not in raw or len(raw.partition(b"\r\n\r\n")[2]) < length_in(raw):
            piece = line.recv(65536)
            if not piece:
                break
            raw += piece
    top, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = top.decode().split("\r\n")
    return int(first.split()[1]), dict(x.lower().split(": ", 1) for x in lines), body


def length_in(raw: bytes) -> int:
    found = [x for x in raw.lower().split(b"\r\n") if x.startswith(b"content-length:")]
    return int(found[0].split(b":")[1]) if found else 0


def chunk(size: int) -> bytes:
    return f"{size:x}\r\n".encode() + b"x" * size + b"\r\n"


def pour(line: socket.socket, most: int, size: int = 32 * KIB) -> int:
    """Chunks are sent until the server hangs up; how many bytes went."""
    line.sendall(head("Transfer-Encoding: chunked", "Content-Type: application/json"))
    sent = 0
    with contextlib.suppress(ConnectionError, TimeoutError):
        while sent < most:
            line.sendall(chunk(size))
            sent += size
    return sent


@pytest.fixture
def small() -> Iterator[tuple[Intake, Reader, int, list[tuple[str, str, int]]]]:
    """A server that takes 64 KiB in a second and 96 KiB of all together; who is told of refusals."""
    told: list[tuple[str, str, int]] = []
    app = Reader()
    guard = Intake(
        app,
        most=64 * KIB,
        seconds=1.0,
        together=96 * KIB,
        tell=lambda *what: told.append(what),
    )
    with serving(guard) as port:
        yield guard, app, port, told


def test_lengths():
    assert [said(x) for x in (b"", b"7", b"-7", b"x", b"1" * 30, "٣".encode())] == [0, 7, 0, 0, 2**63, 0]


def test_what_fits_is_handed_on(small):
    guard, _, port, told = small
    for parts in ([64 * KIB], [KIB] * 64, []):
        with dial(port) as line:
            line.sendall(head("Transfer-Encoding: chunked") + b"".join(map(chunk, parts)) + b"0\r\n\r\n")
            assert int(answer_of(line)[2]) == sum(parts)
    with dial(port) as line:
        for _ in range(2):  # and the connection goes on
            line.sendall(head(f"Content-Length: {64 * KIB}") + b"x" * 64 * KIB)
            assert int(answer_of(line)[2]) == 64 * KIB
    assert (guard.held, told) == (0, [])


def test_a_length_that_says_too_much_is_refused_unread(small):
    _, app, port, told = small
    for more in ((), ("Expect: 100-continue",)):
        with dial(port) as line:
            line.sendall(head(f"Content-Length: {64 * KIB + 1}", "X-Request-ID: mine", *more))
            status, fields, body = answer_of(line)
        problem = json.loads(body)
        assert (status, problem["code"], problem["request_id"]) == (413, "body-too-large", "mine")
        assert fields["content-type"] == "application/problem+json"
        assert (fields["x-request-id"], fields["connection"]) == ("mine", "close")
    assert app.hung_up == 0
    assert told == [("POST", "body-too-large", 413)] * 2


def test_who_is_refused_while_sending_sees_the_answer(small):
    _, _, port, _ = small
    with dial(port) as line:
        line.sendall(head(f"Content-Length: {512 * KIB}") + b"x" * 512 * KIB)
        assert answer_of(line)[0] == 413
        assert line.recv(1) == b""


def test_people_get_a_page_and_not_json(small):
    _, _, port, _ = small
    with dial(port) as line:
        line.sendall(head(f"Content-Length: {64 * KIB + 1}", "Accept: text/html,*/*;q=0.8"))
        status, fields, body = answer_of(line)
    assert (status, fields["content-type"]) == (413, "text/html; charset=utf-8")
    assert body.decode().count('href="/docs/problems/body-too-large"') == 2


def test_chunks_are_counted_and_cut(small, monkeypatch):
    monkeypatch.setattr(intake, "LINGER_SECONDS", 0.3)
    guard, app, port, told = small
    with dial(port) as line:
        begun = time.monotonic()
        pour(line, 2**40, 8 * KIB)
        assert time.monotonic() - begun < 5
    assert told == [("POST", "body-too-large", 413)]
    assert (app.hung_up, guard.held) == (1, 0)
    with dial(port) as line:
        line.sendall(head("Transfer-Encoding: chunked") + chunk(65 * KIB))
        status, _, body = answer_of(line)
        assert (status, json.loads(body)["code"]) == (413, "body-too-large")


def test_a_slow_body_ends_and_an_answer_may_take_longer(small):
    guard, app, port, told = small
    with dial(port) as line:
        begun = time.monotonic()
        line.sendall(head("Content-Length: 100") + b"x")
        status, _, body = answer_of(line)
        assert (status, json.loads(body)["code"]) == (408, "body-too-slow")
        assert 0.9 < time.monotonic() - begun < 3
        assert line.recv(1) == b""
    assert (app.hung_up, guard.held, told[0][1]) == (1, 0, "body-too-slow")
    with dial(port) as line:  # piece after piece, and never the last one
        begun = time.monotonic()
        line.sendall(head("Transfer-Encoding: chunked"))
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - begun < 5:
                line.sendall(chunk(1))
                time.sleep(0.05)
        assert time.monotonic() - begun < 3
    guard.seconds = 0.1
    with dial(port) as line:
        line.sendall(head("Content-Length: 1", path="/slow") + b"x")
        assert answer_of(line)[0] == 200


def test_many_small_ones_are_large_together(small):
    guard, _, port, _ = small
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(dial(port)) for _ in range(3)]
        for line in lines:
            line.sendall(head(f"Content-Length: {60 * KIB}") + b"x" * 40 * KIB)
        assert answer_of(lines[-1])[0] in (503, 408)
        for line in lines[:-1]:
            line.close()
    until = time.monotonic() + 5
    while guard.held and time.monotonic() < until:
        time.sleep(0.02)
    assert guard.held == 0


def _memory(pid: int) -> int:
    for row in Path(f"/proc/{pid}/status").read_text().splitlines():
        if row.startswith("VmHWM"):
            return int(row.split()[1]) * KIB
    raise AssertionError("no VmHWM")


@pytest.mark.walk
def test_the_console_cuts_an_endless_body_before_it_keeps_any(console: Console):
    """64 MiB are poured into a real `web`, at pages and at the API: neither memory nor disk grows."""
    console.start("web")
    port = console.site.ports["web"]
    pid = console.processes["web"].pid
    assert answer_of_path(port, "/login") == 200
    files, before = set(os.listdir(tempfile.gettempdir())), _memory(pid)
    for path in ("/api/v1/nodes:enrol", "/login", "/api/v1/tenants", "/nowhere"):
        with dial(port) as line:
            begun = time.monotonic()
            line.sendall(head("Transfer-Encoding: chunked", "Content-Type: application/json", path=path))
            sent = 0
            with contextlib.suppress(ConnectionError, TimeoutError):
                while sent < 64 * 2**20:
                    line.sendall(chunk(64 * KIB))
                    sent += 64 * KIB
            assert sent < 64 * 2**20, path
            assert time.monotonic() - begun < 8
        with dial(port) as line:
            line.sendall(head(f"Content-Length: {BODY_BYTES + 1}", path=path))
            status, _, body = answer_of(line)
            assert (status, json.loads(body)["code"]) == (413, "body-too-large")
    if Path("/proc/self/status").exists():
        assert _memory(pid) - before < 32 * 2**20
    assert not [name for name in set(os.listdir(tempfile.gettempdir())) - files if name.startswith("tmp")]
    assert answer_of_path(port, "/login") == 200


def answer_of_path(port: int, path: str) -> int:
    with dial(port) as line:
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        return answer_of(line)[0]
