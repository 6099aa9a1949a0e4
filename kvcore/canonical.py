"""Decides the one form in which JSON is hashed or signed: RFC 8785.

Most of what an event says is texts, whole numbers and small tables of them, on whose bytes RFC 8785 and a much faster
encoder in C agree. Everything else, such as a fraction or a name beyond ASCII, is made by the library.
"""

from typing import Any

import msgspec
import rfc8785

SAFE_INTEGER = 2**53
_WORDS = frozenset({str, bool, type(None)})
_encode = msgspec.json.Encoder(order="sorted").encode


def canonical(value: Any) -> bytes:
    """The RFC 8785 bytes of a value of tables, lists, texts, numbers, booleans and None.

    Raises:
        rfc8785.CanonicalizationError: it holds something else, or a whole number of 2^53 or more.
    """
    if _agreed(value):
        try:
            return _encode(value)
        except UnicodeEncodeError:
            pass  # half of a pair of surrogates: the library says what is wrong
    return rfc8785.dumps(value)


def _agreed(value: Any) -> bool:
    """Whether there is only one way to write it: no fractions, and names whose order all encodings share."""
    kind = type(value)
    if kind in _WORDS:
        return True
    if kind is int:
        return bool(-SAFE_INTEGER < value < SAFE_INTEGER)
    if kind is dict:
        for name, one in value.items():
            if type(name) is not str or not name.isascii() or not (type(one) in _WORDS or _agreed(one)):
                return False
        return True
    if kind is list:
        return all(type(one) in _WORDS or _agreed(one) for one in value)
    return False
