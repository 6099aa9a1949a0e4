"""What the console says itself: nodes that are lost, and what receipts of erasing cover."""

import uuid

import pytest

from kvcore.events import Drop, Refused
from tests.catalog.ingest.rig import Sim, add, keys, plant_namespace


def test_a_silent_node_is_lost_and_lists_when_it_returns(rig, sim, ns):
    rig.send(sim.node, sim.frame(add(ns, 1), add(ns, 2, tier="dram")))
    for _ in range(4):
        rig.tick(2.9)
    assert rig.state(sim.node) == ("lost", "silent")
    assert rig.holdings(sim.node) == {}
    answer = rig.send(sim.node, sim.frame(add(ns, 3)))
    assert (answer.state, answer.inventory) == ("gap", True)
    assert rig.state(sim.node) == ("lost", "silent")
    rig.send(sim.node, sim.inventory()[0])
    assert rig.state(sim.node) == ("exact", "")
    assert rig.holdings(sim.node) == sim.sums()
    assert rig.send(sim.node, sim.frame(add(ns, 4))).state == "next"


def test_a_node_the_table_calls_lost_or_fenced_leaves(rig, sim, ns, planted):
    rig.send(sim.node, sim.frame(add(ns, 1)))
    planted.execute("UPDATE catalog_node SET state = 'lost' WHERE id = %s", (sim.node,))
    rig.tick(0.6)
    assert rig.state(sim.node) == ("lost", "lost")
    rig.send(sim.node, sim.inventory()[0])
    rig.tick(0.6)
    assert rig.state(sim.node) == ("exact", "")
    planted.execute("UPDATE catalog_node SET state = 'fenced' WHERE id = %s", (sim.node,))
    rig.tick(0.6)
    assert rig.state(sim.node) == ("lost", "fenced")
    with pytest.raises(Refused, match="node-fenced"):
        rig.send(sim.node, sim.inventory()[0])


def test_a_writer_that_stood_still_accuses_nobody(rig, sim, ns):
    rig.send(sim.node, sim.frame(add(ns, 1)))
    rig.tick(60.0)
    assert rig.state(sim.node) == ("exact", "")
    for _ in range(4):
        rig.tick(2.9)
    assert rig.state(sim.node) == ("lost", "silent")


def test_a_dead_listener_is_lost_though_its_node_lives(rig, sim, ns):
    """An agent and a listener share the node: the heartbeats of one say nothing about the other."""
    listener = Sim(sim.node, "vllm")
    rig.send(sim.node, sim.frame(add(ns, 1)))
    rig.send(sim.node, listener.frame(add(ns, 2), add(ns, 3, tier="dram")))
    for _ in range(5):
        rig.send(sim.node, sim.beat(), step=0.9)
    assert rig.state(sim.node, "vllm") == ("exact", "")
    rig.send(sim.node, sim.beat(), step=0.9)
    assert rig.state(sim.node, "vllm") == ("recovering", "silent")
    assert rig.holdings(sim.node, "vllm") == listener.sums()  # doubted, and still there
    for _ in range(6):
        rig.send(sim.node, sim.beat(), step=0.9)
    assert rig.state(sim.node, "vllm") == ("lost", "silent")
    assert rig.holdings(sim.node, "vllm") == {}
    assert rig.state(sim.node) == ("exact", "")
    assert rig.holdings(sim.node) == sim.sums()
    assert not rig.send(sim.node, sim.beat()).inventory  # the others are not asked to list
    answer = rig.send(sim.node, listener.frame(add(ns, 4)))
    assert (answer.state, answer.inventory) == ("gap", True)
    assert rig.holdings(sim.node, "vllm") == {}
    rig.send(sim.node, listener.inventory()[0])
    assert rig.state(sim.node, "vllm") == ("exact", "")
    assert rig.holdings(sim.node, "vllm") == listener.sums()


def test_a_short_silence_costs_no_inventory(rig, sim, ns):
    other = Sim(sim.node, "other")
    rig.send(sim.node, sim.frame(add(ns, 1)))
    for _ in range(7):
        rig.batch((sim.node, other.beat()), step=0.9)
    assert rig.state(sim.node) == ("recovering", "silent")
    assert not rig.send(sim.node, sim.beat()).inventory
    assert rig.state(sim.node) == ("exact", "")
    assert rig.holdings(sim.node) == sim.sums()


