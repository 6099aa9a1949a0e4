"""Decides which bytes are a JSON body: UTF-8, each key once, finite numbers of bounded length, bounded depth.

And how answers become JSON.
"""

import json
from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec
from django.utils.functional import Promise
from rest_framework.parsers import JSONParser
from rest_framework.renderers import JSONRenderer

from kvconsole.infra.rest import Problem

DIGITS = 400
"""Longer numbers are in no column of ours; reading them costs time that grows with the square of their length."""


class StrictJSON(JSONParser):
    """DRF's parser for what RFC 8259 leaves open, closed."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        """The value of the body.

        Raises:
            Problem: bad-request, duplicate-field, out-of-range or body-too-deep.
        """
        return read(stream.read())


def read(raw: bytes) -> Any:
    """The value of a JSON text.

    Raises:
        Problem: bad-request, duplicate-field, out-of-range or body-too-deep.
    """
    try:
        text = raw.decode()
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_int=_int)
    except UnicodeDecodeError as e:
        raise Problem("bad-request", f"The body is not UTF-8 (byte {e.start}).") from None
    except json.JSONDecodeError as e:
        raise Problem("bad-request", f"The body is not JSON: {e.msg} (line {e.lineno}, column {e.colno}).") from None
    except RecursionError:
        raise Problem("body-too-deep") from None


class Json(JSONRenderer):
    """DRF's renderer for plain values, ten times as fast. What is no number (NaN) is not known: null."""

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        """The JSON text of an answer."""
        return b"" if data is None else _encode(data)


def _plain(value: Any) -> Any:
    if isinstance(value, Promise):
        return str(value)
    for kind in (str, int, float):
        if isinstance(value, kind):  # a subclass, which msgspec does not take for what it is
            return str.__str__(value) if kind is str else kind(value)
    raise TypeError(f"{type(value)} is not JSON")


_encode = msgspec.json.Encoder(enc_hook=_plain).encode


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Problem(
            "duplicate-field",
            errors=[
                {"pointer": f"/{_shown(_twice(pairs))}", "code": "duplicate-field", "detail": "The key comes twice."}
            ],
        )
    return found


def _twice(pairs: list[tuple[str, Any]]) -> str:
    """The first key that was there before; one pass, as anybody may send a hundred thousand keys."""
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return name
        seen.add(name)
    raise ValueError("no key comes twice")


def _constant(text: str) -> NoReturn:
    raise Problem("bad-request", f"The body is not JSON: {text} is no number.")


def _int(text: str) -> int:
    if len(text) > DIGITS:
        raise Problem("out-of-range", f"A number has {len(text)} digits.")
    return int(text)


def _shown(name: str) -> str:
    """A key as an answer may repeat it."""
    return name[:100].encode("ascii", "backslashreplace").decode().replace("~", "~0").replace("/", "~1")
