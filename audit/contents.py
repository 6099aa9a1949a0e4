"""Decides what the body of an event says to who shows, exports or sends it on, whatever its bytes are.

Services write one form. Whoever writes past them, or edits what was written, writes what they like: it must not stop
the pages and exports of everybody else. The type of an event is a number of its leaf, never what its body says.
"""

from typing import Any

import msgspec


class Actor(msgspec.Struct, frozen=True):
    """Who acted, without a name."""

    kind: str = ""
    roles: list[str] = []


class About(msgspec.Struct, frozen=True):
    """What it was done to."""

    id: str = ""
    kind: str = ""


class Content(msgspec.Struct, frozen=True):
    """What a body says; of one that cannot be read, and of one that was retired, nothing."""

    actor: Actor = Actor()
    data: dict[str, Any] = {}
    object: About = About()
    outcome: str = ""
    also: list[dict[str, Any]] = []


class Unreadable(Content, frozen=True):
    """A body that is not of the form that services write."""


NOTHING, UNREADABLE = Content(), Unreadable()
MARK = "unreadable"
"""Stands beside the flags of such an event."""
_decode = msgspec.json.Decoder(Content).decode


def content_of(body: bytes) -> Content:
    """What it says; `UNREADABLE` where it is none of ours. Empty: it was retired."""
    if not body:
        return NOTHING
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return UNREADABLE


def whole_number(data: dict[str, Any], name: str) -> int | None:
    """A whole number of the data; None: there is none under this name."""
    found = data.get(name)
    return found if type(found) is int else None
