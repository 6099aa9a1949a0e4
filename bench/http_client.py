"""The least HTTP client that measures a server and not itself: one connection that stays open, JSON in and out.

A server closes connections that were idle for some seconds: `again` opens it anew.
"""

import json
import socket
from typing import Any


class Connection:
    """HTTP/1.1 over one socket. Takes answers with a Content-Length only, as ours all have."""

    def __init__(self, host: str, port: int, token: str) -> None:
        self._place = host, port
        self._head = f"Host: {host}:{port}\r\nAuthorization: Bearer {token}\r\n"
        self._open()

    def _open(self) -> None:
        self._socket = socket.create_connection(self._place, timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def again(self) -> None:
        """The connection is a new one."""
        self.close()
        self._open()

    def get(self, path: str) -> Any:
        """The JSON of a good answer."""
        return json.loads(self._answer(f"GET {path} HTTP/1.1\r\n{self._head}\r\n".encode()))

    def post(self, path: str, body: bytes) -> bytes:
        """The body of a good answer."""
        head = f"POST {path} HTTP/1.1\r\n{self._head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        return self._answer(f"{head}\r\n".encode() + body)

    def close(self) -> None:
        """The socket is closed."""
        self._file.close()
        self._socket.close()

    def _answer(self, request: bytes) -> bytes:
        self._socket.sendall(request)
        status, length = int(self._file.readline().split()[1]), 0
        while (line := self._file.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        body = self._file.read(length)
        if not 200 <= status < 300:
            raise RuntimeError(f"{status} {body[:300]!r}")
        return body
