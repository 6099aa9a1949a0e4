"""The writer deals: what is let go comes first, what is dealt is in the tables, a new writer goes on from there."""

import json

import pytest

from kvcore.quotas import Grant
from tests.catalog.ingest.rig import BYTES, Rig, Sim, add, plant_namespace, plant_node, plant_tenant

AGENT = {"kind": "reference"}


@pytest.fixture
def fleet(planted):
    nodes = [plant_node(planted, f"n{i}", tiers=["hbm"], engine=AGENT) for i in range(2)]
    tenant = plant_tenant(planted)
    ns = plant_namespace(planted, "a", tenant=tenant)
    rig = Rig()
    yield planted, rig, nodes, tenant, ns
    rig.close()


def limit(cx, rig, tenant, size, guaranteed=0):
    cx.execute(
        "INSERT INTO catalog_quota (tenant_id, tier, limit_bytes, guaranteed_bytes, effective_bytes)"
        " VALUES (%s, 'hbm', %s, %s, 0) ON CONFLICT (tenant_id, tier) DO UPDATE SET limit_bytes = excluded.limit_bytes",
        (tenant, size, guaranteed),
    )
    rig.folder.dealer.dirty = True


def ask(rig, sim, version=0):
    """A heartbeat that says what was applied; the document that comes back."""
    return rig.send(sim.node, sim.beat(allowances=version)).allowances


def of(document, tenant):
    return document["tenants"][tenant.hex]["hbm"][0]


def ceilings(rig):
    return sum(rig.rows("SELECT coalesce(sum(ceiling), 0)::int FROM catalog_allowance")[0])


def test_a_limit_moves_only_after_it_was_let_go(fleet):
    cx, rig, nodes, tenant, ns = fleet
    one, two = (Sim(n) for n in nodes)
    rig.send(one.node, one.frame(add(ns, *range(8))))
    rig.send(two.node, two.frame())
    limit(cx, rig, tenant, 10 * BYTES)
    first, second = ask(rig, one), ask(rig, two)
    assert of(first, tenant) + of(second, tenant) == 10 * BYTES
    assert of(first, tenant) >= 8 * BYTES
    assert rig.rows("SELECT count(*) FROM catalog_allowance WHERE ceiling IS NULL") == [(2,)]
    assert ask(rig, one, first["version"]) == {}
    assert ask(rig, two, second["version"]) == {}
    assert ceilings(rig) == 10 * BYTES
    limit(cx, rig, tenant, 4 * BYTES)  # both must let go
    lower = ask(rig, one, first["version"])
    assert of(lower, tenant) == 4 * BYTES
    assert ceilings(rig) == 10 * BYTES  # neither has said so
    limit(cx, rig, tenant, 10 * BYTES)
    rig.tick(11)
    assert ceilings(rig) == 10 * BYTES
    for sim in (one, two):
        assert ask(rig, sim, rig.folder.dealer.told[sim.node].version) == {}
    rig.tick(11)
    assert ceilings(rig) <= 10 * BYTES
    before = {n: dict(rig.folder.dealer.grants)[tenant, "hbm"][n] for n in nodes}
    rig.open()  # another writer goes on from the rows
    assert rig.folder.dealer.grants[tenant, "hbm"] == before
    cx.execute("UPDATE catalog_quota SET limit_bytes = NULL")
    rig.folder.dealer.dirty = True
    assert of(ask(rig, one), tenant) is None


def test_what_a_silent_node_may_hold_is_given_to_nobody(fleet):
    cx, rig, nodes, tenant, ns = fleet
    one, two = (Sim(n) for n in nodes)
    rig.send(one.node, one.frame(add(ns, *range(8))))
    limit(cx, rig, tenant, 8 * BYTES)
    assert ask(rig, one, ask(rig, one)["version"]) == {}
    assert ask(rig, two, ask(rig, two)["version"]) == {}
    for _ in range(30):  # one is silent, two asks on
        rig.send(two.node, two.beat(), step=1.0)
    assert rig.folder.dealer.grants[tenant, "hbm"][two.node].given == 0
    assert rig.folder.dealer.grants[tenant, "hbm"][one.node] == Grant(8 * BYTES, 8 * BYTES)


def test_guarantees_are_scaled_laid_on_nodes_and_kept_as_effective(planted):
    node = plant_node(planted, "n", tiers=[], engine=AGENT)
    planted.execute(
        "INSERT INTO catalog_nodetier (node_id, tier, capacity_bytes, emulated, encrypted, high, low)"
        " VALUES (%s, 'hbm', 350, false, false, 0.9, 0.8)", (node,)
    )  # fmt: skip
    a, b = plant_tenant(planted), plant_tenant(planted)
    rig, sim = Rig(), Sim(node)
    limit(planted, rig, a, None, 200)
    limit(planted, rig, b, None, 500)
    document = ask(rig, sim)
    assert document["tenants"] == {a.hex: {"hbm": [None, 100]}, b.hex: {"hbm": [None, 250]}}
    assert dict(rig.rows("SELECT tenant_id, effective_bytes FROM catalog_quota")) == {a: 100, b: 250}
    rig.close()


def test_an_arena_is_dealt_without_a_quota_and_a_region_is_kept(planted):
    node = plant_node(planted, "n", tiers=["hbm"], engine=AGENT)
    other = plant_node(planted, "listened", tiers=["hbm"], engine={"kind": "vllm"})
    arena = plant_tenant(planted, isolation="arena")
    far = plant_tenant(planted, residency="elsewhere")
    rig, sim = Rig(), Sim(node)
    limit(planted, rig, far, 1000)
    document = ask(rig, sim)
    assert document["arenas"] == [arena.hex]
    assert document["tenants"][arena.hex]["hbm"] == [2 * 2**20 // 8, 2 * 2**20 // 8]
    assert document["tenants"][far.hex]["hbm"] == [0, 0]
    assert ask(rig, Sim(other)) == {}  # nobody there could keep to it
    assert json.dumps(document)
    rig.close()


def test_what_tenants_hold_is_told_by_tier(fleet):
    _, rig, nodes, tenant, ns = fleet
    sim = Sim(nodes[0])
    rig.send(sim.node, sim.frame(add(ns, 1, 2, 3)))
    rig.tick(3)
    assert rig.rows("SELECT tenant_id, tier, blocks, bytes FROM catalog_tenanttier") == [(tenant, "hbm", 3, 3 * BYTES)]
    for _ in range(12):  # its node falls silent: nothing is known to be there
        rig.tick(1)
    assert rig.rows("SELECT sum(blocks) FROM catalog_tenanttier") == [(0,)]
