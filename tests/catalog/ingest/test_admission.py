"""Items: what each becomes, and which are refused alone."""

import msgspec

from catalog.ingest import admission
from kvcore.events import Adds, Clear, Gap, Mark, Move, State
from tests.catalog.ingest.rig import BYTES, TOKENS, add, keys, plant_namespace


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


def test_a_node_makes_only_so_many_keyspaces_of_what_nobody_registered(rig, sim, ns, monkeypatch):
    monkeypatch.setattr(admission, "UNCLAIMED_MOST", 3)
    strange = [add(ns, 1, gen=7), add(ns, 2, gen=2**63 - 1), add(ns, 3, group=20_000)]
    more = [add(ns, 4, gen=8), add(ns, 5, group=20_001), add(bytes(32), 6)]
    good = [add(ns, 7), add(ns, 8, group=3), add(ns, 9, gen=7)]
    answer = rig.send(sim.node, sim.frame(*strange, *[msgspec.msgpack.encode(item) for item in more], *good))
    assert [(r.index, r.code) for r in answer.rejected] == [(i, "too-many-namespaces") for i in (3, 4, 5)]
    assert rig.holdings(sim.node) == sim.sums()


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


def test_bytes_of_a_block_are_those_of_the_registration(rig, sim, planted):
    """Where the model has one cache group its size is known before anybody reports one; a wrong layout is no fact."""
    group = {"group": 0, "kind": "full", "bytes_per_token": 64, "ratio": 1}
    known = plant_namespace(planted, "known", groups=[group])
    hybrid = plant_namespace(planted, "hybrid", groups=[group, group | {"group": 1, "bytes_per_token": 8}])
    rig.tick()
    answer = rig.send(sim.node, sim.frame(add(known, 1, bytes=2048)))
    assert [r.code for r in answer.rejected] == ["block-size-mismatch"]
    assert rig.state(sim.node) == ("degraded", "block-size-mismatch")
    good = [add(known, 2, bytes=1024), add(known, 3, bytes=0, group=1), add(hybrid, 4, bytes=2048)]
    assert rig.send(sim.node, sim.frame(*good)).rejected == []
    assert [r.code for r in rig.send(sim.node, sim.frame(add(hybrid, 5, bytes=1024))).rejected] == [
        "block-size-mismatch"
    ]
