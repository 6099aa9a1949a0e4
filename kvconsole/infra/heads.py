"""Decides how long the head of a request may be, and how long it may take: uvicorn's parser in C counts neither.

Without a limit a header that never ends is kept whole, and whoever sends heads slowly holds connections. Bodies are
`infra.intake`'s, and pauses between requests are uvicorn's own. Given to uvicorn by whoever serves.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 20.0
_ANSWERS = {
    431: b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    408: b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
}


class Heads(HttpToolsProtocol):
    """One connection: 431 and closed beyond `HEAD_BYTES`, 408 and closed after `HEAD_SECONDS` without a whole head."""

    _size = 0
    _inside = True
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The first head is waited for."""
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for."""
        self._settle()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._expect()

    def on_headers_complete(self) -> None:
        """The head is whole; what follows is a body, or another protocol."""
        self._settle()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Bytes of heads are counted, by piece; a body that begins in the same piece ends the count."""
        super().data_received(data)
        if self._inside and self.parser is not None:
            self._size += len(data)
            if self._size > HEAD_BYTES:
                self._refuse(431)

    def _expect(self) -> None:
        self._settle()
        self._inside, self._size = True, 0
        self._timer = self.loop.call_later(HEAD_SECONDS, self._refuse, 408)

    def _settle(self) -> None:
        self._inside = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, status: int) -> None:
        self._settle()
        transport: Any = self.transport
        if not transport.is_closing():
            transport.write(_ANSWERS[status])
            transport.close()
