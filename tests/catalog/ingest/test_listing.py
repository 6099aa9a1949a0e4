"""Inventories replace, digests verify."""

import msgspec
import pytest

from kvcore.events import Drop, Gap, Refused
from tests.catalog.ingest.rig import add, keys


def test_a_lost_outbox_is_asked_for_an_inventory(rig, sim, ns):
    rig.send(sim.node, sim.frame(add(ns, 1)))
    sim.new_stream()
    answer = rig.send(sim.node, sim.frame(add(ns, 2)))
    assert (answer.state, answer.inventory) == ("gap", True)
    (page,) = sim.inventory()
    answer = rig.send(sim.node, page)
    assert (answer.state, answer.committed_seq, answer.expect_seq) == ("applied", 0, 1)
    assert rig.state(sim.node) == ("exact", "")
    assert rig.send(sim.node, sim.frame(add(ns, 3))).state == "next"
    assert rig.holdings(sim.node) == sim.sums()


def test_pages_are_applied_with_the_last(rig, sim, ns):
    rig.send(sim.node, sim.frame(add(ns, 1, 2, 3)))
    sim.frame(add(ns, 4, 5), Drop(ns=ns, gen=1, keys=keys(1), tier="hbm", reason="value"))  # never arrives
    before = rig.holdings(sim.node)
    pages = sim.inventory(pages=3)
    for page in pages[:2]:
        assert rig.send(sim.node, page).state == "page"
        assert rig.holdings(sim.node) == before
    assert rig.send(sim.node, pages[1]).state == "page"  # sent again
    answer = rig.send(sim.node, pages[2])
    assert (answer.state, answer.committed_seq, answer.expect_seq) == ("applied", 1, 2)
    assert rig.holdings(sim.node) == sim.sums()
    assert rig.send(sim.node, pages[2]).state == "applied"  # its answer was lost
    assert rig.state(sim.node) == ("exact", "")


def test_pages_out_of_order_are_refused_and_dropped(rig, sim, ns):
    rig.send(sim.node, sim.frame(add(ns, 1)))
    pages = sim.inventory(pages=3)
    rig.send(sim.node, pages[0])
    with pytest.raises(Refused, match="inventory-order"):
        rig.send(sim.node, pages[2])
    with pytest.raises(Refused, match="inventory-order"):
        rig.send(sim.node, pages[1])
    assert rig.holdings(sim.node) == sim.sums()
    assert rig.refused() == {"inventory-order": 2}


def test_an_inventory_older_than_what_is_folded_replaces_nothing(rig, sim, ns):
    rig.send(sim.node, sim.frame(add(ns, 1)))
    old = sim.inventory()[0]
    rig.send(sim.node, sim.frame(add(ns, 2)))
    assert rig.send(sim.node, old).state == "stale"
    assert rig.holdings(sim.node) == sim.sums()


def test_an_inventory_of_a_new_boot_resets_and_verifies(rig, sim, ns):
    rig.send(sim.node, sim.frame(add(ns, 1), add(ns, 2, tier="ssd")))
    sim.restart()
    sim.frame(add(ns, 3))  # lost, with the outbox
    assert rig.send(sim.node, sim.inventory()[0]).state == "applied"
    assert rig.holdings(sim.node) == sim.sums()
    assert rig.state(sim.node) == ("exact", "")


def test_an_inventory_lists_blocks_only(rig, sim, ns):
    rig.send(sim.node, sim.frame(add(ns, 1)))
    page = sim.inventory()[0]
    use = msgspec.Raw(msgspec.msgpack.encode(Gap(since=1.0, reason="ring")))
    answer = rig.send(sim.node, msgspec.structs.replace(page, items=[*page.items, use]))
    assert answer.state == "applied"
    assert rig.holdings(sim.node) == sim.sums()
    assert rig.state(sim.node) == ("degraded", "inventory-item")


def test_a_digest_is_judged_at_its_own_position_only(rig, sim, ns):
    rig.send(sim.node, sim.frame(add(ns, 1)))
    assert rig.send(sim.node, sim.digest()).state == "equal"
    ahead = sim.frame(add(ns, 2))
    assert rig.send(sim.node, sim.digest()).state == "stale"
    assert rig.state(sim.node) == ("recovering", "gap")  # it told of a frame that has not come
    rig.send(sim.node, ahead)
    sim.held.clear()
    answer = rig.send(sim.node, sim.digest())
    assert (answer.state, answer.inventory) == ("differs", True)
    assert rig.state(sim.node) == ("recovering", "digest-differs")
    rig.send(sim.node, sim.inventory()[0])
    assert rig.holdings(sim.node) == {}
    assert rig.state(sim.node) == ("exact", "")
