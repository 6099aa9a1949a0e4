"""The listener against a real ZMQ publisher that loses, repeats, restarts and lies."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import msgspec
import pytest
import zmq

from kvcore.events import Gap, Item
from kvcore.fold import Place, apply, fold
from kvcore.keys import salt_tag
from nodeagent import listen
from nodeagent.engines.endpoints import Endpoint
from nodeagent.engines.vllm import Source
from nodeagent.keys import KeyRing, Lease
from nodeagent.listen import Listener
from nodeagent.outbox import Outbox
from tests.golden.frames import expected, messages
from tests.nodeagent.publisher import Publisher

pack = msgspec.msgpack.encode
A = b"a" * 32


class Told(Outbox):
    """An outbox that also keeps what it was given, by boot."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.log: list[tuple[str, Item]] = []

    def put(self, *items: Item) -> None:
        self.log += [(self.boot, i) for i in items]
        super().put(*items)

    def world(self) -> set[Place]:
        """The items of the present boot, folded."""
        held: dict[Place, str] = {}
        for boot, item in list(self.log):
            if boot == self.boot:
                apply(held, fold(held, item)[0])
        return set(held)

    def gaps(self) -> list[str]:
        return [i.reason for b, i in list(self.log) if isinstance(i, Gap) and b == self.boot]


def ring() -> KeyRing:
    ring = KeyRing()
    ring.grant(
        Lease(ns=c * 32, gen=1, block_tokens=4, blk=c * 32, enc=c * 32, salt_tag=tag, until=time.time() + 300)
        for c, tag in ((b"a", b""), (b"b", salt_tag("tenant-a")), (b"c", salt_tag("tenant-b")))
    )
    return ring


@contextmanager
def listening(endpoints: list[Endpoint], keys: KeyRing | None = None) -> Iterator[tuple[Listener, list[Told]]]:
    boxes = [Told("e", e.rank, boot=f"boot-{e.rank}") for e in endpoints]
    listener = Listener(Source(name="e", default=A, bytes_per_token=64), endpoints, keys or ring(), boxes)
    try:
        listener.start()
        time.sleep(0.2)  # a SUB hears nothing before it is connected; without a ring that would be a loss
        yield listener, boxes
        assert listener.failed is None
    finally:
        listener.stop()


def of(p: Publisher, **more: Any) -> Endpoint:
    return Endpoint(**{"rank": 0, "engine": p.endpoint, "replay": p.replay, **more})


def stored(*hashes: int, parent: int | None = None, rank: int | None = 0) -> bytes:
    event = {"type": "BlockStored", "block_hashes": list(hashes), "parent_block_hash": parent, "block_size": 4,
             "token_ids": [h * 4 + i for h in hashes for i in range(4)], "lora_id": None, "medium": "GPU",
             "lora_name": None}  # fmt: skip
    return pack([1.0 + hashes[0], [event], rank])


def removed(h: int, rank: int | None = 0) -> bytes:
    return pack([1.0, [["BlockRemoved", [h], "GPU"]], rank])


def eventually(check: Callable[[], object], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("old", [False, True])
def test_lost_batches_are_fetched_from_the_ring_and_counted_in_order(old: bool) -> None:
    rnd = random.Random(3)
    with Publisher(old=old) as p, listening([of(p)]) as (listener, (box,)):
        eventually(lambda: not listener.lanes[0].stream.replaying)
        alive: set[int] = set()
        for n in range(300):
            if alive and rnd.random() < 0.4:
                h = rnd.choice(sorted(alive))
                alive.discard(h)
                p.publish(removed(h), lose=rnd.random() < 0.3)
            else:
                alive.add(n)
                p.publish(stored(n), lose=rnd.random() < 0.3)
            if n % 50 == 0:
                time.sleep(0.02)
        p.publish(stored(9999))
        eventually(lambda: len(box.world()) == len(alive) + 1)
        assert box.gaps() == []
        assert listener.lanes[0].counts["replays"] > 1


def test_a_listener_that_comes_late_gets_the_whole_ring() -> None:
    with Publisher() as p:
        for n in range(50):
            p.publish(stored(n))
        with listening([of(p)]) as (listener, (box,)):
            eventually(lambda: len(box.world()) == 50)
            p.publish(stored(100))
            eventually(lambda: len(box.world()) == 51)
            assert box.gaps() == []
            assert listener.status()["ranks_heard"] == 1


def test_a_ring_that_rolled_over_is_a_gap() -> None:
    with Publisher(ring=5) as p:
        for n in range(20):
            p.publish(stored(n))
        with listening([of(p)]) as (_, (box,)):
            eventually(lambda: len(box.world()) == 5)
            assert box.gaps() == ["ring"]


def test_without_a_ring_a_jump_is_a_gap() -> None:
    with Publisher() as p, listening([of(p, replay=None)]) as (_, (box,)):
        p.publish(stored(1))
        p.publish(stored(2), lose=True)
        p.publish(stored(3))
        eventually(lambda: len(box.world()) == 2)
        assert box.gaps() == ["ring"]


def test_a_ring_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "REPLAY_SECONDS", 0.3)
    monkeypatch.setattr(listen, "ADOPT_SECONDS", 0.1)
    with Publisher(mute=True) as p, listening([of(p)]) as (listener, (box,)):
        p.publish(stored(1))
        p.publish(stored(2), lose=True)
        p.publish(stored(3))
        eventually(lambda: len(box.world()) == 2)
        assert box.gaps() == ["ring"]
        assert listener.lanes[0].counts["replay-timeout"] >= 1


