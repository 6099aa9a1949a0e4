"""Frames into the catalog: positions, boots, streams, ranks."""

import pytest

from kvcore.events import Drop, Gap, Refused
from tests.catalog.ingest.rig import Sim, add, keys, plant_node


def test_a_frame_is_in_the_tables_when_it_is_answered(rig, sim, ns):
    answer = rig.send(sim.node, sim.frame(add(ns, 1, 2, 3), add(ns, 4, parent=3, tier="dram")))
    assert (answer.state, answer.committed_seq, answer.expect_seq, answer.rejected) == ("reset", 0, 1, [])
    assert rig.holdings(sim.node) == sim.sums()
    assert rig.state(sim.node) == ("exact", "")
    answer = rig.send(sim.node, sim.frame(Drop(ns=ns, gen=1, keys=keys(2), tier="hbm", reason="value")))
    assert (answer.state, answer.committed_seq) == ("next", 1)
    assert rig.holdings(sim.node) == sim.sums()


def test_duplicates_change_nothing(rig, sim, ns):
    frame = sim.frame(add(ns, 1))
    rig.send(sim.node, frame)
    rig.send(sim.node, sim.frame(Drop(ns=ns, gen=1, keys=keys(1), tier="hbm", reason="ttl")))
    answer = rig.send(sim.node, frame)
    assert (answer.state, answer.committed_seq, answer.expect_seq) == ("duplicate", 1, 2)
    assert rig.holdings(sim.node) == {}


def test_out_of_order_in_one_batch_is_no_gap(rig, sim, ns):
    frames = [sim.frame(add(ns, i)) for i in range(1, 6)]
    answers = rig.batch(*((sim.node, f) for f in reversed(frames)))
    assert [a.state for a in answers] == ["next"] * 4 + ["reset"]
    assert rig.holdings(sim.node) == sim.sums()


def test_a_gap_is_answered_with_the_frame_wanted_and_shown(rig, sim, ns):
    rig.send(sim.node, sim.frame(add(ns, 1)))
    lost, later = sim.frame(add(ns, 2)), sim.frame(add(ns, 3))
    answer = rig.send(sim.node, later)
    assert (answer.state, answer.committed_seq, answer.expect_seq, answer.inventory) == ("gap", 0, 1, False)
    assert rig.state(sim.node) == ("recovering", "gap")
    rig.send(sim.node, lost)
    assert rig.state(sim.node) == ("recovering", "gap")
    rig.send(sim.node, later)
    assert rig.state(sim.node) == ("exact", "")
    assert rig.holdings(sim.node) == sim.sums()


def test_a_new_boot_retires_what_was_volatile(rig, sim, ns):
    rig.send(sim.node, sim.frame(add(ns, 1), add(ns, 2, tier="ssd")))
    sim.restart()
    answer = rig.send(sim.node, sim.frame())
    assert (answer.state, answer.inventory) == ("reset", True)
    assert rig.holdings(sim.node) == sim.sums() != {}
    assert rig.state(sim.node) == ("recovering", "unverified")
    rig.send(sim.node, sim.digest())
    assert rig.state(sim.node) == ("exact", "")


def test_a_fenced_boot_is_void_and_counted(rig, sim, ns):
    old = sim.frame(add(ns, 1))
    rig.send(sim.node, old)
    sim.restart()
    rig.send(sim.node, sim.frame())
    with pytest.raises(Refused, match="fenced-boot"):
        rig.send(sim.node, old)
    assert rig.refused() == {"fenced-boot": 1}
    assert rig.holdings(sim.node) == {}
    assert rig.state(sim.node) == ("exact", "")


def test_a_late_frame_of_an_old_stream_is_void_but_its_sender_goes_on(rig, sim, ns):
    old = sim.frame(add(ns, 1))
    rig.send(sim.node, old)
    sim.new_stream()
    rig.send(sim.node, sim.inventory()[0])
    answer = rig.send(sim.node, old)
    assert (answer.state, answer.rejected[0].code, answer.rejected[0].index) == ("duplicate", "fenced-boot", -1)
    assert rig.refused() == {"fenced-boot": 1}


def test_orphans_are_folded_and_adopted(rig, sim, ns):
    rig.send(sim.node, sim.frame(add(ns, 4, 5, parent=3)))
    rig.send(sim.node, sim.frame(add(ns, 1, 2, 3)))
    assert rig.holdings(sim.node) == sim.sums()
    assert not rig.folder.memory.orphans


def test_an_engine_that_cannot_list_is_never_exact_after_a_loss(rig, planted, ns):
    node = plant_node(planted, "v", engine={"kind": "vllm", "capabilities": {"inventory": False}})
    rig.now += 1.0
    sim = Sim(node)
    rig.send(node, sim.frame(add(ns, 1)))
    assert rig.state(node) == ("exact", "")
    sim.new_stream()
    answer = rig.send(node, sim.frame(Gap(since=1.0, reason="overflow"), add(ns, 2)))
    assert answer.state == "next"
    assert rig.state(node) == ("degraded", "cannot-list")
    sim.restart()
    assert rig.send(node, sim.frame(add(ns, 3))).state == "reset"
    assert rig.state(node) == ("exact", "")
    assert rig.holdings(node) == sim.sums()


def test_a_rank_must_be_named_where_there_are_several(rig, sim, ns):
    two = Sim(sim.node, dp_rank=1)
    rig.send(sim.node, sim.beat(ranks={"ref": 2}))
    rig.send(sim.node, sim.frame(add(ns, 1)))
    rig.send(sim.node, two.frame(add(ns, 1)))
    nameless = Sim(sim.node, dp_rank=None)
    with pytest.raises(Refused, match="missing-dp-rank"):
        rig.send(sim.node, nameless.frame(add(ns, 2)))
    assert rig.refused() == {"missing-dp-rank": 1}
    assert rig.state(sim.node)[0] == "degraded"
    assert rig.holdings(sim.node) == sim.sums()


def test_only_so_many_sources_a_node(rig, node, ns):
    for i in range(64):
        sim = Sim(node, f"s{i}")
        rig.send(node, sim.frame(add(ns, 1)))
    with pytest.raises(Refused, match="too-many-sources"):
        rig.send(node, Sim(node, "s64").frame(add(ns, 1)))


@pytest.mark.parametrize(
    ("enrolled", "beaten", "good", "wrong"),
    [(1, 0, 0, 1), (2, 0, 1, 2), (0, 0, 0, 1), (0, 4, 3, 4), (0, 1024, 1023, 1024), (2, 4, 1, 2)],
)
def test_a_rank_that_the_source_does_not_have_is_refused(rig, planted, ns, enrolled, beaten, good, wrong):
    """What was said at enrolment counts, else what a heartbeat said of this source; who said nothing has rank 0."""
    node = plant_node(planted, "ranked", engine={"dp_size": enrolled} if enrolled else {})
    if beaten:
        rig.send(node, Sim(node).beat(ranks={"ref": beaten}))
    rig.send(node, Sim(node, dp_rank=good).frame(add(ns, 1)))
    for sim in (Sim(node, dp_rank=wrong), Sim(node, "other", wrong)):
        with pytest.raises(Refused, match="wrong-dp-rank"):
            rig.send(node, sim.frame(add(ns, 2)))
    assert rig.refused()["wrong-dp-rank"] == 2
    rows = rig.rows("SELECT name, dp_rank FROM catalog_source WHERE node_id = %s AND dp_rank > 0", node)
    assert rows == ([("ref", good)] if good else [])
