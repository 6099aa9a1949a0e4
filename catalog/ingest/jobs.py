"""Decides what waits for the writer, and in which order it is folded.

`hot` makes jobs, `pipeline` queues and answers them, `folding` gives each its outcome.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import msgspec

from catalog.ingest.codes import Unavailable
from catalog.ingest.distinct import suspects
from catalog.ingest.inventory import decode_listed
from kvcore.events import NAME_MAX, Frame, Item, Refused, decode_items
from kvcore.messages import Answer, DigestReport, Heartbeat, InventoryPage

ENTRIES_MOST = 10_000
"""Kinds of unreadable requests that are told apart within one batch."""
Message = Frame | InventoryPage | DigestReport | Heartbeat
Outcome = Answer | Refused | Unavailable


@dataclass(slots=True, eq=False)
class Job:
    """One request that waits for a commit. `items` has, per index, the item or why it is refused.

    `given_up`: whoever waited is gone; what was not folded yet need not be.
    """

    node: UUID
    message: Message
    size: int
    settle: Callable[[Outcome], None]
    items: Sequence[Item | Refused] | None = None
    given_up: bool = False

    def decode(self) -> None:
        """`items` is there; doing it twice costs nothing."""
        if self.items is not None:
            return
        match self.message:
            case Frame():
                self.items = decode_items(self.message.items, twice=suspects)
            case InventoryPage():
                self.items = decode_listed(self.message)
            case _:
                self.items = ()


@dataclass(slots=True)
class Broken:
    """Requests of a node that could not be read, of one source (if it was legible) and code."""

    node: UUID
    source: str
    dp_rank: int
    code: str
    detail: str = ""
    count: int = 1


@dataclass(slots=True)
class BrokenBook:
    """What could not be read since the last batch, gathered, so that a flood costs a counter."""

    entries: dict[tuple[UUID, str, int, str], Broken] = field(default_factory=dict)

    def add(self, broken: Broken) -> None:
        """One more."""
        at = (broken.node, broken.source, broken.dp_rank, broken.code)
        if at not in self.entries and len(self.entries) >= ENTRIES_MOST:
            at = (broken.node, "", 0, broken.code)  # nodes and codes are few
        known = self.entries.get(at)
        if known is None:
            self.entries[at] = broken
        else:
            known.count += broken.count
            known.detail = broken.detail

    def take(self) -> list[Broken]:
        """Everything, and the book is empty."""
        out, self.entries = list(self.entries.values()), {}
        return out


class _Hint(msgspec.Struct):
    source: str = ""
    dp_rank: int | None = None


_hint = msgspec.msgpack.Decoder(_Hint)


def hint(body: bytes) -> tuple[str, int]:
    """(source, dp_rank) of a body that is not a good frame, if it says so legibly, else ("", 0)."""
    try:
        got = _hint.decode(body)
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError):
        return "", 0
    rank = got.dp_rank or 0
    legible = len(got.source) <= NAME_MAX and 0 <= rank < 2**31  # a longer name would be kept until the next batch
    return (got.source, rank) if legible else ("", 0)


def ordered(jobs: Sequence[Job]) -> list[Job]:
    """The jobs as they came, except that frames of one stream change places so that their numbers rise.

    What arrived out of order within one batch is thereby no gap.
    """
    out = list(jobs)
    slots: dict[tuple[object, ...], list[int]] = {}
    for i, job in enumerate(out):
        m = job.message
        if isinstance(m, Frame):
            slots.setdefault((job.node, m.source, m.dp_rank, m.boot, m.stream), []).append(i)
    for places in slots.values():
        if len(places) > 1:
            frames = sorted((out[i] for i in places), key=_seq)
            for i, job in zip(places, frames, strict=True):
                out[i] = job
    return out


def _seq(job: Job) -> int:
    return job.message.seq if isinstance(job.message, Frame) else 0
