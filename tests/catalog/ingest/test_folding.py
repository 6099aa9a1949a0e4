"""Frames into the catalog: positions, refusals, generations, unclaimed namespaces, states."""

import msgspec
import pytest

from catalog.ingest.jobs import Broken
from kvcore.events import Adds, Clear, Drop, Gap, Mark, Move, Refused, State
from tests.catalog.ingest.rig import BYTES, TOKENS, Sim, add, keys, plant_namespace, plant_node


@pytest.fixture
def ns(planted):
    return plant_namespace(planted, "a")


@pytest.fixture
def node(planted):
    return plant_node(planted, "n1")


@pytest.fixture
def sim(ns, node, rig):
    return Sim(node)


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


def test_bad_items_are_refused_alone(rig, sim, ns):
    bad = [
        (b"\xc1", "wrong-type"),
        (msgspec.msgpack.encode({"k": "purge"}), "unknown-item"),
        (msgspec.msgpack.encode(Mark(tier="hbm", used=3, capacity=2, high=0.9, low=0.8)), "used-over-capacity"),
        (msgspec.msgpack.encode(add(ns, 7, tokens=-1)), "negative-size"),
        (msgspec.msgpack.encode(add(ns, 8, tokens=32)), "block-size-mismatch"),
        (msgspec.msgpack.encode(add(ns, 9, from_owner=12345, step="s")), "foreign-owner"),
        (msgspec.msgpack.encode(add(ns, 9, step="s")), "step-unknown"),
    ]
    items = [add(ns, 1)]
    for i, (raw, _) in enumerate(bad):
        items += [raw, add(ns, 100 + i)]
    answer = rig.send(sim.node, sim.frame(*items))
    assert [(r.index, r.code) for r in answer.rejected] == [(2 * i + 1, code) for i, (_, code) in enumerate(bad)]
    assert rig.holdings(sim.node) == sim.sums()
    assert rig.refused() == {code: 1 for _, code in bad}
    assert rig.state(sim.node)[0] == "degraded"
    assert answer.inventory
    rig.send(sim.node, sim.inventory()[0])
    assert rig.state(sim.node) == ("exact", "")


def test_a_source_of_another_block_size_stays_incompatible(rig, sim, ns):
    rig.send(sim.node, sim.frame(msgspec.msgpack.encode(add(ns, 8, tokens=32))))
    assert rig.state(sim.node) == ("degraded", "block-size-mismatch")
    page = sim.inventory()[0]
    page = msgspec.structs.replace(page, items=[msgspec.Raw(msgspec.msgpack.encode(add(ns, 8, tokens=32)))])
    assert rig.send(sim.node, page).state == "applied"
    assert rig.state(sim.node) == ("degraded", "block-size-mismatch")


def test_the_bytes_of_a_block_are_those_first_reported(rig, sim, ns):
    rig.send(sim.node, sim.frame(add(ns, 1)))
    answer = rig.send(sim.node, sim.frame(msgspec.msgpack.encode(add(ns, 2, bytes=BYTES * 2))))
    assert answer.rejected[0].code == "block-size-mismatch"


def test_stale_generations_are_there_and_counted(rig, sim, ns, planted):
    planted.execute("UPDATE tenants_namespace SET generation = 3, min_gen = 3 WHERE digest = %s", (ns,))
    planted.execute(
        "INSERT INTO tenants_fenceentry (seq, tenant_id, namespace_id, digest, min_gen, at)"
        " SELECT 1, tenant_id, id, digest, 3, now() FROM tenants_namespace WHERE digest = %s",
        (ns,),
    )
    rig.now += 1.0
    answer = rig.send(sim.node, sim.frame(add(ns, 1, gen=2), add(ns, 1, gen=3)))
    assert answer.rejected == []
    assert answer.fence_seq == 1
    assert [(f.ns, f.min_gen) for f in answer.fences_after] == [(ns, 3)]
    assert rig.holdings(sim.node) == sim.sums()
    assert rig.refused() == {"stale-generation": 1}
    assert rig.state(sim.node) == ("exact", "")
    assert rig.send(sim.node, sim.frame(fence_seq=1)).fences_after == []
    assert rig.rows("SELECT holder, seq FROM tenants_fenceack") == [(str(sim.node), 1)]


def test_fences_reach_the_writer_within_a_second(rig, sim, ns, planted):
    rig.send(sim.node, sim.frame(add(ns, 1)))
    planted.execute("UPDATE tenants_namespace SET generation = 2, min_gen = 2 WHERE digest = %s", (ns,))
    planted.execute(
        "INSERT INTO tenants_fenceentry (seq, tenant_id, namespace_id, digest, min_gen, at)"
        " SELECT 9, tenant_id, id, digest, 2, now() FROM tenants_namespace WHERE digest = %s",
        (ns,),
    )
    rig.now += 1.0
    assert rig.send(sim.node, sim.frame(add(ns, 2))).fence_seq == 9
    assert rig.refused() == {"stale-generation": 1}


def test_unregistered_namespaces_are_unclaimed_and_adopted(rig, sim, planted):
    stranger = bytes(range(32))
    rig.send(sim.node, sim.frame(add(stranger, 1, 2, 3)))
    claimed, tenant = rig.rows("SELECT claimed, tenant_id FROM catalog_keyspace WHERE digest = %s", stranger)[0]
    assert (claimed, str(tenant)) == (False, "00000000-0000-7000-8000-000000000001")
    assert rig.holdings(sim.node) == sim.sums()
    plant_namespace(planted, "late", digest=stranger)
    rig.tick(1.1)
    claimed, tenant, owner = rig.rows(
        "SELECT k.claimed, k.tenant_id, n.tenant_id FROM catalog_keyspace k JOIN tenants_namespace n"
        " ON n.id = k.namespace_id WHERE k.digest = %s",
        stranger,
    )[0]
    assert claimed
    assert tenant == owner
    assert {t for (t,) in rig.rows("SELECT tenant_id FROM catalog_holding")} == {owner}


