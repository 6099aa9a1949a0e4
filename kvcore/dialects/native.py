"""Decides what a body in the console's own protocol holds: the frame, its items, and what was refused of it.

The native dialect needs no translation; this is the one place where "refuse an item alone" is spelled out.
"""

from typing import NamedTuple

from kvcore.events import Frame, Item, Refused, decode_frame, decode_item
from kvcore.messages import Rejected


class Read(NamedTuple):
    """A frame with its good items, each with its index, and its refused ones."""

    frame: Frame
    items: list[tuple[int, Item]]
    rejected: list[Rejected]


def read(body: bytes) -> Read:
    """The frame and its items; a bad item is in `rejected`, its neighbours are exact.

    Raises:
        Refused: the body is not a frame; nothing of it may be applied.
    """
    frame = decode_frame(body)
    items: list[tuple[int, Item]] = []
    rejected: list[Rejected] = []
    for index, raw in enumerate(frame.items):
        try:
            items.append((index, decode_item(raw)))
        except Refused as e:
            rejected.append(Rejected(index=index, code=e.code))
    return Read(frame, items, rejected)
