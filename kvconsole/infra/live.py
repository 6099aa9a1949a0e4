"""Carries live views to sockets: one subscription and one shared view per topic and process, whatever the clients.

A view is a two-level map `{collection: {id: entity}}`. The hub wakes with the writer (or each second by itself), lets
the topic's selector build the view, and hands the difference to every socket as the same text, encoded once. A socket
that reads slowly never queues: it skips to a fresh snapshot and is told how many frames it missed. Whoever reads the
deltas of one feed in order, over its snapshot, has exactly the view that a fresh snapshot would give.

Called by consumers (`hub()`, `Reader`) and by apps that register topics.
"""

import asyncio
import contextlib
import logging
import secrets
import threading
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import msgspec
from django.db import close_old_connections, connections

from kvconsole.infra import nudge

T = TypeVar("T")
View = dict[str, dict[str, Any]]
"""{collection: {id: entity}}; in a delta an entity of None removes the id."""
FRAME_SECONDS = 0.5
RING = 120
IDLE_SECONDS = 30.0
FEEDS_MAX = 1_024
THREADS = 2
"""Threads, and so connections, in which a process reads for all its sockets."""
_log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class TopicKind:
    """A family of topics: `name`, or `name:<argument>` where `takes` is set.

    build: (argument, now) -> the view, None if there is no such thing; runs in a thread, reads through a selector.
    wakes: topics of `nudge` after which the view may have changed.
    roles: who may subscribe.
    """

    name: str
    build: Callable[[str, datetime], View | None]
    wakes: frozenset[str]
    roles: frozenset[str]
    takes: bool = False


_kinds: dict[str, TopicKind] = {}


def register(kind: TopicKind) -> None:
    """Topics of this kind can be subscribed to; registering a name again replaces it."""
    _kinds[kind.name] = kind


def resolve(topic: str) -> tuple[TopicKind, str] | None:
    """The kind and argument of a topic's name; None if there is no such kind."""
    name, colon, argument = topic.partition(":")
    kind = _kinds.get(name)
    if kind is None or kind.takes != bool(colon) or (kind.takes and not 0 < len(argument) <= 200):
        return None
    return kind, argument


def difference(before: View, after: View) -> View:
    """The delta that turns `before` into `after`: whole entities, None for those that went."""
    delta: View = {}
    for name in before.keys() | after.keys():
        old, new = before.get(name, {}), after.get(name, {})
        changed: dict[str, Any] = {k: v for k, v in new.items() if k not in old or old[k] != v}
        changed.update(dict.fromkeys(old.keys() - new.keys()))
        if changed:
            delta[name] = changed
    return delta


def fold(view: View, delta: View) -> View:
    """The view after the delta; what browsers do too."""
    after = {name: dict(entities) for name, entities in view.items()}
    for name, entities in delta.items():
        into = after.setdefault(name, {})
        for key, entity in entities.items():
            if entity is None:
                into.pop(key, None)
            else:
                into[key] = entity
    return after


class Feed:
    """One topic's shared view, its last frames, and who reads it. `seq` numbers its frames without gaps.

    The first seq is random: a number from another life or another process is never taken for one of this feed's.
    """

    def __init__(self, topic: str, kind: TopicKind, argument: str) -> None:
        self.topic, self.kind, self.argument = topic, kind, argument
        self.seq = secrets.randbits(41) << 10
        self.view: View | None = None
        self.ring: deque[str] = deque(maxlen=RING)
        self.readers: set[Reader] = set()
        self.dirty, self.building, self.known = True, False, asyncio.Event()
        self.built_at, self.left_at = 0.0, time.monotonic()
        self._body: str | None = None

    def take(self, view: View | None) -> bool:
        """`view` is the newest; every reader is told if it differs. None = the thing is gone."""
        first, before, self.view = not self.known.is_set(), self.view, view
        self.known.set()
        if view is None or before is None:
            if view is before and not first:
                return False
            self.seq += 1
            self.ring.clear()
            self._body = None
            self._tell()
            return True
        delta = difference(before, view)
        if not delta:
            return False
        self.publish(delta)
        return True

    def publish(self, delta: View) -> None:
        """One frame more: encoded once, handed to all."""
        self.seq += 1
        self._body = None
        self.ring.append(f'{{"topic":{self._name},"seq":{self.seq},"delta":{_encode(delta).decode()}}}')
        self._tell()

    def snapshot(self, skipped: int = 0) -> str:
        """The whole view as a frame; the body is encoded once per seq."""
        if self._body is None:
            self._body = _encode(self.view or {}).decode()
        missed = f'"skipped":{skipped},' if skipped else ""
        return f'{{"topic":{self._name},"seq":{self.seq},{missed}"snapshot":{self._body}}}'

    def after(self, seq: int) -> list[str] | None:
        """The frames behind `seq`, None if they are no longer (or were never) here."""
        behind = self.seq - seq
        if behind < 0 or behind > len(self.ring):
            return None
        return [self.ring[i] for i in range(len(self.ring) - behind, len(self.ring))]

    @property
    def _name(self) -> str:
        return _encode(self.topic).decode()

    def _tell(self) -> None:
        for reader in self.readers:
            reader.wake()


@dataclass
class _Place:
    feed: Feed
    seq: int | None = None
    resume: int | None = None