def test_a_namespace_registered_while_nobody_wrote_is_adopted_too(rig, sim, planted):
    stranger = bytes(range(32))
    rig.send(sim.node, sim.frame(add(stranger, 1)))
    rig.writer.close()
    plant_namespace(planted, "late", digest=stranger)
    rig.open()
    rig.tick(1.1)
    assert rig.rows("SELECT claimed FROM catalog_keyspace WHERE digest = %s", stranger) == [(True,)]


def test_orphans_are_folded_and_adopted(rig, sim, ns):
    rig.send(sim.node, sim.frame(add(ns, 4, 5, parent=3)))
    rig.send(sim.node, sim.frame(add(ns, 1, 2, 3)))
    assert rig.holdings(sim.node) == sim.sums()
    assert not rig.folder.memory.orphans


def test_unknown_keys_degrade_and_ask(rig, sim, ns):
    rig.send(sim.node, sim.frame(add(ns, 1)))
    answer = rig.send(sim.node, sim.frame(Drop(ns=ns, gen=1, keys=keys(1, 77), tier="hbm", reason="value")))
    assert answer.inventory
    assert answer.rejected == []
    assert rig.state(sim.node) == ("degraded", "unknown-keys")
    assert rig.refused() == {"unknown-keys": 1}
    rig.send(sim.node, sim.digest())
    assert rig.state(sim.node) == ("exact", "")


def test_an_engine_gap_is_recovering_until_listed(rig, sim, ns):
    rig.send(sim.node, sim.frame(add(ns, 1), Gap(since=1.0, reason="ring")))
    assert rig.state(sim.node) == ("recovering", "engine-ring")
    rig.send(sim.node, sim.frame(add(ns, 2)))
    assert rig.state(sim.node) == ("recovering", "engine-ring")
    rig.send(sim.node, sim.inventory()[0])
    assert rig.state(sim.node) == ("exact", "")


def test_a_clear_of_everything_verifies(rig, sim, ns):
    rig.send(sim.node, sim.frame(add(ns, 1), Gap(since=1.0, reason="ring")))
    rig.send(sim.node, sim.frame(Clear(tiers=("hbm",))))
    assert rig.state(sim.node) == ("exact", "")
    assert rig.holdings(sim.node) == {}


def test_a_clear_of_unknown_scope_deletes_nothing(rig, sim, ns):
    rig.send(sim.node, sim.frame(add(ns, 1), add(ns, 2, tier="dram")))
    rig.send(sim.node, sim.frame(Clear()))
    assert rig.state(sim.node) == ("recovering", "clear")
    assert rig.holdings(sim.node) == sim.sums()


def test_a_clear_of_a_namespace_upto_a_generation(rig, sim, ns, planted):
    other = plant_namespace(planted, "b")
    rig.now += 1.1
    rig.send(sim.node, sim.frame(add(ns, 1, gen=1), add(ns, 2, gen=2), add(other, 3), add(ns, 4, tier="dram")))
    rig.send(sim.node, sim.frame(Clear(tiers=("hbm",), ns=ns, gen_upto=1)))
    assert rig.holdings(sim.node) == sim.sums()
    assert len(sim.held) == 3


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


def test_moves_states_and_packed_singles(rig, sim, ns):
    frame = sim.frame(
        add(ns, 1, 2, 3, 4),
        Adds(ns=ns, gen=1, keys=keys(5, 6), parents=keys(4) + bytes(32), tier="hbm", tokens=TOKENS, bytes=BYTES),
        Move(ns=ns, gen=1, keys=keys(2, 3), from_="hbm", to="dram"),
        State(ns=ns, gen=1, keys=keys(1), tier="hbm", state="quarantined"),
    )
    assert rig.send(sim.node, frame).rejected == []
    assert rig.holdings(sim.node) == sim.sums()
    assert rig.state(sim.node) == ("exact", "")


def test_a_rank_must_be_named_where_there_are_several(rig, sim, ns):
    two = Sim(sim.node, dp_rank=1)
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


def test_what_could_not_be_read_is_counted_with_the_node(rig, sim, ns):
    rig.batch(broken=[Broken(sim.node, "nonsense", 3, "truncated-frame", "", 5)])
    assert rig.state(sim.node, "unreadable") == ("degraded", "truncated-frame")
    rig.send(sim.node, sim.frame(add(ns, 1)))
    rig.batch(broken=[Broken(sim.node, "ref", 0, "malformed-frame")])
    assert rig.state(sim.node) == ("degraded", "malformed-frame")
    assert rig.refused() == {"truncated-frame": 5, "malformed-frame": 1}


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


def test_heartbeats_keep_a_node(rig, sim, ns):
    rig.send(sim.node, sim.frame(add(ns, 1)))
    for _ in range(30):
        assert rig.send(sim.node, sim.beat(), step=0.5).state == "ok"
    assert rig.state(sim.node) == ("exact", "")
    heard = rig.rows("SELECT extract(epoch FROM last_heard_at) FROM catalog_node WHERE id = %s", sim.node)[0][0]
    assert float(heard) == pytest.approx(rig.now, abs=1.5)


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
