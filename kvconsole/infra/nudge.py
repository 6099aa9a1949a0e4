"""Wakes other processes: one Valkey channel that carries nothing but (topic, seq).

A wake-up is a hint, never a fact: who wakes reads PostgreSQL. Losing Valkey loses time only, so `wake` never raises
and every consumer gets a tick each second whether or not somebody woke it. Called after commit by services and by the
writer; consumed by the live hub, the routing replica and reconcilers.

Topics in use: `ledger` (seq of the shard), `nodes` (a node's state changed), `fences` (seq of the fence log).
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Collection, Iterator
from functools import partial
from typing import NamedTuple

import msgspec
import redis
import redis.asyncio
from django.conf import settings
from django.db import transaction

CHANNEL = "kvc:wake"
LEDGER, NODES, FENCES = "ledger", "nodes", "fences"
TICK_SECONDS = 1.0
_TIMEOUT_SECONDS = 0.25
_REST_SECONDS = 1.0
"""How long a process does not try to publish after Valkey failed it."""

_encode = msgspec.msgpack.Encoder().encode


class Wake(NamedTuple):
    """Something of `topic` is newer than it was; `seq` is how far, where the topic counts."""

    topic: str
    seq: int


_decoder = msgspec.msgpack.Decoder(tuple[str, int])


def _decode(blob: object) -> Wake | None:
    if not isinstance(blob, bytes):
        return None
    try:
        return Wake(*_decoder.decode(blob))
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, RecursionError):
        return None  # another tenant of the same Valkey; a hint that cannot be read is no hint


class _Publisher:
    """The process's connection for waking others; rests for a moment after a failure so that no commit waits twice."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.clients: dict[str, redis.Redis] = {}
        self.rest_until = 0.0

    def publish(self, blob: bytes) -> bool:
        if time.monotonic() < self.rest_until:
            return False
        url = settings.VALKEY_URL
        with self.lock:
            client = self.clients.get(url)
            if client is None:
                client = self.clients[url] = redis.Redis.from_url(
                    url, socket_timeout=_TIMEOUT_SECONDS, socket_connect_timeout=_TIMEOUT_SECONDS
                )
        try:
            client.publish(CHANNEL, blob)
        except (redis.RedisError, OSError):
            self.rest_until = time.monotonic() + _REST_SECONDS
            return False
        return True


_publisher = _Publisher()


def wake(topic: str, seq: int = 0) -> bool:
    """Every process that listens to `topic` has been told, or will look by itself within a second.

    Never raises and never blocks longer than a quarter of a second: it stands behind commits.

    Args:
        topic: what changed, as in the module docstring.
        seq: how far it is now, 0 where the topic does not count.

    Returns:
        Whether Valkey took it. Nobody needs to act on False.
    """
    return _publisher.publish(_encode((topic, seq)))


def on_commit(topic: str, seq: int = 0, *, using: str = "default") -> None:
    """`wake(topic, seq)` once the current transaction has committed; never if it is rolled back."""
    transaction.on_commit(partial(wake, topic, seq), using=using, robust=True)


async def subscribe(
    topics: Collection[str], *, every: float = TICK_SECONDS, url: str | None = None
) -> AsyncIterator[Wake | None]:
    """Wake-ups of `topics` (none = all), and None each `every` seconds: look for yourself.

    Survives the loss of Valkey: then only the ticks come, and it reconnects by itself.
    """
    next_tick = time.monotonic() + every
    while True:
        client = redis.asyncio.Redis.from_url(url or settings.VALKEY_URL, socket_connect_timeout=_TIMEOUT_SECONDS)
        pubsub = client.pubsub()
        try:
            await pubsub.subscribe(CHANNEL)
            while True:
                left = next_tick - time.monotonic()
                if left <= 0:
                    next_tick = time.monotonic() + every
                    yield None
                    continue
                message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=left)
                _obey()
                got = _decode(message["data"]) if message else None
                if got and (not topics or got.topic in topics):
                    yield got
        except (redis.RedisError, OSError):
            _obey()
            await asyncio.sleep(min(every, _REST_SECONDS))
            next_tick = time.monotonic() + every
            yield None
        finally:
            with contextlib.suppress(redis.RedisError, OSError):
                await pubsub.aclose()  # type: ignore[no-untyped-call]
                await client.aclose()


def _obey() -> None:
    """Ends the task if it was asked to end: redis-py loses a cancellation that comes while it connects or reads."""
    task = asyncio.current_task()
    if task and task.cancelling():
        raise asyncio.CancelledError


def listen(
    topics: Collection[str], *, stop: threading.Event, every: float = TICK_SECONDS, url: str | None = None
) -> Iterator[Wake | None]:
    """`subscribe` for a thread: ends when `stop` is set, at the latest one tick later."""
    next_tick = time.monotonic() + every
    while not stop.is_set():
        client = redis.Redis.from_url(url or settings.VALKEY_URL, socket_connect_timeout=_TIMEOUT_SECONDS)
        pubsub = client.pubsub()  # type: ignore[no-untyped-call]
        try:
            pubsub.subscribe(CHANNEL)
            while not stop.is_set():
                left = next_tick - time.monotonic()
                if left <= 0:
                    next_tick = time.monotonic() + every
                    yield None
                    continue
                message = pubsub.get_message(ignore_subscribe_messages=True, timeout=min(left, 0.25))
                got = _decode(message["data"]) if message else None
                if got and (not topics or got.topic in topics):
                    yield got
        except (redis.RedisError, OSError):
            stop.wait(min(every, _REST_SECONDS))
            next_tick = time.monotonic() + every
            yield None
        finally:
            with contextlib.suppress(redis.RedisError, OSError):
                pubsub.close()
                client.close()
