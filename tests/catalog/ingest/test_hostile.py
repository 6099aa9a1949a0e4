"""No frame, page or heartbeat can make PostgreSQL refuse the batch it is in: its neighbours are always written."""

import uuid
from typing import Any

import msgspec
import pytest

from catalog.ingest.inventory import decode_heartbeat, decode_inventory
from catalog.ingest.jobs import Broken
from kvcore.events import Add, Drop, Load, Mark, Refused, Use, decode_frame
from tests.catalog.ingest.rig import BYTES, TOKENS, Sim, add, keys, plant_node

pack = msgspec.msgpack.encode
NASTY = ["a\0b", "\0", "\x1b[2J", "a\nb", "\u2028", "\u202e", "\ufffe", "\ue000", "", "x" * 201]
NAMES = ["node", "source", "boot", "stream"]
MOST = 2**63 - 1
NEXT = 2**64 - 1


def plain(message: Any) -> dict[str, Any]:
    return msgspec.msgpack.decode(pack(message))


@pytest.mark.parametrize("text", NASTY)
def test_names_are_refused_wherever_they_stand(text):
    sim = Sim(uuid.uuid4())
    page, report, beat = plain(sim.inventory()[0]), plain(sim.digest()), plain(sim.beat())
    for field in NAMES:
        with pytest.raises(Refused, match="malformed-frame"):
            decode_frame(pack(plain(sim.frame()) | {field: text}))
        for message in (page, report):
            with pytest.raises(Refused, match="malformed-frame"):
                decode_inventory(pack(message | {field: text}))
    with pytest.raises(Refused, match="malformed-frame"):
        decode_heartbeat(pack(beat | {"ranks": {text: 2}}))
    with pytest.raises(Refused, match="malformed-frame"):
        decode_inventory(pack(page | {"inventory": text}))
    line = [bytes(32), 1, 0, text, 1, 1, 1]
    with pytest.raises(Refused, match="malformed-frame"):
        decode_inventory(pack(report | {"lines": [line]}))
    for field in NAMES[1:]:
        with pytest.raises(Refused, match="malformed-frame"):
            decode_heartbeat(pack(beat | {"sources": [beat["sources"][0] | {field: text}]}))


@pytest.mark.parametrize("number", [NEXT, MOST + 1, -2, -(2**63)])
def test_numbers_out_of_range_are_refused(number):
    sim = Sim(uuid.uuid4())
    page, beat = plain(sim.inventory()[0]), plain(sim.beat())
    for field in ("fence_seq", "allowances"):
        with pytest.raises(Refused, match="malformed-frame"):
            decode_heartbeat(pack(beat | {field: number}))
    with pytest.raises(Refused, match="malformed-frame"):
        decode_heartbeat(pack(beat | {"sources": [beat["sources"][0] | {"seq": number}]}))
    for field in ("seq", "fence_seq", "allowances", "shard", "dp_rank", "page"):
        with pytest.raises(Refused, match="malformed-frame"):
            decode_inventory(pack(page | {field: number}))
    for ts in (float("nan"), float("inf"), -1.0):
        with pytest.raises(Refused, match="malformed-frame"):
            decode_inventory(pack(page | {"ts": ts}))


def test_a_map_as_a_key_is_no_accident():
    with pytest.raises(Refused, match="malformed-frame"):
        decode_heartbeat(b"\x82\xa7sources\x90\xa7refused\x91\x81\xa1x\x81\x81\xa1a\x01\x02")