class Reader:
    """One socket's place in its topics. `pump` runs until cancelled; nothing is queued for it in between."""

    def __init__(self, send: Callable[[str], Awaitable[None]]) -> None:
        self._send = send
        self.places: dict[str, _Place] = {}
        self._ready = asyncio.Event()
        self.skipped = 0

    def wake(self) -> None:
        """There may be something to send."""
        self._ready.set()

    def join(self, feed: Feed, resume: int | None = None) -> None:
        """Frames of the feed follow: what is behind `resume` if it is still here, else a snapshot."""
        self.places[feed.topic] = _Place(feed, resume=resume)
        feed.readers.add(self)
        self.wake()

    def leave(self, topic: str) -> None:
        """Nothing more of this topic is sent."""
        place = self.places.pop(topic, None)
        if place:
            place.feed.readers.discard(self)
            place.feed.left_at = time.monotonic()

    def close(self) -> None:
        """The socket is gone."""
        for topic in list(self.places):
            self.leave(topic)

    async def pump(self) -> None:
        """Send what is new, topic by topic, each at its newest; a slow socket makes this wait, and nobody else."""
        while True:
            await self._ready.wait()
            self._ready.clear()
            for topic in list(self.places):
                place = self.places.get(topic)
                if place is not None:
                    await self._advance(place)

    async def _advance(self, place: _Place) -> None:
        feed = place.feed
        if feed.view is None:
            if feed.known.is_set() and place.seq != feed.seq:
                place.seq = feed.seq
                await self._send(f'{{"topic":{_encode(feed.topic).decode()},"error":"no-such-topic"}}')
            return
        if place.seq is None:
            frames = feed.after(place.resume) if place.resume is not None else None
            place.seq = feed.seq
            for frame in frames or [feed.snapshot()]:  # also where nothing is new: the client hears that all is well
                await self._send(frame)
            return
        behind = feed.seq - place.seq
        if behind == 0:
            return
        frames = feed.after(place.seq) if behind == 1 else None
        place.seq = feed.seq
        if frames is None:
            self.skipped += max(0, behind - 1)
        await self._send(frames[0] if frames else feed.snapshot(max(0, behind - 1)))


@dataclass
class LiveHub:
    """All feeds of one process (one event loop)."""

    every: float = nudge.TICK_SECONDS
    frame_seconds: float = FRAME_SECONDS
    feeds: dict[str, Feed] = field(default_factory=dict)
    failures: int = 0
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(THREADS, thread_name_prefix="live"))
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _following: asyncio.Task[None] | None = None

    def feed(self, topic: str) -> Feed | None:
        """The topic's feed, begun if it is the first reader's; None if there is no such kind of topic.

        Raises:
            OverflowError: the process serves as many topics as it may.
        """
        feed = self.feeds.get(topic)
        if feed is None:
            found = resolve(topic)
            if found is None:
                return None
            if len(self.feeds) >= FEEDS_MAX:
                self.feeds = {t: f for t, f in self.feeds.items() if f.readers or f.building}
            if len(self.feeds) >= FEEDS_MAX:
                raise OverflowError("too many live topics in this process")
            feed = self.feeds[topic] = Feed(topic, *found)
        if self._following is None or self._following.done():
            self._following = asyncio.create_task(self._follow(), name="live-hub")
        self._schedule(feed)
        return feed

    async def read(self, reads: Callable[..., T], *args: object) -> T:
        """What a function that reads the database answers, in one of the few threads that have a connection."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(_with_connection, reads, *args))

    async def close(self) -> None:
        """Nothing of the hub runs any more."""
        tasks = [t for t in (self._following, *self._tasks) if t]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        both = threading.Barrier(THREADS)
        for _ in range(THREADS):  # each thread closes its own connections, so all of them must be at it
            self._pool.submit(_leave, both)
        await asyncio.to_thread(self._pool.shutdown)

    async def _follow(self) -> None:
        async for wake in nudge.subscribe((), every=self.every):
            now = time.monotonic()
            for topic, feed in list(self.feeds.items()):
                if not feed.readers and now - feed.left_at > IDLE_SECONDS:
                    del self.feeds[topic]
                elif feed.readers and (wake is None or wake.topic in feed.kind.wakes):
                    feed.dirty = True
                    self._schedule(feed)

    def _schedule(self, feed: Feed) -> None:
        """The feed is built as soon as its pace allows, unless it is being built: then once more afterwards."""
        if feed.building or not feed.dirty:
            return
        feed.building = True
        task = asyncio.create_task(self._build(feed), name=f"live-{feed.topic}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _build(self, feed: Feed) -> None:
        try:
            while feed.dirty:
                await asyncio.sleep(max(0.0, feed.built_at + self.frame_seconds - time.monotonic()))
                feed.dirty, feed.built_at = False, time.monotonic()
                try:
                    feed.take(await self.read(feed.kind.build, feed.argument, datetime.now(UTC)))
                except Exception:
                    # the database is away, or a selector has a bug: the readers keep what they have, the next tick
                    # tries again, and the frames' own times show the age
                    self.failures += 1
                    _log.warning("live topic %s was not built", feed.topic, exc_info=True)
        finally:
            feed.building = False


def _leave(together: threading.Barrier) -> None:
    with contextlib.suppress(threading.BrokenBarrierError):
        together.wait(5)
    connections.close_all()


def _with_connection(reads: Callable[..., T], *args: object) -> T:
    close_old_connections()
    try:
        return reads(*args)
    finally:
        close_old_connections()


_hubs: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LiveHub]" = weakref.WeakKeyDictionary()


def hub() -> LiveHub:
    """The hub of the running event loop."""
    loop = asyncio.get_running_loop()
    found = _hubs.get(loop)
    if found is None:
        found = _hubs[loop] = LiveHub()
    return found


async def stop() -> None:
    """The running loop's hub has ended, if there was one."""
    found = _hubs.pop(asyncio.get_running_loop(), None)
    if found:
        with contextlib.suppress(asyncio.CancelledError):
            await found.close()


def readers() -> Iterable[Reader]:
    """All readers of this process, for its metrics."""
    seen = {reader for found in _hubs.values() for feed in found.feeds.values() for reader in feed.readers}
    return list(seen)