def test_a_new_writer_counts_silence_from_its_own_start(rig, sim, ns):
    """While nobody listened nobody was silent: the map stays, and who does not return leaves ten seconds later."""
    gone = Sim(sim.node, "gone")
    rig.send(sim.node, sim.frame(add(ns, 1)))
    rig.send(sim.node, gone.frame(add(ns, 2)))
    rig.writer.close()
    rig.now += 300.0
    rig.open()
    rig.send(sim.node, sim.beat(), step=2.0)
    assert (rig.state(sim.node), rig.state(sim.node, "gone")) == (("exact", ""), ("exact", ""))
    assert rig.holdings(sim.node, "gone") == gone.sums()
    for _ in range(9):
        rig.send(sim.node, sim.beat(), step=1.0)
    assert rig.state(sim.node) == ("exact", "")
    assert rig.state(sim.node, "gone") == ("lost", "silent")


def test_who_speaks_in_the_batch_is_not_silent(rig, sim, ns):
    """However long the batch before took: what waits to be folded was sent in time."""
    rig.send(sim.node, sim.frame(add(ns, 1)))
    for _ in range(4):
        rig.tick(2.4)
    assert rig.send(sim.node, sim.frame(add(ns, 2)), step=0.9).state == "next"
    assert rig.state(sim.node) == ("exact", "")


def plant_purge(planted, sim, ns, *, tier="hbm", seq=None, gen=2):
    """A step that says what the receipt of `sim` covers: all of the namespace below the generation."""
    operation, step = uuid.uuid4(), uuid.uuid4()
    planted.execute(
        "INSERT INTO catalog_operationtarget (tenant_id, operation, digest, part, min_gen, fence_seq, keys_hash,"
        " key_count, below) VALUES (%s, %s, %s, 0, %s, 1, '', 0, false)",
        (uuid.uuid4(), operation, ns, gen),
    )
    planted.execute(
        "INSERT INTO catalog_step (id, operation, tenant_id, intent_generation, attempt, node, source, dp_rank, tier,"
        " owner, kind, boot, args, state, code, tries, created_at, due_at, lease_holder, lease_token, receipt_hash,"
        " receipt_prev, told, total_bytes, total_blocks, done_bytes, done_blocks, at_boot, at_stream, at_seq) VALUES"
        " (%s, %s, %s, 1, 0, %s, %s, 0, %s, 1, 'purge', '', '{}', 'waiting', '', 0, now(), now(), '', 0, '', '', '{}',"
        " 0, 0, 0, 0, %s, %s, %s)",
        (step, operation, uuid.uuid4(), sim.node, sim.name, tier, sim.boot, sim.stream,
         sim.seq if seq is None else seq),
    )  # fmt: skip
    return step


def state_of(planted, step):
    return planted.execute("SELECT state FROM catalog_step WHERE id = %s", (step,)).fetchone()[0]


def rows_of(rig, table):
    return rig.rows(f"SELECT count(*)::int FROM catalog_{table}")[0][0]


def test_what_a_receipt_covers_leaves_and_whole_namespaces_leave_in_one_delete(rig, sim, ns, planted):
    rig.send(sim.node, sim.frame(add(ns, *range(300)), add(ns, 1, tier="dram")))
    rig.writer.store.commit(rig.folder.memory.apply([]), flush=True)
    first = plant_purge(planted, sim, ns)
    rig.tick(0.6)
    assert state_of(planted, first) == "done"
    assert {tier for _, _, _, tier in rig.holdings(sim.node)} == {"dram"}  # another owner keeps its own
    assert rows_of(rig, "segment") > 0
    second = plant_purge(planted, sim, ns, tier="dram")
    rig.tick(0.6)
    assert state_of(planted, second) == "done"
    assert rig.holdings(sim.node) == {}
    assert (rows_of(rig, "segment"), rows_of(rig, "placement"), rows_of(rig, "holding")) == (0, 0, 0)


def gone(ns, *numbers, tier="hbm"):
    return Drop(ns=ns, gen=1, keys=keys(*numbers), tier=tier, reason="delete")


def raise_fence(planted, ns):
    planted.execute("UPDATE tenants_namespace SET generation = 2, min_gen = 2 WHERE digest = %s", (ns,))
    planted.execute(
        "INSERT INTO tenants_fenceentry (seq, tenant_id, namespace_id, digest, min_gen, at)"
        " SELECT 1, tenant_id, id, digest, 2, now() FROM tenants_namespace WHERE digest = %s",
        (ns,),
    )


