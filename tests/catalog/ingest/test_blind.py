"""A source whose agent cannot know all that its engine holds: listed and repaired, and never called exact."""

from typing import Any

import msgspec
import pytest

from kvcore.events import Clear, Gap, Refused
from kvcore.messages import DigestReport, Heartbeat, InventoryPage
from tests.catalog.ingest.rig import Sim, add


def blind(message: Any, reason: str = "ring") -> Any:
    assert isinstance(message, InventoryPage | DigestReport)
    return msgspec.structs.replace(message, gap=reason)


def test_an_inventory_repairs_and_leaves_the_engines_gap_open(rig, sim, ns):
    answer = rig.send(sim.node, sim.frame(add(ns, 1), Gap(since=1.0, reason="ring")))
    assert answer.inventory
    assert rig.send(sim.node, blind(sim.inventory()[0])).state == "applied"
    assert rig.state(sim.node) == ("recovering", "engine-ring")
    assert rig.holdings(sim.node) == sim.sums()
    for _ in range(5):  # it is not asked again for what it cannot give
        rig.tick(60.0)
        rig.now += 60.0
        assert not rig.send(sim.node, sim.beat()).inventory
    assert rig.send(sim.node, blind(sim.digest())).state == "equal"
    assert rig.state(sim.node) == ("recovering", "engine-ring")


def test_a_gap_item_that_never_came_is_told_by_the_listing(rig, sim, ns):
    rig.send(sim.node, sim.frame(add(ns, 1)))
    rig.send(sim.node, blind(sim.digest(), "map"))
    assert rig.state(sim.node) == ("recovering", "engine-map")
    sim.frame(add(ns, 2), Gap(since=1.0, reason="overflow"))  # given up with the outbox
    rig.send(sim.node, blind(sim.inventory()[0], "overflow"))
    assert rig.state(sim.node) == ("recovering", "engine-overflow")
    assert rig.holdings(sim.node) == sim.sums()


def test_frames_that_are_missing_are_still_repaired(rig, sim, ns):
    rig.send(sim.node, sim.frame(add(ns, 1)))
    rig.send(sim.node, blind(sim.digest()))
    sim.frame(add(ns, 2))  # lost
    rig.send(sim.node, sim.frame(add(ns, 3)))
    assert rig.state(sim.node) == ("recovering", "engine-ring")
    assert rig.send(sim.node, sim.beat(), step=1.5).inventory
    rig.send(sim.node, blind(sim.inventory()[0]))
    assert rig.holdings(sim.node) == sim.sums()
    assert rig.state(sim.node) == ("recovering", "engine-ring")


def test_the_next_writer_does_not_forget_it(rig, sim, ns):
    """Frames were missing first: the reason that the row keeps must be the one that outlives them."""
    rig.send(sim.node, sim.frame(add(ns, 1)))
    late = [sim.frame(Gap(since=1.0, reason="ring")), sim.frame(add(ns, 2)), sim.frame(add(ns, 3))]
    rig.send(sim.node, late[2])
    assert rig.state(sim.node) == ("recovering", "gap")
    rig.send(sim.node, late[0])
    assert rig.state(sim.node) == ("recovering", "engine-ring")
    rig.open()
    rig.send(sim.node, late[1])
    rig.send(sim.node, late[2])
    rig.tick(5.0)
    rig.send(sim.node, sim.beat())
    assert rig.state(sim.node)[0] == "recovering"
    assert rig.state(sim.node)[1] == "engine-ring"


@pytest.mark.parametrize("way", ["boot", "clear", "list"])
def test_what_ends_it(rig, sim, ns, way):
    rig.send(sim.node, sim.frame(add(ns, 1), Gap(since=1.0, reason="ring")))
    rig.send(sim.node, blind(sim.inventory()[0]))
    if way == "boot":
        sim.restart()
        assert rig.send(sim.node, sim.frame(add(ns, 3))).state == "reset"
    elif way == "clear":
        rig.send(sim.node, sim.frame(Clear(tiers=("hbm",))))
    else:
        rig.send(sim.node, sim.inventory()[0])
    assert rig.state(sim.node) == ("exact", "")
    rig.send(sim.node, sim.frame(Gap(since=2.0, reason="ring")))
    assert rig.state(sim.node) == ("recovering", "engine-ring")


def test_a_reason_that_is_none_is_malformed(rig, sim, ns):
    from catalog.ingest.inventory import decode_inventory

    with pytest.raises(Refused, match="malformed-frame"):
        decode_inventory(msgspec.msgpack.encode(blind(sim.digest(), "because")))


def test_what_the_agent_refused_is_counted_and_casts_no_doubt(rig, sim, ns):
    two = Sim(sim.node, name="e", dp_rank=1)
    rig.send(sim.node, sim.beat(ranks={"e": 2}))
    rig.send(sim.node, sim.frame(add(ns, 1)))
    rig.send(sim.node, two.frame(add(ns, 1)))
    said: list[dict[str, Any]] = [
        {"source": "e", "dp_rank": 1, "reason": "missing-dp-rank", "count": 3},
        {"reason": "wrong-type", "count": 1},
        {"source": "unheard", "dp_rank": 0, "reason": "nesting", "count": 1},
        {"reason": "no-code-of-ours", "count": 9},
        {"reason": 5, "count": 1},
        {"reason": "wrong-type", "count": -1},
        {"reason": "wrong-type", "count": "x"},
    ]
    rig.send(sim.node, Heartbeat(sources=[], refused=said))
    rig.tick(2.0)
    counted = rig.rows(
        "SELECT s.name, s.dp_rank, r.code, r.count FROM catalog_refusal r JOIN catalog_source s ON s.id = r.source"
    )
    assert set(counted) == {
        ("e", 1, "missing-dp-rank", 3), ("ref", 0, "wrong-type", 3), ("ref", 0, "nesting", 1)
    }  # fmt: skip
    assert rig.state(sim.node) == ("exact", "")
