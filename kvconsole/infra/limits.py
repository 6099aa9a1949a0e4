"""Decides what no request may be, whatever it asks for: too large, or made of text that no column can hold.

Called by `rest` before a view sees the request or its body.
"""

import math
from collections.abc import Iterator
from typing import Any

from django.http import HttpRequest

BODY_BYTES = 1024 * 1024
DEPTH = 64


def refusal_code(request: HttpRequest) -> str | None:
    """The code of the refusal of a whole request, or None.

    The size is measured, not believed: a body may come without a length.
    """
    if "\0" in request.path or "%00" in request.META.get("QUERY_STRING", ""):
        return "bad-request"
    return "body-too-large" if _body_bytes(request) > BODY_BYTES else None


def _body_bytes(request: HttpRequest) -> int:
    length = request.META.get("CONTENT_LENGTH") or ""
    if length.isascii() and length.isdecimal():
        return int(length)
    stream = getattr(request, "_stream", None)
    if stream is None or not getattr(stream, "seekable", lambda: False)():
        return 0
    at = stream.tell()
    size: int = stream.seek(0, 2)
    stream.seek(at)
    return size


def unstorable(value: Any) -> tuple[str, str] | None:
    """JSON pointer and code of the first value that cannot be kept, None where all is well.

    That is text with NUL or half a surrogate pair, a number without bounds, nesting beyond `DEPTH`.
    """
    return next(_unstorable(value, "", 0), None)


def _unstorable(value: Any, at: str, depth: int) -> Iterator[tuple[str, str]]:
    if depth > DEPTH:
        yield at or "/", "body-too-deep"
    elif isinstance(value, float) and not math.isfinite(value):
        yield at or "/", "out-of-range"
    elif isinstance(value, str) and not _is_text(value):
        yield at or "/", "unstorable-text"
    elif isinstance(value, dict):
        for key, inner in value.items():
            if not _is_text(str(key)):
                yield at or "/", "unstorable-text"
            else:
                yield from _unstorable(inner, f"{at}/{str(key).replace('~', '~0').replace('/', '~1')}", depth + 1)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _unstorable(inner, f"{at}/{index}", depth + 1)


def _is_text(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= c <= "\udfff" for c in text)
