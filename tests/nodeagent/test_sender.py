"""The sender over real HTTP, against a far side that answers what each case needs."""

import asyncio
import secrets
import threading
import time
from contextlib import asynccontextmanager

import pytest

from kvcore.events import Add, Drop, Mark
from kvcore.keys import digest_add
from kvcore.messages import DigestLine
from nodeagent.agent import client
from nodeagent.config import Ingest
from nodeagent.keys import KeyRing
from nodeagent.outbox import Outbox
from nodeagent.sender import BEAT_SECONDS, Sender, _base
from tests.nodeagent.farside import FarSide

NS = bytes(range(32))


class Source:
    """A source that can list, with a set of blocks of its own."""

    gap = ""

    def __init__(self, rank: int = 0) -> None:
        self.lock = threading.RLock()
        self.keys: list[bytes] = []
        self.box = Outbox("s", rank, boot="b1", lister=self)

    def add(self, count: int = 2) -> None:
        with self.lock:
            keys = [secrets.token_bytes(32) for _ in range(count)]
            self.keys += keys
            self.box.put(self._item(keys))

    def drop(self) -> None:
        with self.lock:
            self.box.put(Drop(ns=NS, gen=1, keys=self.keys.pop(), tier="hbm", reason="ttl"))

    def _item(self, keys: list[bytes]) -> Add:
        return Add(ns=NS, gen=1, keys=b"".join(keys), tier="hbm", tokens=16, bytes=1024)

    def inventory(self):
        return [self._item([k]) for k in self.keys]

    def digests(self):
        total = (0, 0, 0)
        for k in self.keys:
            total = digest_add(total, k)
        return [DigestLine(NS, 1, 0, "hbm", *total)] if self.keys else []

    @property
    def held(self):
        return {("hbm", NS, 1, k) for k in self.keys}


@asynccontextmanager
async def sending(far, *boxes, urls=(), **more):
    ring = KeyRing()
    http = client("t", timeout_seconds=2)
    ingest = [Ingest(0, u) for u in urls or (far.url + "/api/v1/ingest/events",)]
    sender = Sender(far.node, boxes, ring, client=http, ingest=ingest, **{"digest_seconds": 60} | more)
    task = asyncio.create_task(sender.run())
    try:
        yield sender
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await http.aclose()


async def until(check, seconds=10.0):
    for _ in range(int(seconds / 0.02)):
        if check():
            return
        await asyncio.sleep(0.02)
    assert check()


def run(coroutine):
    asyncio.run(coroutine)


@pytest.fixture
def source():
    return Source()


def test_frames_arrive_and_quiet_sources_beat(far, source):
    async def go():
        async with sending(far, source.box) as sender:
            source.add()
            await until(lambda: source.box.idle)
            source.drop()
            await until(lambda: source.box.idle)
            assert far.believed("s") == source.held
            await until(lambda: sender.counts["heartbeat"] >= 2)
            (place,) = far.beats[-1].sources
            assert (place.source, place.seq, place.stream) == ("s", 1, source.box.stream)

    run(go())


def test_nothing_is_heard_of_later_than_a_heartbeat_after_its_last_frame(far, source):
    # fences come with answers: a frame between two heartbeats must not cost the second one
    async def go():
        async with sending(far, source.box) as sender:
            await until(lambda: sender.counts["heartbeat"] >= 1)
            source.add()
            await until(lambda: source.box.idle)
            began, beats = time.monotonic(), sender.counts["heartbeat"]
            await until(lambda: sender.counts["heartbeat"] > beats)
            assert time.monotonic() - began < BEAT_SECONDS * 1.5

    run(go())


def test_several_ranks_are_told_of_before_anything_of_them_and_again_to_a_writer_that_asks(far):
    first, second = Source(0), Source(1)

    async def go():
        real, heard = far.frame, []

        def frame(body):
            heard.append(len(far.beats))
            return real(body)

        far.frame = frame
        second.add()
        async with sending(far, first.box, second.box) as sender:
            await until(lambda: second.box.idle)
            assert heard[0] >= 1
            assert far.beats[0].ranks == {"s": 2}
            far.status, far.problem = 422, "wrong-dp-rank"
            second.add()
            await until(lambda: sender.counts["refused_wrong-dp-rank"] == 1)
            await asyncio.sleep(0.3)
            assert sender.counts["refused_wrong-dp-rank"] == 1, "it was sent again before the ranks were"
            far.status = 200
            await until(lambda: second.box.idle)
            assert far.believed("s", 1) == second.held
            assert not far.counts["inventories"], "nothing was given up for it"

    run(go())


