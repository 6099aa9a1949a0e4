"""Decides what the catalog does with single keys that are being deleted: hidden while the order is open, then dropped.

The namespace lives on, so no generation fences these keys; the directory does. From the commit in which the writer
hears of the order until it is over, what is held of them is `evicting`: in its owner's digest, and not routable, also
where it is announced again. A receipt's purge drops them exactly at the receipt's position among the source's own
frames: what was told before is an echo of what is gone, what is told later was made anew and stays, and is routable
again when the order is over. Belongs to the fold thread. Called by `console_source` and `folding`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from django.db import connection
from numpy.typing import NDArray

from catalog.index.steps import DROP, STATE, VACATE, Keyspace
from catalog.ingest.keymap import Memory, Work
from kvconsole.infra.sql import named
from kvcore.events import Add, Adds, Item, Move
from kvcore.targets import KEY

REMARK_S = 5.0
"""After which everything hidden is marked again: an inventory may have listed some of it as new."""
WIDE = KEY * 2
"""Bytes of a key in a step."""
Keys = NDArray[np.void]
Position = tuple[str, str, int]
_LATER_MOST = 100_000
_NO_ITEM = -1
"""Tag of steps that are nobody's item: what is not held any more when they are folded is no news of anybody."""


class Hidden(NamedTuple):
    """Keys of a namespace that an open order reaches, sorted."""

    digest: bytes
    gen: int
    group: int | None
    keys: Keys

    def of(self, keyspace: Keyspace) -> bool:
        """Whether they can be of this keyspace."""
        return keyspace.generation < self.gen and self.group in (None, keyspace.group)


@dataclass(slots=True)
class KeyBook:
    """The keys of all open orders."""

    open: dict[UUID, list[Hidden]] = field(default_factory=dict)
    later: dict[tuple[int, str, bytes], list[tuple[Position, Keys]]] = field(default_factory=dict)
    """(source, tier, digest) → what was announced there while it was hidden, and at which positions."""
    _fresh: list[Hidden] = field(default_factory=list)
    _over: list[Hidden] = field(default_factory=list)
    _marked_at: float = 0.0

    def refresh(self, now: float) -> None:
        """The open orders are as in the tables; keys are read once."""
        queries = named("catalog", "operation_blocks.sql")
        with connection.cursor() as cursor:
            cursor.execute(queries["hiding"])
            ids = {row[0] for row in cursor.fetchall()}
            new = ids - self.open.keys()
            rows: list[Any] = []
            if new:
                cursor.execute(queries["hidden_keys"], (sorted(new),))
                rows = cursor.fetchall()
        for operation in self.open.keys() - ids:
            self._over += self.open.pop(operation)
        for operation, digest, gen, group, keys in rows:
            one = Hidden(bytes(digest), gen, group, _array(bytes(keys)))
            self.open.setdefault(operation, []).append(one)
            self._fresh.append(one)
        if self.open and now - self._marked_at >= REMARK_S:
            self._fresh, self._marked_at = [one for some in self.open.values() for one in some], now
        if not self.open:
            self.later.clear()

    def steps(self, memory: Memory, by_digest: Mapping[bytes, Iterable[Keyspace]]) -> Iterator[Work]:
        """What became hidden is hidden, and what is over is not any more."""
        over, self._over, fresh, self._fresh = self._over, [], self._fresh, []
        for kind, some in ((STATE, over), (VACATE, fresh)):
            for one in some:
                for keyspace in by_digest.get(one.digest, ()):
                    if one.of(keyspace):
                        yield from _everywhere(memory, kind, keyspace.id, one.keys)

    def came(self, item: Item, step: Work | None, at: Position) -> list[Work]:
        """What is announced while it is hidden is there, is hidden too, and no receipt from before covers it."""
        if not self.open or step is None or not isinstance(item, Add | Adds | Move):
            return []
        tier = item.to if isinstance(item, Move) else item.tier
        said, out = _short(step.keys), []
        for one in (one for some in self.open.values() for one in some if one.digest == item.ns and item.gen < one.gen):
            if one.group not in (None, item.group) or not (meant := _in(said, one.keys)).any():
                continue
            mine = said[meant]
            place = self.later.setdefault((step.source, tier, item.ns), [])
            if len(place) < _LATER_MOST:
                place.append((at, mine))
            out.append(Work(VACATE, step.source, tier, step.keyspace, _wide(mine), tag=_NO_ITEM))
        return out

    def drops(
        self, operation: UUID, source: int, tier: str, at: Position, memory: Memory,
        by_digest: Mapping[bytes, Iterable[Keyspace]],
    ) -> Iterator[Work]:  # fmt: skip
        """What a receipt covers of the keys in one place leaves the catalog."""
        owner = memory.owner_of.get((source, tier))
        for one in self.open.get(operation, ()) if owner is not None else ():
            told = self.later.get((source, tier, one.digest), [])
            anew = [keys for position, keys in told if position[:2] == at[:2] and position[2] > at[2]]
            echo = [keys for position, keys in told if position[:2] != at[:2] or position[2] <= at[2]]
            for keyspace in by_digest.get(one.digest, ()):
                if not one.of(keyspace):
                    continue
                gone = _held(memory, owner, keyspace.id, one.keys)  # as before this batch
                gone = np.unique(np.concatenate([gone, *(keys[_in(keys, one.keys)] for keys in echo)]))
                if anew:
                    gone = gone[~_in(gone, np.sort(np.concatenate(anew)))]
                if len(gone):
                    yield Work(DROP, source, tier, keyspace.id, _wide(gone), reason="delete", tag=_NO_ITEM)