def test_a_restart_of_the_engine_is_a_new_boot() -> None:
    with Publisher() as p, listening([of(p)]) as (listener, (box,)):
        for n in range(4):
            p.publish(stored(n))
        eventually(lambda: len(box.world()) == 4)
        before = box.boot
        p.restart()
        p.publish(stored(1))
        eventually(lambda: box.boot != before)
        eventually(lambda: len(box.world()) == 1)
        assert listener.lanes[0].counts["reborn"] == 1


@pytest.mark.parametrize(
    "run", ["vllm-s1-connectmode", "vllm-s2-small-lora", "vllm-s3-bytes-hash", "vllm-s7-crash-restart"]
)
def test_recorded_frames_over_the_wire(run: str) -> None:
    """The engine's own bytes, a third of them lost on the way, give what the engine held at the end."""
    rnd = random.Random(run)
    with Publisher() as p, listening([of(p)]) as (listener, (box,)):
        eventually(lambda: not listener.lanes[0].stream.replaying)
        last = -1
        for m in messages(run):
            if m.kind != "pub":
                continue
            if m.seq <= last:
                p.restart()
            last = m.seq
            p.publish(m.payload, lose=m.seq > 0 and rnd.random() < 0.33)
        p.publish(pack([9e9, [], 0]))
        lane = listener.lanes[0]
        held = len(expected(run)[-1][2])
        eventually(lambda: lane.stream.expected == p.seq and not lane.stream.replaying and len(box.world()) == held)
        eventually(lambda: not lane.gatherer.held)
        assert len(box.world()) == len(lane.engine.map) == held
        assert box.gaps() == []


def test_hostile_messages_cost_themselves_only() -> None:
    with Publisher() as p, listening([of(p, replay=None)]) as (listener, (box,)):
        p.raw(b"kv", b"short", b"x")
        p.raw(b"kv")
        p.raw(b"kv", b"\xff" * 8, b"")
        p.publish(b"\xc1")
        p.publish(pack([1.0, [{"type": "Odd"}, 5], 0]))
        p.publish(stored(7))
        eventually(lambda: len(box.world()) == 1)
        assert set(box.gaps()) == {"decode"}
        assert listener.lanes[0].counts["malformed-frame"] == 4
        told = {r["reason"]: r["count"] for r in listener.refused()}
        assert told == {"malformed-frame": 4, "unknown-item": 1, "wrong-type": 1}
        assert listener.refused() == []


def test_several_ranks_each_with_its_sequence() -> None:
    with Publisher() as p0, Publisher() as p1:
        ends = [of(p0), of(p1, rank=1)]
        with listening(ends) as (listener, boxes):
            p0.publish(stored(1, rank=0))
            p1.publish(stored(2, rank=1))
            p1.publish(stored(3, rank=1))
            eventually(lambda: [len(b.world()) for b in boxes] == [1, 2])
            p0.publish(stored(4, rank=None))  # never taken for rank 0
            p0.publish(stored(5, rank=1))
            p0.publish(stored(6, rank=0))
            eventually(lambda: len(boxes[0].world()) == 2)
            assert boxes[0].gaps() == ["decode", "decode"]
            counts = listener.lanes[0].counts
            assert (counts["missing-dp-rank"], counts["rank-mismatch"], len(listener.lanes[0].aside)) == (1, 1, 2)
            assert listener.status()["ranks_heard"] == 2


def test_a_single_rank_need_not_be_named() -> None:
    with Publisher() as p, listening([of(p)]) as (_, (box,)):
        p.publish(stored(1, rank=None))
        eventually(lambda: len(box.world()) == 1)