def test_gaps_are_rewound(far, source):
    async def go():
        async with sending(far, source.box) as sender:
            far.drop = far.reorder = far.double = 0.2
            for _ in range(60):
                source.add()
                await asyncio.sleep(0.03)
            far.drop = far.reorder = 0.0
            await until(lambda: source.box.idle, 20)
            assert far.believed("s") == source.held
            assert sender.counts["away"]

    run(go())


def test_a_gap_beyond_the_outbox_brings_an_inventory(far, source):
    async def go():
        async with sending(far, source.box) as sender:
            source.add()
            await until(lambda: source.box.idle)
            far.sources.clear()  # the console has lost all it knew
            source.add()
            await until(lambda: source.box.idle and far.counts["inventories"] >= 1)
            assert far.believed("s") == source.held
            assert sender.counts["beyond_outbox"] == 1
            source.add()
            await until(lambda: source.box.idle)
            assert far.believed("s") == source.held

    run(go())


def test_a_source_that_cannot_list_starts_a_new_stream(far):
    async def go():
        box = Outbox("deaf", 0, boot="b1")
        async with sending(far, box):
            box.put(Mark(tier="hbm", used=0, capacity=1, high=0.9, low=0.8))
            await until(lambda: box.idle)
            stream = box.stream
            far.sources.clear()
            box.put(Mark(tier="hbm", used=1, capacity=1, high=0.9, low=0.8))
            await until(lambda: box.stream != stream)

    run(go())


def test_digests_agree_or_bring_an_inventory(far, source):
    async def go():
        async with sending(far, source.box, digest_seconds=0.2):
            source.add()
            await until(lambda: far.counts["digest_equal"] >= 1)
            with far.lock:
                far.sources["s", 0].places.clear()
            await until(lambda: far.counts["digest_differs"] >= 1)
            await until(lambda: far.believed("s") == source.held)

    run(go())


def test_digests_are_exact_while_frames_flow(far, source):
    async def go():
        async with sending(far, source.box, digest_seconds=0.1):
            for _ in range(60):
                source.add()
                if len(source.keys) % 3:
                    source.drop()
                await asyncio.sleep(0.02)
            await until(lambda: far.counts["digest_equal"] >= 3)
            assert far.counts["digest_differs"] == 0

    run(go())


def test_the_next_url_is_tried(far, source):
    async def go():
        with FarSide() as other:
            other.status = 503
            async with sending(far, source.box, urls=(other.url, "http://127.0.0.1:1", far.url)):
                source.add()
                await until(lambda: source.box.idle)
                assert far.believed("s") == source.held

    run(go())


def test_a_long_absence_overflows_into_an_inventory(far, source):
    async def go():
        source.box.limit_bytes = 5_000
        far.status = 503
        async with sending(far, source.box) as sender:
            for _ in range(200):
                source.add()
            await until(lambda: sender.counts["away"] >= 2)
            assert source.box.overflows
            assert not source.box.idle
            far.status = 200
            await until(lambda: source.box.idle)
            assert far.believed("s") == source.held

    run(go())


def test_an_inventory_survives_an_absence_in_its_middle(far, source, monkeypatch):
    monkeypatch.setattr("nodeagent.outbox.PAGE_BYTES", 2_000)

    async def go():
        for _ in range(100):
            source.add(1)
        source.box.owe_inventory()
        async with sending(far, source.box) as sender:
            await until(lambda: sender.counts["inventory_page"] >= 1)
            far.status = 503
            source.add()
            await asyncio.sleep(0.2)
            far.status = 200
            await until(lambda: source.box.idle)
            assert far.believed("s") == source.held

    run(go())


