"""Decides what no request may be, whatever it asks for: too large, or made of text that no column can hold.

Called by `rest` before a view sees the request or its body.
"""

import math
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
    found = _unstorable(value, 0)
    return None if found is None else ("/" + "/".join(found[0]), found[1])


def _unstorable(value: Any, depth: int) -> tuple[list[str], str] | None:
    """The place is put together on the way back alone: before each of many values under a long key it would cost."""
    if code := _wrong(value, depth):
        return [], code
    if isinstance(value, dict):
        for key, inner in value.items():
            if not _is_text(str(key)):
                return [], "unstorable-text"
            if found := _unstorable(inner, depth + 1):
                return [str(key).replace("~", "~0").replace("/", "~1"), *found[0]], found[1]
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            if found := _unstorable(inner, depth + 1):
                return [str(index), *found[0]], found[1]
    return None


def _wrong(value: Any, depth: int) -> str:
    if depth > DEPTH:
        return "body-too-deep"
    if isinstance(value, float) and not math.isfinite(value):
        return "out-of-range"
    return "unstorable-text" if isinstance(value, str) and not _is_text(value) else ""


def _is_text(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= c <= "\udfff" for c in text)
