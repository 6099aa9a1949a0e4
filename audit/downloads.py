"""Decides how a large file goes out: in pieces, from where the reader stopped, under either kind of server."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.request import Request

from kvconsole.infra.rest import Problem

PIECE = 256 * 1024
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


class AsItIs(DefaultContentNegotiation):
    """What a call answers has one form only, whatever was asked for; refusals are JSON as everywhere."""

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        """The first renderer."""
        return renderers[0], renderers[0].media_type


class Range(NamedTuple):
    """Some bytes of a file: all of them, or those that were asked for."""

    start: int
    length: int
    size: int
    partial: bool

    @classmethod
    def of(cls, header: str, size: int) -> "Range":
        """The one range of a Range header; what is no such range asks for the whole file.

        Raises:
            Problem: range-not-satisfiable.
        """
        found = _RANGE.fullmatch(header.replace(" ", ""))
        if found is None or found.groups() == ("", ""):
            return cls(0, size, size, False)
        first, last = found.groups()
        start = int(first) if first else max(0, size - int(last))
        end = min(int(last), size - 1) if first and last else size - 1
        if start >= size or end < start:
            raise Problem("range-not-satisfiable", f"The file has {size} bytes.")
        return cls(start, end - start + 1, size, True)


def file_answer(
    request: Request | HttpRequest, path: Path, part: Range, *, name: str, sha256: str
) -> StreamingHttpResponse:
    """These bytes of the file; memory stays flat however large it is."""
    file = path.open("rb")
    file.seek(part.start)
    plain = request._request if isinstance(request, Request) else request
    pieces = _asked(file, part.length) if isinstance(plain, ASGIRequest) else _pieces(file, part.length)
    answer = StreamingHttpResponse(pieces, status=206 if part.partial else 200, content_type="application/zip")
    answer._resource_closers.append(file.close)  # type: ignore[attr-defined]  # also where nobody reads it
    answer["Content-Length"] = str(part.length)
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    answer["Accept-Ranges"] = "bytes"
    answer["ETag"] = f'"{sha256[:32]}"'
    answer["Cache-Control"] = "no-store"
    if part.partial:
        answer["Content-Range"] = f"bytes {part.start}-{part.start + part.length - 1}/{part.size}"
    return answer


def _pieces(file: IO[bytes], length: int) -> Iterator[bytes]:
    with file:
        while length > 0 and (piece := file.read(min(PIECE, length))):
            length -= len(piece)
            yield piece


async def _asked(file: IO[bytes], length: int) -> AsyncIterator[bytes]:
    with file:
        while length > 0 and (piece := await asyncio.to_thread(file.read, min(PIECE, length))):
            length -= len(piece)
            yield piece
