"""Decides how items become numbered frames, and what is kept until the console has committed it.

Engines and the pool `put` canonical items from any thread; `nodeagent.sender` cuts, sends, acknowledges and rewinds.
One `Outbox` per (source, dp_rank), one `Lane` per shard of namespaces in it. Memory is bounded: what does not fit is
given up as a whole and replaced by an inventory, or, where the source cannot list, by a new stream that starts with
a `gap` item. Nothing here waits for the console.
"""

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec

from kvcore.events import VERSION, Add, Adds, Clear, Drop, Frame, Gap, Item, Load, Mark, Move, State, Use
from kvcore.keys import KEY_BYTES
from kvcore.messages import DigestLine, DigestReport, InventoryPage, SourcePosition

FRAME_BYTES = 2**20
"""Soft limit of a frame's items."""
PAGE_BYTES = 4 * 2**20
"""Soft limit of an inventory page's items."""
ITEM_KEYS = 8192
"""Keys of one item; longer chains are cut, so that no single item fills a frame."""
LIMIT_BYTES = 64 * 2**20

_encode = msgspec.msgpack.Encoder().encode


class Lister(Protocol):
    """Something that knows everything a source holds. `lock` is held by whoever changes the content and puts items."""

    lock: threading.RLock
    gap: str
    """Why what is listed may not be all: a reason of a `gap` item that no listing repairs, "" = it is all."""

    def inventory(self) -> Iterable[Item]:
        """`add` and `adds` items for all content, parents before children."""
        ...

    def digests(self) -> Sequence[DigestLine]:
        """One line per (namespace, generation, group, tier) that holds anything."""
        ...


class Held(msgspec.Struct, frozen=True):
    """A numbered frame that is not acknowledged. `facts` tells per item whether an inventory replaces it."""

    seq: int
    ts: float
    items: list[bytes]
    facts: list[bool]
    size: int


def shard_of(ns: bytes, shards: int) -> int:
    """The shard a namespace's items go to: its first eight bytes modulo the number of shards."""
    return int.from_bytes(ns[:8], "big") % shards


def split(item: Item) -> Iterable[Item]:
    """The item, cut so that no part has more than `ITEM_KEYS` keys; a cut chain stays chained through `parent`."""
    step = ITEM_KEYS * KEY_BYTES
    if isinstance(item, Clear | Use | Load | Mark | Gap) or len(item.keys) <= step:
        yield item
        return
    for at in range(0, len(item.keys), step):
        keys = item.keys[at : at + step]
        match item:
            case Add():
                parent = item.keys[at - KEY_BYTES : at] if at else item.parent
                yield msgspec.structs.replace(item, keys=keys, parent=parent)
            case Adds():
                yield msgspec.structs.replace(item, keys=keys, parents=item.parents[at : at + step])
            case Move() | Drop() | State():
                yield msgspec.structs.replace(item, keys=keys)


class Lane:
    """The frames of one shard. All methods are called with the outbox's lock held or by its one sender."""

    def __init__(self, shard: int) -> None:
        self.shard = shard
        self.seq = -1
        """Last numbered frame."""
        self.next_seq = 0
        """The frame to be sent next."""
        self.acked = -1
        self.frames: deque[Held] = deque()
        self.pending: list[bytes] = []
        self.pending_facts: list[bool] = []
        self.pending_bytes = 0
        self.pending_since = 0.0
        self.held_bytes = 0
        self.need_inventory = False
        self.listing = False
        """An inventory is on its way: its frames are no longer held, and it is not applied yet."""
        self.given_up = 0
        """Items that were given up because they did not fit; an inventory or a gap stands for them."""

    def append(self, encoded: bytes, fact: bool, now: float) -> None:
        """Puts one encoded item into the frame being gathered, closing that frame first if it is full."""
        if self.pending_bytes + len(encoded) > FRAME_BYTES:
            self.cut(now)
        if not self.pending:
            self.pending_since = now
        self.pending.append(encoded)
        self.pending_facts.append(fact)
        self.pending_bytes += len(encoded)
        self.held_bytes += len(encoded)

    def cut(self, now: float) -> None:
        """Numbers what was gathered as one frame."""
        if not self.pending:
            return
        self.seq += 1
        self.frames.append(Held(self.seq, now, self.pending, self.pending_facts, self.pending_bytes))
        self.pending, self.pending_facts, self.pending_bytes = [], [], 0

    def ack(self, seq: int) -> None:
        """Forgets the frames up to `seq`: they are committed."""
        while self.frames and self.frames[0].seq <= seq:
            self.held_bytes -= self.frames.popleft().size
        self.acked = max(self.acked, min(seq, self.seq))
        self.next_seq = max(self.next_seq, self.acked + 1)

    def rewind(self, seq: int) -> bool:
        """Makes `seq` the next frame to send; False if it is no longer held (nothing changes then)."""
        first = self.frames[0].seq if self.frames else self.seq + 1
        if not first <= seq <= self.seq + 1:
            return False
        self.next_seq = seq
        return True

    def next(self) -> Held | None:
        """The frame to be sent next, None if all were sent."""
        if not self.frames or self.next_seq > self.seq:
            return None
        return self.frames[self.next_seq - self.frames[0].seq]

    def supersede(self, committed: int) -> None:
        """Forgets all frames because an inventory as of `seq` contains them.

        What an inventory cannot contain (uses, loads, marks) of frames after `committed` is gathered again.
        """
        kept = [
            x for f in self.frames if f.seq > committed for x, fact in zip(f.items, f.facts, strict=True) if not fact
        ]
        self.frames.clear()
        self.held_bytes = self.pending_bytes
        self.next_seq = self.seq + 1
        for encoded in kept:
            self.append(encoded, False, time.time())

    def give_up(self) -> None:
        """Forgets everything held, so that memory stays bounded."""
        self.given_up += len(self.pending) + sum(len(f.items) for f in self.frames)
        self.frames.clear()
        self.pending, self.pending_facts, self.pending_bytes, self.held_bytes = [], [], 0, 0
        self.next_seq = self.seq + 1