def _everywhere(memory: Memory, kind: str, keyspace: int, keys: Keys) -> Iterator[Work]:
    """A step for each owner that holds some of the keys."""
    for (source, tier), owner in list(memory.owner_of.items()):
        if memory.holding[owner].get(keyspace, (0,))[0] and len(held := _held(memory, owner, keyspace, keys)):
            state = "committed" if kind == STATE else "evicting"
            yield Work(kind, source, tier, keyspace, _wide(held), state=state, tag=_NO_ITEM)


def _held(memory: Memory, owner: int | None, keyspace: int, keys: Keys) -> Keys:
    """Those of the keys that the owner holds."""
    found = memory.known(keyspace, _wide(keys))
    held = np.zeros(len(keys), np.bool_)
    place = memory.place[owner] if owner is not None else {}
    order = np.argsort(found[:, 0], kind="stable")
    segs, starts = np.unique(found[order, 0], return_index=True)
    for seg, some in zip(segs.tolist(), np.split(order, starts[1:]), strict=True):
        if mask := (place.get(seg, 0) if seg >= 0 else 0):
            raw = np.frombuffer(mask.to_bytes(32, "little"), np.uint8)
            held[some] = np.unpackbits(raw, bitorder="little")[found[some, 1]].astype(np.bool_)
    return keys[held]


def _array(packed: bytes) -> Keys:
    return np.frombuffer(packed, f"S{KEY}")


def _short(wide: bytes) -> Keys:
    """Keys of steps as keys of orders."""
    return np.ascontiguousarray(np.frombuffer(wide, np.uint8).reshape(-1, WIDE)[:, :KEY]).view(f"S{KEY}").ravel()


def _wide(keys: Keys) -> bytes:
    """Keys of orders as steps have them: nothing looks behind their first half."""
    out = np.zeros((len(keys), WIDE), np.uint8)
    out[:, :KEY] = np.frombuffer(keys.tobytes(), np.uint8).reshape(-1, KEY)
    return out.tobytes()


def _in(some: Keys, among: Keys) -> NDArray[np.bool_]:
    """Which of some keys are among others, which are sorted."""
    if not len(among):
        return np.zeros(len(some), np.bool_)
    at = np.minimum(np.searchsorted(among, some), len(among) - 1)
    return np.asarray(among[at] == some, np.bool_)
