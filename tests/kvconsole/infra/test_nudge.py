"""Wake-ups over a real Valkey; without one only time is lost."""

import asyncio
import socket
import threading
import time

import pytest
import redis
from django.db import transaction

from kvconsole.infra import nudge


def closed_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def alone(monkeypatch, settings):
    """A publisher of this test's own, so that one that rests does not silence others."""
    monkeypatch.setattr(nudge, "_publisher", nudge._Publisher())
    return settings


async def first(topics, count, *, every=5.0, then=None, url=None):
    got = []
    async for wake in nudge.subscribe(topics, every=every, url=url):
        got.append(wake)
        if then:
            then()
        if len(got) == count:
            return got


async def heard(topics, *wakes):
    """What a subscriber to `topics` hears of `wakes`, sent once it listens."""

    async def send():
        await asyncio.sleep(0.3)
        for wake in wakes:
            await asyncio.to_thread(nudge.wake, *wake)

    task = asyncio.create_task(send())
    got = await asyncio.wait_for(first(topics, sum(w[0] in topics or not topics for w in wakes)), 10)
    await task
    return got


def test_only_the_topics_that_were_asked_for_are_heard(valkey, alone):
    got = asyncio.run(heard(("ledger",), ("fences", 3), ("ledger", 7), ("nodes", 0), ("ledger", 8)))
    assert got == [nudge.Wake("ledger", 7), nudge.Wake("ledger", 8)]
    assert len(asyncio.run(heard((), ("a", 1), ("b", 2)))) == 2


def test_the_channel_carries_topic_and_seq_and_nothing_else(valkey, alone):
    with redis.Redis.from_url(valkey.url) as client, client.pubsub() as listener:
        listener.subscribe(nudge.CHANNEL)
        listener.get_message(timeout=2)
        assert nudge.wake("ledger", 5)
        message = listener.get_message(timeout=2)
        assert message["data"] == b"\x92\xa6ledger\x05"


def test_what_cannot_be_read_is_passed_over(valkey, alone):
    async def run():
        def noise():
            time.sleep(0.3)
            with redis.Redis.from_url(valkey.url) as client:
                for blob in (b"", b"\xff\xff", b"\x93\x01\x02\x03", "text"):
                    client.publish(nudge.CHANNEL, blob)
            nudge.wake("ledger", 1)

        thread = threading.Thread(target=noise)
        thread.start()
        got = await asyncio.wait_for(first((), 1), 10)
        thread.join()
        return got

    assert asyncio.run(run()) == [nudge.Wake("ledger", 1)]


def test_a_tick_comes_each_interval_whether_or_not_somebody_wakes(valkey, alone):
    started = time.monotonic()
    assert asyncio.run(first((), 3, every=0.2)) == [None] * 3
    assert 0.5 < time.monotonic() - started < 5


def test_without_valkey_waking_returns_and_ticks_go_on(alone):
    alone.VALKEY_URL = f"redis://127.0.0.1:{closed_port()}/0"
    started = time.monotonic()
    assert not nudge.wake("ledger", 1)
    assert not any(nudge.wake("ledger", i) for i in range(1000))
    assert time.monotonic() - started < 2
    assert asyncio.run(first((), 2, every=0.2)) == [None, None]
    stop, got = threading.Event(), []
    for wake in nudge.listen((), stop=stop, every=0.2):
        got.append(wake)
        if len(got) == 2:
            stop.set()
    assert got == [None, None]


def test_a_thread_hears_too_and_ends_when_told(valkey, alone):
    stop, got, listening = threading.Event(), [], threading.Event()

    def run():
        for wake in nudge.listen(("ledger",), stop=stop, every=0.2):
            listening.set()
            if wake:
                got.append(wake)

    thread = threading.Thread(target=run)
    thread.start()
    assert listening.wait(5)
    nudge.wake("fences", 1)
    nudge.wake("ledger", 2)
    deadline = time.monotonic() + 5
    while not got and time.monotonic() < deadline:
        time.sleep(0.02)
    stop.set()
    thread.join(5)
    assert not thread.is_alive()
    assert got == [nudge.Wake("ledger", 2)]


def test_it_reconnects_after_valkey_was_killed(valkey, alone):
    async def run():
        got, killed, woken = [], False, None
        async for wake in nudge.subscribe(("ledger",), every=0.2):
            if wake:
                return got
            got.append(wake)
            if len(got) == 2 and not killed:
                killed = True
                await asyncio.to_thread(valkey.kill)
                await asyncio.to_thread(valkey.start)
            if killed and len(got) > 3:
                woken = woken or asyncio.create_task(asyncio.to_thread(nudge.wake, "ledger", 1))
                if woken.done():
                    woken = None
        return None

    assert asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.django_db(transaction=True)
def test_it_wakes_after_commit_and_never_after_a_rollback(valkey, alone):
    with redis.Redis.from_url(valkey.url) as client, client.pubsub() as listener:
        listener.subscribe(nudge.CHANNEL)
        listener.get_message(timeout=2)
        with transaction.atomic():
            nudge.on_commit("nodes", 1)
            transaction.set_rollback(True)
        with transaction.atomic():
            nudge.on_commit("nodes", 2)
            assert listener.get_message(timeout=0.3) is None
        assert listener.get_message(timeout=2)["data"] == b"\x92\xa5nodes\x02"


def test_a_listener_ends_when_it_is_told_to_at_whatever_moment(valkey, alone):
    async def follow():
        async for _ in nudge.subscribe((), every=0.05):
            pass

    async def test():
        for i in range(150):
            task = asyncio.create_task(follow())
            await asyncio.sleep(i * 0.0001)
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=5)
            assert done, f"cancelled after {i / 10} ms, it still runs"
            assert task.cancelled()

    asyncio.run(test())
