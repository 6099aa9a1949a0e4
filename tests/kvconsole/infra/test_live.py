"""One shared view per topic: snapshot, contiguous deltas, slow readers, and what a reader who folds ends up with."""

import asyncio
import json
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvconsole.infra import live, nudge
from kvconsole.infra.live import Feed, LiveHub, Reader, TopicKind, difference, fold

names, ids = st.sampled_from("abc"), st.sampled_from("xyz")
entities = st.one_of(st.integers(0, 3), st.dictionaries(st.sampled_from("pq"), st.integers(0, 3)))
views = st.dictionaries(names, st.dictionaries(ids, entities))


def whole(view):
    """Without empty collections: they say nothing."""
    return {name: of for name, of in view.items() if of}


def kind(build=lambda argument, now: {}, **kw):
    return TopicKind("t", build, frozenset({"ledger"}), frozenset({"viewer"}), **kw)


@given(st.lists(views, min_size=1, max_size=8))
def test_folding_the_deltas_over_the_snapshot_is_the_fresh_snapshot(history):
    feed = Feed("t", kind(), "")
    feed.take(history[0])
    snapshot = json.loads(feed.snapshot())
    view, seq = snapshot["snapshot"], snapshot["seq"]
    for after in history[1:]:
        feed.take(after)
    for text in feed.after(seq):
        frame = json.loads(text)
        assert frame["seq"] == seq + 1
        view, seq = fold(view, frame["delta"]), frame["seq"]
    assert seq == feed.seq
    assert whole(view) == whole(history[-1]) == whole(json.loads(feed.snapshot())["snapshot"])


@given(views, views)
def test_a_delta_names_only_what_changed(before, after):
    delta = difference(before, after)
    for name, of in delta.items():
        for key, entity in of.items():
            assert before.get(name, {}).get(key) != entity
            assert after.get(name, {}).get(key) == entity
    assert difference(after, after) == {}


def test_numbers_of_another_life_are_never_taken_for_this_ones():
    feed = Feed("t", kind(), "")
    feed.take({"a": {"x": 1}})
    assert feed.after(feed.seq) == []
    for seq in (0, 812, feed.seq + 1, feed.seq - live.RING - 1):
        assert feed.after(seq) is None


def test_a_frame_is_encoded_once_whoever_reads_it():
    feed = Feed("t", kind(), "")
    feed.take({"a": {"x": 1}})
    feed.take({"a": {"x": 2}})
    assert feed.after(feed.seq - 1)[0] is feed.after(feed.seq - 1)[0]
    body = feed.snapshot()
    assert feed._body is not None
    assert feed.snapshot() == body


