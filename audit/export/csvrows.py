"""Decides how records become CSV that no program takes for anything but text: RFC 4180, no active cells.

A view of the records for spreadsheets; JSONL is the canonical form. Numbers stand as numbers. Text is always quoted; a
cell that a spreadsheet could take for a formula begins with an apostrophe, and control characters, newlines among them,
stand as escapes. The header's last column says so.
"""

import re
import time
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from audit.contents import MARK, Actor
from audit.export.records import Record
from audit.selectors import FLAGS, NAMES, OUTCOMES

COLUMNS = (
    *("index", "time", "event_id", "action", "type", "outcome", "flags", "tenant_ref", "actor_ref", "actor_kind"),
    *("actor_roles", "object_kind", "object_id", "request_id", "data", "producer_id", "producer_seq", "leaf_hash"),
    "escaped=1",
)
_ACTIVE = tuple("=+-@\t\r\n\0|%＝＋－＠")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_PLAIN = re.compile(r"[A-Za-z0-9_.:/\[][^\x00-\x1f\x7f-\uffff\U00010000-\U0010ffff\"]*")


class _Body(msgspec.Struct):
    actor: Actor = Actor()
    data: msgspec.Raw = msgspec.Raw(b"")


_decode = msgspec.json.Decoder(_Body).decode


def _body(raw: bytes) -> _Body | None:
    """What a body says; None: it is not of the form that services write."""
    try:
        return _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def header() -> bytes:
    """The first line."""
    return (",".join(COLUMNS) + "\r\n").encode()


def lines(records: Iterable[Record]) -> bytes:
    """One line a record."""
    return "".join(_line(record) for record in records).encode()


def cell(text: str) -> str:
    """The text as a quoted cell that is inert wherever it is opened."""
    if _PLAIN.fullmatch(text):
        return f'"{text}"'
    if text.lstrip(" \u00a0\u3000").startswith(_ACTIVE):
        text = "'" + text
    text = _CONTROL.sub(_escape, text)
    return '"' + text.replace('"', '""') + '"'


def _escape(found: re.Match[str]) -> str:
    character = found.group()
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character)
    return short or f"\\u{ord(character):04x}"


@lru_cache(64)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def _line(record: Record) -> str:
    body = _body(record.body) if record.body else _Body()
    flags = " ".join(name for bit, name in FLAGS.items() if record.flags & bit)
    if body is None:  # whatever it is, it stands there as text
        flags, body = f"{flags} {MARK}".strip(), _Body(data=msgspec.Raw(record.body))
    seconds, micros = divmod(record.time_us, 1_000_000)
    cells = (
        str(record.index),
        f'"{_second(seconds)}.{micros:06d}Z"',
        f'"{record.event_id}"',
        f'"{NAMES.get(record.event_type, "")}"',
        str(record.event_type),
        f'"{OUTCOMES[record.outcome]}"',
        f'"{flags}"',
        f'"{record.tenant_ref.hex()}"',
        f'"{record.actor_ref.hex()}"',
        cell(body.actor.kind),
        cell(" ".join(body.actor.roles)),
        cell(record.object_kind),
        cell(record.object_id),
        cell(record.request_id),
        cell(bytes(body.data).decode(errors="replace")),
        str(record.producer_id),
        str(record.producer_seq),
        f'"{record.hash.hex()}"',
        "1",
    )
    return ",".join(cells) + "\r\n"
