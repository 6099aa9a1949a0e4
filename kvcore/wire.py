"""Decides where the values in a msgpack body begin and end, without recursion.

The decoders stop at some thousand levels of nesting and then refuse the whole body. What is here cuts such a body
into its elements, so that one absurd element costs only itself. Slow, and used only after a decoder gave up.
"""

import msgspec

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, OverflowError, RecursionError)
"""What decoders say of bytes from elsewhere that hold no such value, also of those that are nested too deep."""

_FIXED = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4,
          0xD3: 8, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}  # fmt: skip
_SIZED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4}


class Truncated(ValueError):
    """The body ends before the value does, or holds a byte that begins no value."""


def array_length(buf: bytes | memoryview) -> int | None:
    """Number of elements if the value is an array, else None."""
    if not len(buf):
        return None
    first = buf[0]
    if 0x90 <= first <= 0x9F:
        return first & 15
    if first == 0xDC and len(buf) >= 3:
        return int.from_bytes(buf[1:3], "big")
    if first == 0xDD and len(buf) >= 5:
        return int.from_bytes(buf[1:5], "big")
    return None


def _head(buf: bytes, at: int) -> tuple[int, int]:
    """(offset behind the head and its own bytes, number of values that follow as its content)."""
    if at >= len(buf):
        raise Truncated("the value ends early")
    first = buf[at]
    at += 1
    if first <= 0x7F or first >= 0xE0:
        return at, 0
    if first <= 0x8F:
        return at, 2 * (first & 15)
    if first <= 0x9F:
        return at, first & 15
    if first <= 0xBF:
        return at + (first & 31), 0
    if first in _FIXED:
        return at + _FIXED[first], 0
    if first in _SIZED:
        width = _SIZED[first]
        size = int.from_bytes(buf[at : at + width], "big") + (1 if 0xC7 <= first <= 0xC9 else 0)
        return at + width + size, 0
    if first in (0xDC, 0xDD, 0xDE, 0xDF):
        width = 2 if first in (0xDC, 0xDE) else 4
        count = int.from_bytes(buf[at : at + width], "big")
        return at + width, count * (2 if first >= 0xDE else 1)
    raise Truncated("a byte that begins no value")


def end_of(buf: bytes, at: int) -> int:
    """Offset behind the value that begins at `at`.

    Raises:
        Truncated: there is no whole value.
    """
    open_values = 1
    while open_values:
        at, inner = _head(buf, at)
        open_values += inner - 1
    if at > len(buf):
        raise Truncated("the value ends early")
    return at


def elements(buf: bytes, at: int = 0) -> list[bytes]:
    """The elements of the array (or keys and values of the map) that begins at `at`, undecoded.

    Raises:
        Truncated: there is no whole array or map.
    """
    at, count = _head(buf, at)
    out = []
    for _ in range(count):
        end = end_of(buf, at)
        out.append(buf[at:end])
        at = end
    return out