class Socket:
    """A far side that can be slow."""

    def __init__(self):
        self.frames, self.open = [], asyncio.Event()
        self.open.set()
        self.reader = Reader(self.send)
        self.task = asyncio.create_task(self.reader.pump())

    async def send(self, text):
        await self.open.wait()
        self.frames.append(json.loads(text))

    async def settle(self):
        for _ in range(20):
            await asyncio.sleep(0)

    async def close(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.reader.close()


def test_a_slow_reader_skips_to_a_snapshot_that_counts_and_costs_the_others_nothing():
    async def run():
        feed = Feed("t", kind(), "")
        feed.take({"a": {"x": 0}})
        slow, quick = Socket(), Socket()
        for socket in (slow, quick):
            socket.reader.join(feed)
            await socket.settle()
        slow.open.clear()
        for i in range(1, 8):
            feed.take({"a": {"x": i}})
            await quick.settle()
        slow.open.set()
        await slow.settle()
        assert [f["seq"] - feed.seq for f in quick.frames] == list(range(-7, 1))
        assert [list(f) for f in slow.frames] == [
            ["topic", "seq", "snapshot"], ["topic", "seq", "delta"], ["topic", "seq", "skipped", "snapshot"],
        ]  # fmt: skip
        last = slow.frames[-1]
        assert (last["seq"], last["skipped"], last["snapshot"]) == (feed.seq, 5, {"a": {"x": 7}})
        assert slow.reader.skipped == 5
        for socket in (slow, quick):
            await socket.close()
        assert not feed.readers

    asyncio.run(run())


def test_resume_sends_what_was_missed_or_a_snapshot():
    async def run():
        feed = Feed("t", kind(), "")
        for i in range(5):
            feed.take({"a": {"x": i}})
        near, far = Socket(), Socket()
        near.reader.join(feed, feed.seq - 2)
        far.reader.join(feed, 812)
        for socket in (near, far):
            await socket.settle()
        assert [(f["seq"] - feed.seq, list(f)[-1]) for f in near.frames] == [(-1, "delta"), (0, "delta")]
        assert [list(f)[-1] for f in far.frames] == ["snapshot"]
        feed.take({"a": {"x": 9}})
        for socket in (near, far):
            await socket.settle()
            assert socket.frames[-1]["delta"] == {"a": {"x": 9}}
            await socket.close()

    asyncio.run(run())


def test_a_thing_that_is_gone_is_said_once():
    async def run():
        feed, socket = Feed("t", kind(), ""), Socket()
        socket.reader.join(feed)
        await socket.settle()
        assert socket.frames == []
        feed.take(None)
        feed.take(None)
        await socket.settle()
        assert socket.frames == [{"topic": "t", "error": "no-such-topic"}]
        feed.take({"a": {"x": 1}})
        await socket.settle()
        assert socket.frames[-1]["snapshot"] == {"a": {"x": 1}}
        await socket.close()

    asyncio.run(run())


def test_topics_are_known_by_name_and_argument():
    live.register(TopicKind("alpha", lambda a, n: {}, frozenset(), frozenset()))
    live.register(TopicKind("beta", lambda a, n: {}, frozenset(), frozenset(), takes=True))
    assert live.resolve("alpha")
    assert live.resolve("beta:x")[1] == "x"
    for wrong in ("gamma", "alpha:x", "beta", "beta:", "", ":", "beta:" + "x" * 500):
        assert live.resolve(wrong) is None


# --- the hub ------------------------------------------------------------------


async def until(check, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


@pytest.fixture
def world(valkey, monkeypatch):
    """A topic `world` whose view is a dictionary of this test, and counts how often it was read."""
    monkeypatch.setattr(nudge, "_publisher", nudge._Publisher())
    state = {"view": {"a": {"x": 0}}, "reads": 0, "threads": set(), "error": None}

    def build(argument, now):
        state["reads"] += 1
        state["threads"].add(threading.get_ident())
        if state["error"]:
            raise state["error"]
        return {name: dict(of) for name, of in state["view"].items()}

    live.register(TopicKind("world", build, frozenset({"ledger"}), frozenset({"viewer"})))
    return state


def run_hub(test, **kw):
    async def run():
        hub = LiveHub(**kw)
        try:
            await asyncio.wait_for(test(hub), 40)
        finally:
            await hub.close()

    asyncio.run(run())


def test_one_read_serves_all_sockets_and_a_wake_is_seen_within_a_second(world):
    async def test(hub):
        sockets = [Socket() for _ in range(50)]
        for socket in sockets:
            socket.reader.join(hub.feed("world"))
        await until(lambda: all(s.frames for s in sockets))
        assert world["reads"] == 1
        await asyncio.sleep(0.6)
        world["view"]["a"]["x"] = 1
        started = time.monotonic()
        await asyncio.to_thread(nudge.wake, "ledger", 1)
        await until(lambda: all(len(s.frames) == 2 for s in sockets))
        assert time.monotonic() - started < 1.0
        assert world["reads"] == 2
        assert all(s.frames[1]["delta"] == {"a": {"x": 1}} for s in sockets)
        for socket in sockets:
            await socket.close()

    run_hub(test, every=30.0)


def test_a_storm_of_wakes_is_two_frames_a_second_and_the_newest_wins(world):
    async def test(hub):
        socket = Socket()
        socket.reader.join(hub.feed("world"))
        await until(lambda: socket.frames)
        started = time.monotonic()
        while (elapsed := time.monotonic() - started) < 2.2:
            world["view"]["a"]["x"] = elapsed
            await asyncio.to_thread(nudge.wake, "ledger", 1)
            await asyncio.sleep(0.01)
        final = world["view"]["a"]["x"] = 99
        await asyncio.to_thread(nudge.wake, "ledger", 1)
        await until(lambda: socket.frames[-1].get("delta") == {"a": {"x": final}})
        assert 3 <= len(socket.frames) <= 8
        seqs = [f["seq"] for f in socket.frames]
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
        await socket.close()

    run_hub(test)


def test_without_a_wake_the_change_is_seen_at_the_next_tick(world):
    async def test(hub):
        socket = Socket()
        socket.reader.join(hub.feed("world"))
        await until(lambda: socket.frames)
        world["view"]["a"]["x"] = 5
        await until(lambda: len(socket.frames) == 2, 3)
        await socket.close()

    run_hub(test)


def test_a_read_that_fails_is_tried_again_and_the_readers_keep_what_they_have(world):
    async def test(hub):
        socket = Socket()
        socket.reader.join(hub.feed("world"))
        await until(lambda: socket.frames)
        world["error"] = OSError("away")
        await until(lambda: hub.failures >= 2)
        assert len(socket.frames) == 1
        world["error"], world["view"] = None, {"a": {"y": 1}}
        await until(lambda: len(socket.frames) == 2)
        assert socket.frames[1]["delta"] == {"a": {"x": None, "y": 1}}
        await socket.close()

    run_hub(test, every=0.2, frame_seconds=0.05)


def test_a_topic_nobody_reads_is_not_read_and_forgotten(world, monkeypatch):
    monkeypatch.setattr(live, "IDLE_SECONDS", 0.3)

    async def test(hub):
        socket = Socket()
        socket.reader.join(hub.feed("world"))
        await until(lambda: socket.frames)
        await socket.close()
        reads = world["reads"]
        await until(lambda: not hub.feeds)
        assert world["reads"] <= reads + 1
        assert hub.feed("nothing") is None

    run_hub(test, every=0.1)


def test_threads_are_few_whatever_the_topics(world):
    for i in range(6):
        live.register(TopicKind(f"w{i}", live._kinds["world"].build, frozenset({"ledger"}), frozenset()))

    async def test(hub):
        socket = Socket()
        for i in range(6):
            socket.reader.join(hub.feed(f"w{i}"))
        await until(lambda: len(socket.frames) >= 6)
        assert len(world["threads"]) <= live.THREADS
        await socket.close()

    run_hub(test)


def test_the_loop_has_one_hub():
    async def run():
        first = live.hub()
        assert live.hub() is first
        await live.stop()
        assert live.hub() is not first
        await live.stop()
        await live.stop()

    asyncio.run(run())
