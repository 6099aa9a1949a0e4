"""Inventories are collected in order and in bounds; what is no page, digest or heartbeat is refused."""

import uuid

import msgspec
import pytest

from catalog.ingest import inventory
from catalog.ingest.codes import Unavailable
from catalog.ingest.inventory import Inventories, decode_heartbeat, decode_inventory, digests_equal
from kvcore.events import Refused
from kvcore.messages import DigestReport, InventoryPage
from tests.catalog.ingest.rig import Sim, add

encode, decode = msgspec.msgpack.encode, msgspec.msgpack.decode
NS = bytes(32)


def sim(*numbers: int) -> Sim:
    made = Sim(uuid.UUID(int=1))
    made.frame(add(NS, *numbers))
    return made


def collected(book: Inventories, source: int, page: InventoryPage, now: float = 1.0):
    items = [item for item in inventory.decode_listed(page) if not isinstance(item, Refused)]
    return book.add(source, page, items, [], now)


def test_a_map_with_lines_is_a_digest():
    s = sim(1, 2)
    assert isinstance(decode_inventory(encode(s.digest())), DigestReport)
    assert isinstance(decode_inventory(encode(s.inventory()[0])), InventoryPage)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"v": 2}, "version-unsupported"),
        ({"boot": ""}, "malformed-frame"),
        ({"seq": -2}, "malformed-frame"),
        ({"page": -1}, "malformed-frame"),
        ({"inventory": "x" * 500}, "malformed-frame"),
        ({"items": 5}, "malformed-frame"),
        ({"dp_rank": -1}, "malformed-frame"),
    ],
)
def test_bad_pages(change, code):
    body = encode({**decode(encode(sim(1).inventory()[0])), **change})
    with pytest.raises(Refused, match=code):
        decode_inventory(body)


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x91" * 9000, encode([1]), encode({"lines": 1}), encode({1: 2})])
def test_what_is_no_message_at_all(body):
    with pytest.raises(Refused, match=r"malformed-frame|truncated-frame"):
        decode_inventory(body)


@pytest.mark.parametrize(
    "line", [[b"x", 1, 0, "hbm", 1, 1, 1], [NS, -1, 0, "hbm", 1, 1, 1], [NS, 1, 0, "hbm", 1, -1, 1]]
)
def test_bad_lines(line):
    body = encode({**decode(encode(sim(1).digest())), "lines": [line]})
    with pytest.raises(Refused, match="malformed-frame"):
        decode_inventory(body)


def test_heartbeats():
    s = sim(1)
    assert decode_heartbeat(encode(s.beat())).sources[0].seq == 0
    at = {"source": "s", "dp_rank": 0, "boot": "", "stream": "x", "seq": 0}
    with pytest.raises(Refused, match="malformed-frame"):
        decode_heartbeat(encode({"sources": [at]}))
    with pytest.raises(Refused, match="frame-too-large"):
        decode_heartbeat(encode({"sources": [{**at, "boot": "b"}] * 2000}))
    with pytest.raises(Refused, match="frame-too-large"):
        decode_heartbeat(encode(s.beat(ranks={f"s{i}": 1 for i in range(65)})))
    for count in (0, -1, 1025, 2**62):
        with pytest.raises(Refused, match="wrong-dp-rank"):
            decode_heartbeat(encode(s.beat(ranks={"s": count})))


def test_a_new_inventory_drops_the_old_and_idle_ones_expire():
    book, s = Inventories(), sim(1, 2, 3)
    old, new = s.inventory(pages=3), s.inventory(pages=2)
    collected(book, 1, old[0])
    assert collected(book, 1, new[0]).pages == 1
    with pytest.raises(Refused, match="inventory-order"):
        collected(book, 1, old[1])
    collected(book, 1, new[0], now=5.0)
    book.expire(5.0 + inventory.IDLE_S + 1)
    assert not book.open


def test_memory_is_bounded(monkeypatch):
    book, s = Inventories(), sim(*range(1, 11))
    monkeypatch.setattr(inventory, "KEYS_MOST", 12)
    monkeypatch.setattr(inventory, "BYTES_MOST", 14 * 32)
    monkeypatch.setattr(inventory, "ITEM_BYTES", 0)
    collected(book, 1, s.inventory(pages=2)[0])
    with pytest.raises(Unavailable, match="queue-full"):
        collected(book, 2, s.inventory()[0])
    assert 1 in book.open
    first, second = s.inventory(pages=2)
    collected(book, 1, first)
    big = msgspec.structs.replace(second, items=second.items * 3)
    with pytest.raises(Refused, match="inventory-too-large"):
        collected(book, 1, big)
    assert not book.open


def test_many_items_of_few_keys_are_bounded_too(monkeypatch):
    book, s = Inventories(), sim(1, 2)
    (page,) = s.inventory()
    room = len(page.items) * (inventory.ITEM_BYTES + 2 * 32)
    monkeypatch.setattr(inventory, "BYTES_MOST", room)
    collected(book, 1, page)
    with pytest.raises(Unavailable, match="queue-full"):
        collected(book, 2, page)
    with pytest.raises(Refused, match="inventory-too-large"):
        collected(book, 3, msgspec.structs.replace(page, items=page.items * 10))


def test_digests_are_equal_up_to_lines_of_nothing():
    s = sim(1, 2)
    believed = s.sums()
    assert digests_equal(s.digest(), believed)
    assert digests_equal(s.digest(), {**believed, (NS, 9, 0, "dram"): (0, 0, 0)})
    assert not digests_equal(s.digest(), {**believed, (NS, 9, 0, "dram"): (1, 5, 5)})
    assert not digests_equal(s.digest(), {})