def test_rows_of_what_was_fenced_leave_with_the_last_drop_and_no_receipt(rig, sim, ns, planted):
    """Nodes mostly tell that they dropped it before their receipts are read."""
    other = plant_namespace(planted, "other")
    rig.send(sim.node, sim.frame(add(ns, *range(300)), add(ns, 1, tier="dram"), add(other, 1, 2)))
    rig.writer.store.commit(rig.folder.memory.apply([]), flush=True)
    before = rows_of(rig, "segment")
    raise_fence(planted, ns)
    rig.send(sim.node, sim.frame(gone(ns, *range(300))), step=0.2)
    assert rows_of(rig, "segment") == before, "another owner keeps its own"
    rig.send(sim.node, sim.frame(gone(ns, 1, tier="dram"), gone(other, 1)))
    left = rig.rows("SELECT k.digest FROM catalog_segment g JOIN catalog_keyspace k ON k.id = g.keyspace")
    assert left == [(other,)], "what is not fenced may be asked for again"
    assert {owner for (owner,) in rig.rows("SELECT keyspace FROM catalog_placement")} == {
        keyspace for (keyspace,) in rig.rows("SELECT id FROM catalog_keyspace WHERE digest = %s", other)
    }


@pytest.mark.parametrize("how", ["restarted", "lost"])
def test_rows_of_what_was_fenced_leave_with_the_last_of_their_holders(rig, sim, ns, planted, how):
    other = plant_namespace(planted, "other")
    rig.send(sim.node, sim.frame(add(ns, *range(300)), add(other, 1, 2)))
    rig.writer.store.commit(rig.folder.memory.apply([]), flush=True)
    raise_fence(planted, ns)
    rig.tick(0.2)
    if how == "lost":
        planted.execute("UPDATE catalog_node SET state = 'lost' WHERE id = %s", (sim.node,))
        rig.tick(0.6)
    else:
        sim.restart()
        rig.send(sim.node, sim.frame())
    assert rig.holdings(sim.node) == {}
    left = "SELECT DISTINCT k.digest FROM catalog_{} r JOIN catalog_keyspace k ON k.id = r.keyspace"
    assert [rig.rows(left.format(table)) for table in ("segment", "placement")] == [[(other,)], [(other,)]]
    rig.writer.store.grace = 0.0
    for _ in range(3):
        rig.writer.store.idle(rig.now + 60)
    assert (rows_of(rig, "segment"), rows_of(rig, "placement")) == (0, 0)


def test_a_receipt_that_overtook_its_stream_waits_for_it(rig, sim, ns, planted):
    rig.send(sim.node, sim.frame(add(ns, 1)))
    later = sim.frame(add(ns, 2))
    step = plant_purge(planted, sim, ns)  # it covers the frame that is still under way
    rig.tick(0.6)
    assert state_of(planted, step) == "waiting"
    assert rig.holdings(sim.node) != {}
    rig.send(sim.node, later)
    rig.tick(0.1)
    assert state_of(planted, step) == "done"
    assert rig.holdings(sim.node) == {}


def test_what_was_told_behind_the_position_is_not_covered(rig, sim, ns, planted):
    rig.send(sim.node, sim.frame(add(ns, 1)))
    step = plant_purge(planted, sim, ns, seq=sim.seq + 1)
    rig.tick(0.6)
    covered, behind = sim.frame(add(ns, 2)), sim.frame(add(ns, 3))
    rig.batch((sim.node, covered), (sim.node, behind))
    assert state_of(planted, step) == "done"
    ((blocks, _, _),) = rig.holdings(sim.node).values()
    assert blocks == 1


def test_a_late_receipt_does_not_cover_what_is_known_to_have_come_back(rig, sim, ns, planted):
    rig.send(sim.node, sim.frame(add(ns, 1)))
    at = sim.seq
    raise_fence(planted, ns)
    rig.folder.registry.dirty = True
    rig.send(sim.node, sim.frame(add(ns, 2)), step=1.0)  # of the fenced generation
    step = plant_purge(planted, sim, ns, seq=at)
    rig.tick(0.6)
    assert state_of(planted, step) == "done"
    assert rig.holdings(sim.node) != {}  # they are there, and asked for once more


def test_a_life_that_is_over_needs_no_waiting(rig, sim, ns, planted):
    rig.send(sim.node, sim.frame(add(ns, 1, tier="ssd")))
    step = plant_purge(planted, sim, ns, tier="ssd", seq=99)
    sim.restart()
    rig.send(sim.node, sim.frame())
    rig.tick(0.6)
    assert state_of(planted, step) == "done"