HOSTILE: list[Any] = [
    {"k": "te\0a"},
    {"k": "add", "\0": 1},
    {"k": "drop", "tier": "\0"},
    Use(ns=bytes(32), gen=1, head=None, hit_tokens=0, tiers={}, prompt_tokens=0, saved_ms=0, measured=True,
        request="\0"),
    Use(ns=bytes(32), gen=1, head=None, hit_tokens=MOST, tiers={"hbm": MOST}, prompt_tokens=MOST, saved_ms=float(MOST),
        measured=True, request="r"),
    Use(ns=bytes(32), gen=MOST, head=keys(1), hit_tokens=2**26, tiers={"hbm": 2**26}, prompt_tokens=2**26,
        saved_ms=float(MOST), measured=True, request="r"),
    Load(queue_ms=float(MOST), running=MOST, prefill_curve=(float(MOST), float(MOST)), measured=True),
    Load(queue_ms=float(MOST), running=2**31 - 1, prefill_curve=(float(MOST), float(MOST)), measured=False),
    Mark(tier="hbm", used=MOST, capacity=MOST, high=1.0, low=0.0),
    Add(ns=bytes(32), gen=1, keys=keys(5), tier="hbm", tokens=MOST, bytes=MOST),
    Add(ns=b"\1" * 32, gen=MOST, keys=keys(5), tier="hbm", tokens=2**20, bytes=2**32, group=32_767),
    Add(ns=bytes(32), gen=1, keys=keys(5), tier="hbm", tokens=TOKENS, bytes=BYTES, step="\0"),
    Add(ns=bytes(32), gen=1, keys=keys(5), tier="hbm", tokens=TOKENS, bytes=BYTES, from_owner=MOST, step="s"),
    Drop(ns=b"\1" * 32, gen=MOST, keys=keys(5), tier="hbm", reason="ttl", group=32_767),
    [[[[[]]]]], "\0", None, NEXT,
]  # fmt: skip


@pytest.mark.parametrize("together", [True, False])
def test_hostile_items_never_cost_their_neighbours(rig, sim, ns, planted, together):
    """Items at and beyond the edge of every column, from a node that shares its batches with an honest one."""
    bad = Sim(plant_node(planted, "bad"), "bad")
    raws = [msgspec.Raw(pack(i)) for i in HOSTILE]
    for n, part in enumerate([raws] if together else [[r] for r in raws]):
        frame = msgspec.structs.replace(bad.frame(), items=part)
        honest = sim.frame(add(ns, 1000 + n))
        got = rig.batch((bad.node, decode_frame(pack(frame))), (sim.node, decode_frame(pack(honest))), step=0.3)
        assert [g.state for g in got] == ["reset" if not n else "next"] * 2
    for _ in range(45):  # columns of a minute are folded
        rig.batch((bad.node, bad.beat()), (sim.node, sim.beat()), step=2.0)
    assert rig.holdings(sim.node) == sim.sums()
    assert rig.state(sim.node) == ("exact", "")
    assert all(text.isprintable() for (text,) in rig.rows("SELECT detail FROM catalog_refusal"))


def test_hostile_heartbeats_and_unreadable_requests_are_only_counted(rig, sim, ns):
    rig.send(sim.node, sim.frame(add(ns, 1)))
    entries: list[dict[str, Any]] = [
        {"source": "\0", "dp_rank": 0, "reason": "wrong-type", "count": 2},
        {"source": {"a": [1]}, "dp_rank": [], "reason": "wrong-type", "count": 3},
        {"source": "ref", "dp_rank": NEXT, "reason": "a\0b", "count": 1},
        {"source": "ref", "dp_rank": 0, "reason": "wrong-type", "count": NEXT},
        {"source": "ref", "dp_rank": 0, "reason": ["x"], "count": 1.5, "\0": "\0"},
        {"ns": b"n" * 32, "tier": ["ssd"], "reason": "quota", "count": 1},
    ]
    beat = decode_heartbeat(pack(plain(sim.beat()) | {"refused": entries}))
    broken = [Broken(sim.node, "\0", 0, e.code, e.detail) for e in [Refused("malformed-frame", "a\0b")]]
    rig.batch((sim.node, beat), broken=broken)
    assert rig.refused() == {"wrong-type": 7, "malformed-frame": 1}  # two counts were none
    assert rig.holdings(sim.node) == sim.sums()
