import secrets
import threading

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcore.events import Add, Adds, Clear, Drop, Gap, Mark, Use, decode_frame, decode_item
from kvcore.messages import DigestLine, DigestReport, InventoryPage
from nodeagent import outbox as module
from nodeagent.outbox import ITEM_KEYS, Outbox, shard_of, split

NS = bytes(range(32))


def add(keys=2, ns=NS, parent=None):
    blob = secrets.token_bytes(32 * keys)
    return Add(ns=ns, gen=1, keys=blob, tier="hbm", tokens=16, bytes=1024, parent=parent)


def use():
    return Use(
        ns=NS, gen=1, head=None, hit_tokens=0, tiers={}, prompt_tokens=1, saved_ms=0.0, measured=False, request="r"
    )


MARK = Mark(tier="hbm", used=0, capacity=1, high=0.9, low=0.8)


class List:
    """A source that can list."""

    gap = ""

    def __init__(self, items=()):
        self.lock, self.gap = threading.RLock(), ""
        self.items = list(items)

    def inventory(self):
        return self.items

    def digests(self):
        return [DigestLine(NS, 1, 0, "hbm", 1, 2, 3)]


@pytest.fixture
def box():
    return Outbox("s", 0, boot="b1", lister=List())


def frame(box, lane=None):
    made = box.frame(lane or box.lanes[0], node="n", fence_seq=4, allowances=2)
    return None if made is None else decode_frame(made[2])


def due(box, lane=None):
    return box.due(lane or box.lanes[0], flush_seconds=0.0)


def test_items_become_contiguous_frames_and_stay_until_acknowledged(box):
    lane = box.lanes[0]
    sent = []
    for _ in range(3):
        box.put(add(), MARK)
        assert due(box)
        got = frame(box)
        sent.append(got)
        box.sent(lane, got.stream, got.seq)
        assert not due(box)
    assert [f.seq for f in sent] == [0, 1, 2]
    assert {(f.boot, f.stream, f.fence_seq, f.allowances) for f in sent} == {("b1", box.stream, 4, 2)}
    assert box.rewind(lane, box.stream, 1)
    assert frame(box).seq == 1
    box.acknowledge(lane, box.stream, 1)
    assert frame(box).seq == 2
    assert not box.rewind(lane, box.stream, 1)
    assert not box.idle
    box.acknowledge(lane, box.stream, 2)
    assert box.idle
    assert lane.held_bytes == 0


def test_nothing_is_cut_before_its_time_or_while_a_frame_waits():
    now = [0.0]
    box = Outbox("s", boot="b", clock=lambda: now[0])
    box.put(MARK)
    assert not box.due(box.lanes[0], flush_seconds=0.05)
    now[0] = 0.06
    assert box.due(box.lanes[0], flush_seconds=0.05)
    box.put(MARK)
    now[0] = 0.2
    assert box.due(box.lanes[0], flush_seconds=0.05)
    assert box.lanes[0].seq == 0  # the second mark waits behind the frame that is not sent yet


def test_frames_are_at_most_a_mebibyte(box):
    for _ in range(40):
        box.put(add(2000))
    lane = box.lanes[0]
    assert lane.seq >= 1
    assert all(f.size <= 2**20 for f in lane.frames)


def test_long_items_are_cut_and_stay_chained():
    long = add(2 * ITEM_KEYS + 5, parent=b"p" * 32)
    parts = list(split(long))
    assert b"".join(p.keys for p in parts) == long.keys
    assert [p.parent for p in parts] == [b"p" * 32, parts[0].keys[-32:], parts[1].keys[-32:]]
    parents = secrets.token_bytes(len(long.keys))
    many = Adds(ns=NS, gen=1, keys=long.keys, parents=parents, tier="hbm", tokens=16, bytes=1)
    assert b"".join(p.parents for p in split(many)) == parents
    drop = Drop(ns=NS, gen=1, keys=long.keys, tier="hbm", reason="ttl")
    assert b"".join(p.keys for p in split(drop)) == long.keys
    assert list(split(MARK)) == [MARK]


def test_each_namespace_has_its_shard():
    box = Outbox("s", boot="b", shards=3)
    names = [secrets.token_bytes(32) for _ in range(60)]
    box.put(*[add(ns=n) for n in names], MARK, Clear(tiers=("hbm",)), Gap(since=1.0, reason="ring"))
    for lane in box.lanes:
        assert due(box, lane)
        items = [decode_item(x) for x in frame(box, lane).items]
        assert {shard_of(i.ns, 3) for i in items if isinstance(i, Add)} == {lane.shard}
        assert sum(isinstance(i, Clear | Gap) for i in items) == 2
        assert any(isinstance(i, Mark) for i in items) == (lane.shard == 0)


