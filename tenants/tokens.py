"""Decides the shape of a bearer token: `kvc_<kind>_<id>_<secret><crc>`, and what of it is kept.

The id finds the row; of the secret only its SHA-256 is kept (256 random bits need no slow hash); the CRC lets scanners
and typing errors be told from tokens without asking anybody. Called by `services` and `selectors`.
"""

import hashlib
import re
import secrets
import zlib

import msgspec

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
ID_CHARS, SECRET_CHARS, CRC_CHARS = 16, 43, 6
_PAIRS = [a + b for a in ALPHABET for b in ALPHABET]
_TOKEN = re.compile(r"kvc_([a-z]{1,16})_([0-9A-Za-z]{16})_([0-9A-Za-z]{43})([0-9A-Za-z]{6})")


class Parsed(msgspec.Struct, frozen=True):
    """A token that is well-formed; whether it is good, the database knows."""

    kind: str
    id: str
    secret_hash: bytes


def generate(kind: str) -> tuple[str, Parsed]:
    """A new token: its plaintext, which is shown once, and what is kept of it."""
    token_id = "".join(secrets.choice(ALPHABET) for _ in range(ID_CHARS))
    body = f"kvc_{kind}_{token_id}_{_base62(secrets.randbits(256), SECRET_CHARS)}"
    plaintext = body + _crc(body)
    parsed = parse(plaintext)
    if parsed is None:
        raise ValueError(f"not a kind of token: {kind!r}")
    return plaintext, parsed


def parse(plaintext: str) -> Parsed | None:
    """The parts of a well-formed token, else None."""
    match = _TOKEN.fullmatch(plaintext)
    if match is None:
        return None
    kind, token_id, secret, crc = match.groups()
    if crc != _crc(plaintext[:-CRC_CHARS]):
        return None
    return Parsed(kind, token_id, hashlib.sha256(f"{kind}\0{secret}".encode()).digest())


def _crc(text: str) -> str:
    high, low = divmod(zlib.crc32(text.encode()), 62**2)
    high, middle = divmod(high, 62**2)
    return _PAIRS[high] + _PAIRS[middle] + _PAIRS[low]  # CRC_CHARS digits; each request has one of these


def _base62(number: int, chars: int) -> str:
    out = []
    for _ in range(chars):
        number, digit = divmod(number, 62)
        out.append(ALPHABET[digit])
    return "".join(reversed(out))
