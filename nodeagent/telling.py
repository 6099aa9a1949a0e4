"""Decides how changes of the pool become items: neighbours of one kind are told together, in the order they happened.

Called by `nodeagent.pool` with its lock held, so that what was told and what is there agree at every frame.
"""

from typing import Literal

import msgspec

from kvcore.blocks import Tier
from kvcore.events import Add, Adds, Drop, Item, Move, State
from kvcore.keys import KEY_BYTES, ROOT
from nodeagent.outbox import Outbox
from nodeagent.runs import Run, Space

SMALL_BLOCKS = 8
"""Chains of at most this many blocks travel packed in one `adds` where several follow each other."""


class _Tale(msgspec.Struct):
    """One item in the making."""

    kind: Literal["add", "move", "drop", "state"]
    space: Space
    tier: Tier
    extra: str  # move: to; drop: reason; state: state
    keys: list[bytes]
    parent: bytes | None = None
    last: bytes = b""

    def blocks(self) -> int:
        return sum(map(len, self.keys)) // KEY_BYTES


class Teller:
    """Gathers what one operation of the pool changed, then puts it into the outboxes of the sources concerned."""

    def __init__(self, outboxes: dict[Tier, Outbox]) -> None:
        self._outboxes = outboxes
        self._tales: dict[str, list[_Tale]] = {box.source: [] for box in outboxes.values()}
        self._boxes = {box.source: box for box in outboxes.values()}

    def add(self, run: Run, tier: Tier) -> None:
        """The run came to a tier."""
        tales = self._tales[self._outboxes[tier].source]
        last = tales[-1] if tales else None
        if (
            last is not None
            and last.kind == "add"
            and last.space is run.space
            and last.tier is tier
            and last.last == run.meta.parent
        ):
            last.keys.append(run.keys)
            last.last = run.last_key
            return
        tales.append(_Tale("add", run.space, tier, "", [run.keys], run.meta.parent, run.last_key))

    def move(self, run: Run, tier: Tier, to: Tier) -> None:
        """The run went from one tier to another. Between sources that is a copy and a loss."""
        if self._outboxes[tier] is self._outboxes[to]:
            self._plain("move", run, tier, to)
        else:
            self.add(run, to)
            self._plain("drop", run, tier, "watermark")

    def drop(self, run: Run, tier: Tier, reason: str, *, keys: bytes = b"") -> None:
        """The run is no longer in the tier; or only these of its blocks are not."""
        self._plain("drop", run, tier, reason, keys)

    def quarantine(self, run: Run, tier: Tier) -> None:
        """A check of the run failed; it must not be used."""
        self._plain("state", run, tier, "quarantined")

    def _plain(
        self, kind: Literal["move", "drop", "state"], run: Run, tier: Tier, extra: str, keys: bytes = b""
    ) -> None:
        tales = self._tales[self._outboxes[tier].source]
        if tales:
            last = tales[-1]
            if last.kind == kind and last.space is run.space and last.tier is tier and last.extra == extra:
                last.keys.append(keys or run.keys)
                return
        tales.append(_Tale(kind, run.space, tier, extra, [keys or run.keys]))

    def flush(self) -> None:
        """Puts what was gathered. Nothing is gathered afterwards."""
        for source, tales in self._tales.items():
            if tales:
                self._boxes[source].put(*items(tales))
                tales.clear()

    def items(self) -> list[Item]:
        """What was gathered, as items; it stays gathered."""
        return [x for tales in self._tales.values() for x in items(tales)]

    def forget(self, tier: Tier) -> None:
        """Throws away what was gathered for the tier's source: a reset stands for it."""
        self._tales[self._outboxes[tier].source].clear()


def items(tales: list[_Tale]) -> list[Item]:
    """The tales as items; short chains that follow each other are packed."""
    out: list[Item] = []
    at = 0
    while at < len(tales):
        group = _small(tales, at)
        out.append(_packed(group) if len(group) > 1 else _item(tales[at]))
        at += max(len(group), 1)
    return out


def _small(tales: list[_Tale], at: int) -> list[_Tale]:
    group: list[_Tale] = []
    for tale in tales[at:]:
        same = not group or (tale.space is group[0].space and tale.tier is group[0].tier)
        if tale.kind != "add" or not same or tale.blocks() > SMALL_BLOCKS:
            break
        group.append(tale)
    return group


def _packed(group: list[_Tale]) -> Item:
    space, keys, parents = group[0].space, [], []
    for tale in group:
        chain = b"".join(tale.keys)
        keys.append(chain)
        parents.append((tale.parent or ROOT) + chain[:-KEY_BYTES])
    return Adds(
        ns=space.ns, gen=space.gen, group=space.group, keys=b"".join(keys), parents=b"".join(parents),
        tier=group[0].tier.value, tokens=space.block_tokens, bytes=space.block_bytes,
    )  # fmt: skip


def _item(tale: _Tale) -> Item:
    space, keys, tier = tale.space, b"".join(tale.keys), tale.tier.value
    match tale.kind:
        case "add":
            return Add(
                ns=space.ns, gen=space.gen, group=space.group, keys=keys, parent=tale.parent, tier=tier,
                tokens=space.block_tokens, bytes=space.block_bytes,
            )  # fmt: skip
        case "move":
            return Move(ns=space.ns, gen=space.gen, group=space.group, keys=keys, from_=tier, to=tale.extra)
        case "drop":
            return Drop(ns=space.ns, gen=space.gen, group=space.group, keys=keys, tier=tier, reason=tale.extra)
        case "state":
            return State(ns=space.ns, gen=space.gen, group=space.group, keys=keys, tier=tier, state=tale.extra)