def test_an_inventory_contains_what_is_waiting_and_frames_go_on_behind_it(box):
    lane = box.lanes[0]
    box.lister.items = [add(3)]
    box.put(add(), use())
    due(box)
    box.put(add(), MARK)
    box.owe_inventory()
    stream, seq, pages = box.pages(lane, node="n", fence_seq=0, allowances=0)
    assert (stream, seq, len(pages)) == (box.stream, 1, 1)
    page = msgspec.msgpack.decode(pages[0], type=InventoryPage)
    assert (page.seq, page.last, page.page, len(page.items)) == (1, True, 0, 1)
    assert not lane.need_inventory
    box.acknowledge(lane, stream, seq)
    due(box)
    after = frame(box)
    assert after.seq == 2
    assert [type(decode_item(x)) for x in after.items] == [Use, Mark]  # what an inventory cannot say is still said
    box.put(add())
    assert lane.seq == 2


def test_pages_are_at_most_four_mebibytes_and_one_name(box, monkeypatch):
    monkeypatch.setattr(module, "PAGE_BYTES", 10_000)
    box.lister.items = [add(100) for _ in range(10)]
    pages = [
        msgspec.msgpack.decode(p, type=InventoryPage)
        for p in box.pages(box.lanes[0], node="n", fence_seq=0, allowances=0)[2]
    ]
    assert [p.page for p in pages] == list(range(len(pages)))
    assert [p.last for p in pages] == [False] * (len(pages) - 1) + [True]
    assert len({p.inventory for p in pages}) == 1
    assert sum(len(p.items) for p in pages) == 10


def test_a_digest_is_exact_at_the_frame_it_names(box):
    box.put(add())
    stream, seq, body = box.report(box.lanes[0], node="n", fence_seq=0, allowances=0)
    report = msgspec.msgpack.decode(body, type=DigestReport)
    assert (stream, seq, report.seq) == (box.stream, 0, 0)
    assert report.lines == [DigestLine(NS, 1, 0, "hbm", 1, 2, 3)]
    box.owe_inventory()
    assert box.report(box.lanes[0], node="n", fence_seq=0, allowances=0) is None
    assert Outbox("s", boot="b").report(box.lanes[0], node="n", fence_seq=0, allowances=0) is None


def test_overflow_of_a_source_that_can_list_owes_an_inventory():
    box = Outbox("s", boot="b", lister=List(), limit_bytes=10_000)
    lane = box.lanes[0]
    for _ in range(50):
        box.put(add(20))
        assert lane.held_bytes <= 10_000 + 1000
    assert lane.need_inventory
    assert box.overflows == 1
    assert lane.given_up == 50
    box.put(use())
    assert lane.held_bytes > 0  # uses are still gathered
    assert not box.idle


def test_overflow_of_a_source_that_cannot_list_is_a_new_stream_that_begins_with_a_gap():
    box = Outbox("s", boot="b", limit_bytes=10_000)
    stream = box.stream
    for _ in range(15):
        box.put(add(20))
        due(box)
    assert box.stream != stream
    assert box.lanes[0].seq == 0
    first = frame(box)
    gap = decode_item(first.items[0])
    assert (gap.reason, first.seq) == ("overflow", 0)
    box.owe_inventory()
    assert not box.lanes[0].need_inventory
    # answers about the old stream change nothing
    box.sent(box.lanes[0], stream, 7)
    box.acknowledge(box.lanes[0], stream, 7)
    assert box.rewind(box.lanes[0], stream, 9)
    assert frame(box).seq == 0


def test_what_is_beyond_the_outbox_is_repaired(box):
    box.put(add())
    box.lost("overflow")
    assert box.lanes[0].need_inventory
    deaf = Outbox("s", boot="b")
    deaf.put(add())
    deaf.lost("map")
    due(deaf)
    assert decode_item(frame(deaf).items[0]).reason == "map"


def test_a_new_life_forgets_the_old_one(box):
    box.put(add())
    due(box)
    stream = box.stream
    box.owe_inventory()
    box.reborn("b2")
    assert (box.boot, box.lanes[0].seq, box.lanes[0].need_inventory) == ("b2", -1, False)
    assert box.stream != stream
    assert box.positions()[0].seq == -1
    assert frame(box) is None


@given(st.lists(st.tuples(st.sampled_from(["put", "send", "ack", "rewind", "cut"]), st.integers(0, 5)), max_size=60))
@settings(max_examples=100, deadline=None)
def test_every_fact_arrives_once_in_order(steps):
    """A far side that takes only the next frame gets everything, whatever the sender tries."""
    box, lane, expect = Outbox("s", boot="b"), None, 0
    lane = box.lanes[0]
    told, got = [], []

    def deliver():
        nonlocal expect
        made = box.frame(lane, node="n", fence_seq=0, allowances=0)
        if made is None:
            return
        f = decode_frame(made[2])
        if f.seq == expect:
            got.extend(decode_item(x).keys for x in f.items)
            expect += 1
        box.sent(lane, f.stream, f.seq)

    for what, n in steps:
        if what == "put":
            items = [add() for _ in range(n)]
            told.extend(i.keys for i in items)
            box.put(*items)
        elif what == "cut":
            box.due(lane, flush_seconds=0.0)
        elif what == "send":
            deliver()
        elif what == "ack":
            box.acknowledge(lane, box.stream, expect - 1)
        else:
            box.rewind(lane, box.stream, max(0, expect - n))
    box.rewind(lane, box.stream, expect)
    while box.due(lane, flush_seconds=0.0):
        deliver()
    assert got == told