def test_a_stale_inventory_is_made_anew(far, source):
    async def go():
        source.add()
        async with sending(far, source.box) as sender:
            await until(lambda: source.box.idle)
            real, far.listing = far.listing, lambda body: far.say("stale", fence_seq=0)
            source.box.owe_inventory()
            await until(lambda: sender.counts["inventory_stale"] >= 2)
            far.listing = real
            await until(lambda: source.box.idle)
            assert far.believed("s") == source.held

    run(go())


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "malformed-frame"), (400, "truncated-frame"), (413, "frame-too-large"), (403, "foreign-token")],
)
def test_what_the_console_will_not_take_is_not_sent_for_ever(far, source, status, code):
    async def go():
        far.status, far.problem = status, code
        async with sending(far, source.box) as sender:
            source.add()
            await until(lambda: sender.counts[f"refused_{code}"] >= 2)
            assert sender.counts[f"refused_{code}"] < 20
            far.status = 200
            await until(lambda: source.box.idle, 20)
            assert far.believed("s") == source.held

    run(go())


def test_a_fenced_boot_falls_silent(far, source):
    async def go():
        far.status, far.problem = 409, "fenced-boot"
        async with sending(far, source.box) as sender:
            source.add()
            await until(lambda: sender.halted == {("s", 0): "fenced-boot"})
            far.status = 200
            await asyncio.sleep(0.3)
            assert far.believed("s") == set()

    run(go())


def test_a_fenced_rank_leaves_the_other_ranks_speaking(far):
    """Ranks share the source's name; only the rank whose boot was replaced stops."""

    async def go():
        ranks = [Source(rank) for rank in (0, 1)]
        async with sending(far, *(r.box for r in ranks)) as sender:
            sender.halted["s", 1] = "fenced-boot"
            for rank in ranks:
                rank.add()
            await until(lambda: ranks[0].box.idle)
            await asyncio.sleep(0.3)
            assert not ranks[1].box.idle
            assert ranks[1].box.lanes[0].acked == -1

    run(go())


def test_answers_that_are_none(far, source):
    async def go():
        far.status, far.problem = 404, ""
        async with sending(far, source.box) as sender:
            source.add()
            await until(lambda: sender.counts["refused_http-404"] >= 1)
            real, far.answer = far.answer, nonsense
            far.status = 200
            await until(lambda: sender.counts["away"] >= 1, 20)
            far.answer = real
            await until(lambda: source.box.idle, 20)

    async def nonsense(path, body, headers):
        return 200, b"\xc1", b"application/msgpack"

    run(go())


def test_fences_and_allowances_ride_on_every_answer(far, source):
    async def go():
        got = []
        async with sending(far, source.box, on_allowances=got.append) as sender:
            fenced = []
            sender.ring.on_fence = lambda: fenced.append(sender.ring.fenced(NS, 1))
            far.fence(NS, 2)
            far.allowances = {"version": 3, "quotas": {}}
            source.add()
            await until(lambda: sender.ring.fence_seq == 1 and sender.allowances == 3)
            assert fenced == [True]  # applied before it was acknowledged
            assert got == [{"version": 3, "quotas": {}}]
            far.allowances = {"version": 2}
            await until(lambda: far.beats and far.beats[-1].fence_seq == 1)
            assert len(got) == 1
            assert far.beats[-1].allowances == 3

    run(go())


def test_a_heartbeat_may_ask_for_everything(far, source):
    async def go():
        real = far.say
        asks = lambda state: {"inventory": state == "ok" and not far.counts["inventories"]}  # noqa: E731
        far.say = lambda state, **more: real(state, **(asks(state) | more))
        source.add()
        async with sending(far, source.box):
            await until(lambda: far.counts["inventories"] >= 1)
            await until(lambda: source.box.idle)
            assert far.believed("s") == source.held

    run(go())


def test_sources_without_a_boot_say_nothing(far):
    async def go():
        box = Outbox("remote", 0, boot="")
        async with sending(far, box):
            box.put(Mark(tier="remote", used=0, capacity=1, high=0.9, low=0.8))
            await asyncio.sleep(0.7)
            assert (far.beats, far.counts["events"]) == ([], 0)

    run(go())


def test_base_of_a_url():
    assert _base("http://h:1/api/v1/ingest/events") == _base("http://h:1/") == _base("http://h:1") == "http://h:1"