def test_the_engine_may_connect_to_us() -> None:
    end = Endpoint(rank=0, engine="tcp://127.0.0.1:*", bind=True)
    with listening([end]) as (listener, (box,)):
        bound = listener.lanes[0].sub.getsockopt(zmq.LAST_ENDPOINT).decode()
        with Publisher(connect=bound) as p:
            time.sleep(0.3)
            p.publish(stored(1))
            eventually(lambda: len(box.world()) == 1)


def test_what_waited_is_adopted_when_its_lease_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "ADOPT_SECONDS", 0.05)
    keys = KeyRing()
    with Publisher() as p, listening([of(p)], keys) as (listener, (box,)):
        p.publish(stored(1))
        eventually(lambda: listener.status()["lanes"][0]["quarantined"] == 1)
        keys.grant(ring().live())
        eventually(lambda: len(box.world()) == 1)


def test_the_command_says_what_is_missing(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    base = ["--dir", str(tmp_path), "--source", "e"]
    assert listen.main(base) == 1
    assert listen.main([*base, "--engine", "tcp://127.0.0.1:1", "--namespace-default", "abcd"]) == 1
    assert listen.main([*base, "--engine", "tcp://127.0.0.1:1"]) == 1
    said = capsys.readouterr().err
    assert "--engine or --sources-url" in said
    assert "64 hex digits" in said
    good = [*base, "--engine", "tcp://127.0.0.1:1"]
    for more, why in (
        (("--namespace-default", "x" * 64), "--namespace-default is not 64 hex digits"),
        (("--ranks", "0"), "1 to 1024 ranks"),
        (("--ranks", "-1"), "1 to 1024 ranks"),
        (("--bytes-per-token", "-1"), "--bytes-per-token is"),
        (("--engine", "127.0.0.1"), "--engine: '127.0.0.1' is not tcp://host:port"),
        (("--replay", "tcp://h"), "--replay: 'tcp://h' is not tcp://host:port"),
        (("--source", ""), "--source: a name"),
        (("--sources-url", "http://127.0.0.1:port"), "Invalid"),
    ):
        assert listen.main([*good, *more]) == 1
        assert why in capsys.readouterr().err
    assert "join" in said


def test_the_endpoints_may_be_asked_for() -> None:
    sources = {"0": {"endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5558", "topic": "kv-events"}}

    class Engine(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(sources).encode())

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Engine) as server:
        Thread(target=server.handle_request, daemon=True).start()
        args = listen._parser().parse_args(
            ["--dir", "d", "--source", "e", "--sources-url", f"http://127.0.0.1:{server.server_port}/kv_event_sources"]
        )
        (end,) = listen._endpoints(args)
    assert (end.engine, end.replay, end.topic) == ("tcp://127.0.0.1:5557", "tcp://127.0.0.1:5558", "kv-events")


def test_the_process_tells_the_console_what_the_engine_holds(far: Any, joined: Callable[..., Any]) -> None:
    """Engine → listener (a process) → console: set-equal, and neither tokens nor hashes are on the way."""
    ns = far.namespace()
    home = joined()
    canary = 0x00C0FFEE
    with Publisher() as p:
        command = [sys.executable, "-m", "nodeagent", "listen", "--dir", str(home.path), "--source", "vllm",
                   "--engine", p.endpoint, "--replay", p.replay, "--namespace-default", ns.hex(),
                   "--bytes-per-token", "64"]  # fmt: skip
        for n in range(5):
            p.publish(stored(n))
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert "vllm, 1 rank(s)" in process.stdout.readline()
                eventually(lambda: len(far.believed("vllm")) == 5)
                p.publish(removed(3))
                p.publish(pack([2.0, [["BlockStored", [77], None, [canary] * 4, 4, None, "GPU"]], 0]), lose=True)
                p.publish(stored(50))
                eventually(lambda: len(far.believed("vllm")) == 6)
                p.restart()
                p.publish(stored(1))
                eventually(lambda: len(far.believed("vllm")) == 1)
                assert {x[1] for x in far.believed("vllm")} == {ns}
                eventually(lambda: json.loads((home.path / "listen.json").read_bytes())["lanes"][0]["blocks"] == 1)
                for seen in far.bodies:
                    assert pack([canary] * 4)[1:] not in seen
                    assert canary.to_bytes(4, "little") not in seen
                    assert (77).to_bytes(8, "big") not in seen
            finally:
                process.terminate()
            assert process.wait(10) == 0
