"""Messages that come after the receipt of an erase: nobody is routed to what they say, and each is counted."""

import uuid

import pytest

from kvcore.events import Adds, Move
from tests.accept.fleet import say
from tests.catalog.ingest.conftest import planted, rig
from tests.catalog.ingest.rig import BYTES, TOKENS, Sim, add, keys, plant_namespace, plant_node
from tests.catalog.ingest.test_console_source import plant_purge, state_of
from tests.routing.test_replica import depths, fence, hand

__all__ = ["hand", "planted", "rig"]
pytestmark = [pytest.mark.accept, pytest.mark.django_db(transaction=True)]
LATE, EACH = 1_000, 100
"""Messages, and how many in one frame."""


def late(ns, number):
    """One message: blocks that come, that move on the node, that come packed, or from another node."""
    kind = number % 4
    if kind == 1:
        return Move(ns=ns, gen=1, keys=keys(number - 1), from_="hbm", to="dram")
    if kind == 2:
        return Adds(ns=ns, gen=1, keys=keys(number), parents=bytes(32), tier="dram", tokens=TOKENS, bytes=BYTES)
    return add(ns, number, from_owner=1, step=str(uuid.uuid4())) if kind == 3 else add(ns, number)


def test_of_a_thousand_late_messages_none_brings_anything_back(planted, rig, hand):
    ns, sim = plant_namespace(planted, "a"), Sim(plant_node(planted, "n1"))
    rig.tick()
    rig.send(sim.node, sim.frame(*(add(ns, n) for n in range(0, LATE, 4))))
    replica = hand()
    assert depths(replica, ns, [0]) == {(sim.node, "hbm"): 1}
    (seq,) = planted.execute("SELECT coalesce(max(seq), 0) + 1 FROM tenants_fenceentry").fetchone()
    fence(planted, ns, 2, seq)
    rig.tick(1.1)
    receipt = sim.seq
    steps = [plant_purge(planted, sim, ns, tier=tier, seq=receipt) for tier in ("hbm", "dram")]
    rig.tick()
    assert [state_of(planted, step) for step in steps] == ["done", "done"]
    assert rig.holdings(sim.node) == {}
    replica.turn()
    told = [late(ns, n) for n in range(LATE)]
    before = [sim.frames[n] for n in range(receipt + 1)]
    routed = 0
    for at in range(0, LATE, EACH):
        for old in before:  # what was said before the receipt comes once more, too
            rig.send(sim.node, old)
        rig.send(sim.node, sim.frame(*told[at : at + EACH]))
        replica.turn()
        routed += sum(bool(depths(replica, ns, [n])) for n in range(at, at + EACH))
    counted = rig.refused()
    say("operations-late", messages=LATE, resurrected=routed, counted=counted)
    assert routed == 0
    assert sum(counted.values()) == LATE, counted
    assert counted["stale-generation"] >= LATE // 2
    fenced = {line for line in rig.holdings(sim.node) if line[1] == 1}
    assert fenced, "it is there all the same, and a supplement is opened for it"