class Outbox:
    """Everything one (source, dp_rank) has to tell, in order, until it is acknowledged.

    `put` may be called from any thread and never waits. A source with a `lister` must call it with the lister's lock
    held, so that an inventory or a digest is exact at the frame it names.
    """

    def __init__(
        self,
        source: str,
        dp_rank: int | None = 0,
        *,
        boot: str,
        shards: int = 1,
        lister: Lister | None = None,
        limit_bytes: int = LIMIT_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.source, self.dp_rank, self.boot, self.lister = source, dp_rank, boot, lister
        self.stream = str(uuid.uuid4())
        self.limit_bytes = limit_bytes
        self.lanes = [Lane(i) for i in range(shards)]
        self.overflows = 0
        self._clock = clock
        self._lock = threading.RLock()

    def put(self, *items: Item) -> None:
        """Takes the items in order; they will be sent within the flush interval."""
        now = self._clock()
        with self._lock:
            for whole in items:
                for item in split(whole):
                    self._place(item, now)
            for lane in self.lanes:
                if lane.held_bytes > self.limit_bytes:
                    self._overflow(lane, now)

    def _place(self, item: Item, now: float) -> None:
        encoded = _encode(item)
        fact = not isinstance(item, Use | Load | Mark)
        ns = getattr(item, "ns", None)
        if ns is not None:
            lanes = [self.lanes[shard_of(ns, len(self.lanes))]]
        else:
            lanes = self.lanes if isinstance(item, Clear | Gap) else self.lanes[:1]
        for lane in lanes:
            if lane.need_inventory and fact:
                lane.given_up += 1  # the inventory that is owed will contain it
            else:
                lane.append(encoded, fact, now)

    def _overflow(self, lane: Lane, now: float) -> None:
        self.overflows += 1
        lane.give_up()
        if self.lister is not None:
            lane.need_inventory = True
        else:
            self._new_stream("overflow", now)

    def lost(self, reason: str) -> None:
        """The console wants a frame that is gone: an inventory is owed, or a new stream begins with a `gap` item."""
        with self._lock:
            if self.lister is not None:
                for lane in self.lanes:
                    lane.need_inventory = True
            else:
                self._new_stream(reason, self._clock())

    def _new_stream(self, reason: str, now: float) -> None:
        since = min((f.ts for lane in self.lanes for f in lane.frames), default=now)
        self._restart()
        for lane in self.lanes:
            lane.append(_encode(Gap(since=since, reason=reason)), True, now)

    def _restart(self) -> None:
        self.stream = str(uuid.uuid4())
        for lane in self.lanes:
            lane.give_up()
            lane.seq, lane.next_seq, lane.acked = -1, 0, -1
            lane.need_inventory = lane.listing = False

    def reborn(self, boot: str) -> None:
        """A new life of the memory behind this source: what was not told of the old one never will be."""
        with self._lock:
            self.boot = boot
            self._restart()

    def owe_inventory(self) -> None:
        """Marks every lane for an inventory; without effect where the source cannot list."""
        if self.lister is not None:
            with self._lock:
                for lane in self.lanes:
                    lane.need_inventory = True

    def due(self, lane: Lane, *, flush_seconds: float) -> bool:
        """Numbers what has been gathered for `flush_seconds`; True if a frame is waiting to be sent."""
        with self._lock:
            now = self._clock()
            if lane.pending and lane.next() is None and now - lane.pending_since >= flush_seconds:
                lane.cut(now)
            return lane.next() is not None

    def frame(self, lane: Lane, *, node: str, fence_seq: int, allowances: int) -> tuple[int, str, bytes] | None:
        """(seq, stream, body) of the next frame, None if there is none."""
        with self._lock:
            held = lane.next()
            if held is None:
                return None
            body = Frame(
                v=VERSION, node=node, source=self.source, dp_rank=self.dp_rank, shard=lane.shard, boot=self.boot,
                stream=self.stream, seq=held.seq, ts=held.ts, fence_seq=fence_seq, allowances=allowances,
                items=[msgspec.Raw(x) for x in held.items],
            )  # fmt: skip
            return held.seq, self.stream, _encode(body)

    def sent(self, lane: Lane, stream: str, seq: int) -> None:
        """The console took frame `seq`; the one behind it is next. A frame of an older stream changes nothing."""
        with self._lock:
            if stream == self.stream:
                lane.next_seq = max(lane.next_seq, seq + 1)

    def acknowledge(self, lane: Lane, stream: str, seq: int) -> None:
        """Forgets frames up to `seq` of this stream: they are committed."""
        with self._lock:
            if stream == self.stream:
                lane.ack(seq)

    def rewind(self, lane: Lane, stream: str, seq: int) -> bool:
        """Goes back to frame `seq`; False if it is no longer held. Answers about an older stream change nothing."""
        with self._lock:
            return stream != self.stream or lane.rewind(seq)

    def pages(self, lane: Lane, *, node: str, fence_seq: int, allowances: int) -> tuple[str, int, list[bytes]]:
        """(stream, seq, encoded pages) of an inventory that is exact as of `seq`.

        Afterwards the lane owes no inventory, and the frames it contains are no longer held.
        """
        assert self.lister is not None  # only sources that can list owe inventories
        with self.lister.lock, self._lock:
            lane.cut(self._clock())
            lane.supersede(lane.acked)
            shards = len(self.lanes)
            items = [_encode(x) for i in self.lister.inventory() if _in(i, lane.shard, shards) for x in split(i)]
            lane.need_inventory, lane.listing = False, True
            head = dict(
                v=VERSION, node=node, source=self.source, dp_rank=self.dp_rank, shard=lane.shard, boot=self.boot,
                stream=self.stream, seq=lane.seq, ts=self._clock(), fence_seq=fence_seq, allowances=allowances,
                gap=self.lister.gap,
            )  # fmt: skip
            stream, seq = self.stream, lane.seq
        groups = _gather(items, PAGE_BYTES)
        name = str(uuid.uuid4())
        return stream, seq, [
            _encode(InventoryPage(**head, inventory=name, page=i, last=i == len(groups) - 1, items=g))  # type: ignore[arg-type]
            for i, g in enumerate(groups)
        ]  # fmt: skip

    def report(self, lane: Lane, *, node: str, fence_seq: int, allowances: int) -> tuple[str, int, bytes] | None:
        """(stream, seq, encoded digest report) exact as of `seq`; None where the source cannot list or owes more."""
        if self.lister is None or lane.need_inventory:
            return None
        with self.lister.lock, self._lock:
            lane.cut(self._clock())
            lines = [x for x in self.lister.digests() if shard_of(x.ns, len(self.lanes)) == lane.shard]
            body = DigestReport(
                v=VERSION, node=node, source=self.source, dp_rank=self.dp_rank, shard=lane.shard, boot=self.boot,
                stream=self.stream, seq=lane.seq, ts=self._clock(), fence_seq=fence_seq, allowances=allowances,
                lines=lines, gap=self.lister.gap,
            )  # fmt: skip
            return self.stream, lane.seq, _encode(body)

    def listed(self, lane: Lane, stream: str, seq: int, *, applied: bool) -> None:
        """An inventory as of `seq` was applied, or is owed again."""
        with self._lock:
            if stream == self.stream:
                lane.listing = False
                lane.need_inventory = lane.need_inventory or not applied
                if applied:
                    lane.ack(seq)

    def positions(self) -> list[SourcePosition]:
        """Where each lane stands, for heartbeats and receipts."""
        with self._lock:
            return [
                SourcePosition(
                    source=self.source, dp_rank=self.dp_rank or 0, boot=self.boot, stream=self.stream, seq=lane.seq
                )
                for lane in self.lanes
            ]

    def behind(self, ns: bytes) -> SourcePosition:
        """The position behind everything that was put of a namespace: what is gathered is numbered now."""
        with self._lock:
            lane = self.lanes[shard_of(ns, len(self.lanes))]
            lane.cut(self._clock())
            return SourcePosition(
                source=self.source, dp_rank=self.dp_rank or 0, boot=self.boot, stream=self.stream, seq=lane.seq
            )

    @property
    def idle(self) -> bool:
        """Everything put was acknowledged and no inventory is owed."""
        with self._lock:
            return not any(x.frames or x.pending or x.need_inventory or x.listing for x in self.lanes)


def _in(item: Item, shard: int, shards: int) -> bool:
    ns = getattr(item, "ns", None)
    return ns is None or shard_of(ns, shards) == shard


def _gather(items: list[bytes], limit: int) -> list[list[msgspec.Raw]]:
    """The items in groups of at most `limit` bytes (or one item); at least one group."""
    groups: list[list[msgspec.Raw]] = [[]]
    size = 0
    for x in items:
        if size + len(x) > limit and groups[-1]:
            groups.append([])
            size = 0
        groups[-1].append(msgspec.Raw(x))
        size += len(x)
    return groups
