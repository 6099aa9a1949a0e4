"""Answers and notes: unknown keys, unreadable requests, what a new writer inherits."""

import msgspec
import pytest

from catalog.ingest.codes import TOLD
from catalog.ingest.jobs import Broken
from kvcore.events import Drop
from tests.catalog.ingest.rig import Sim, add, keys


def test_unknown_keys_degrade_and_ask(rig, sim, ns):
    rig.send(sim.node, sim.frame(add(ns, 1)))
    answer = rig.send(sim.node, sim.frame(Drop(ns=ns, gen=1, keys=keys(1, 77), tier="hbm", reason="value")))
    assert answer.inventory
    assert answer.rejected == []
    assert rig.state(sim.node) == ("degraded", "unknown-keys")
    assert rig.refused() == {"unknown-keys": 1}
    rig.send(sim.node, sim.digest())
    assert rig.state(sim.node) == ("exact", "")


def test_what_could_not_be_read_is_counted_with_the_node(rig, sim, ns):
    rig.batch(broken=[Broken(sim.node, "nonsense", 3, "truncated-frame", "", 5)])
    assert rig.state(sim.node, "unreadable") == ("degraded", "truncated-frame")
    rig.send(sim.node, sim.frame(add(ns, 1)))
    rig.batch(broken=[Broken(sim.node, "ref", 0, "malformed-frame")])
    assert rig.state(sim.node) == ("degraded", "malformed-frame")
    assert rig.refused() == {"truncated-frame": 5, "malformed-frame": 1}


def test_a_gap_that_was_open_at_a_take_over_is_not_exact_at_once(rig, sim, ns):
    rig.send(sim.node, sim.frame(add(ns, 1)))
    missing, later = sim.frame(add(ns, 2)), sim.frame(add(ns, 3))
    rig.send(sim.node, later)
    rig.writer.close()
    rig.open()
    rig.send(sim.node, missing)
    assert rig.state(sim.node) == ("recovering", "gap")
    rig.send(sim.node, later)
    rig.send(sim.node, sim.digest())
    assert rig.state(sim.node) == ("exact", "")


def test_what_a_listener_refused_of_its_engine_is_counted_on_its_rank(rig, sim, ns):
    ranked = Sim(sim.node, "vllm", 1)
    rig.send(sim.node, sim.beat(ranks={"vllm": 2}))
    rig.send(sim.node, ranked.frame(add(ns, 1)))
    told = [{"source": "vllm", "dp_rank": 1, "ns": "", "tier": "hbm", "reason": c, "count": 2} for c in sorted(TOLD)]
    rig.send(sim.node, msgspec.structs.replace(ranked.beat(), refused=told))
    assert rig.refused() == dict.fromkeys(TOLD, 2)
    assert rig.state(sim.node, "vllm", 1) == ("exact", "")  # what it cost is told by gap items


@pytest.mark.parametrize("count", [True, 0, -1, 2**31, 2**62, 1.0, "7", None])
def test_a_count_that_is_none_is_added_to_nothing(rig, sim, ns, count):
    rig.send(sim.node, sim.frame(add(ns, 1)))
    blocks = {"ns": ns.hex(), "tier": "hbm", "reason": "data-class", "count": count}
    code = {"source": "ref", "ns": "", "tier": "hbm", "reason": "map-full", "count": count}
    rig.send(sim.node, msgspec.structs.replace(sim.beat(), refused=[blocks, code, {"reason": "map-full"}]))
    assert rig.refused() == {"wrong-type": 3}
    assert not rig.writer.folder.attempts._counts
    assert rig.state(sim.node) == ("exact", "")
