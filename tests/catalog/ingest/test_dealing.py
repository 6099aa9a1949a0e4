"""The writer deals: what is let go comes first, what is dealt is in the tables, a new writer goes on from there."""

import json
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from kvconsole.infra.sql import PLATFORM
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


def test_a_node_that_joins_is_told_at_once(fleet):
    """Not with the next round: until it is told, it takes no block of a limited tenant."""
    cx, rig, nodes, tenant, _ = fleet
    limit(cx, rig, tenant, 10 * BYTES)
    ask(rig, Sim(nodes[0]))
    late = Sim(plant_node(cx, "late", tiers=["hbm"], engine=AGENT))
    assert tenant.hex in ask(rig, late)["tenants"]


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


@pytest.mark.parametrize("version", [2**63 - 1, 2**62, 2**24 + 10_000])
def test_a_version_that_nobody_can_have_been_told_is_not_taken_over(fleet, version):
    cx, rig, nodes, tenant, _ = fleet
    one, two = (Sim(n) for n in nodes)
    for sim in (one, two):
        rig.send(sim.node, sim.frame())
    limit(cx, rig, tenant, 10 * BYTES)
    ask(rig, one)
    before = rig.folder.dealer.told[one.node].version
    for _ in range(3):
        document = ask(rig, one, version)
        rig.tick(11)
    assert rig.folder.dealer.told[one.node].version <= before + 3
    assert document["version"] < version
    assert rig.rows("SELECT max(version) < 1000 FROM catalog_nodedeal") == [(True,)]
    assert ask(rig, two)["tenants"]  # the others are dealt to as before
    rig.open()
    assert ask(rig, one, version)["version"] < version


def test_a_version_of_a_newer_database_is_taken_over(fleet):
    cx, rig, nodes, tenant, _ = fleet
    one = Sim(nodes[0])
    rig.send(one.node, one.frame())
    limit(cx, rig, tenant, 10 * BYTES)
    ask(rig, one)
    ask(rig, one, 5_000)
    rig.tick(11)
    assert ask(rig, one)["version"] == 5_001


def test_what_a_share_group_holds_is_its_owners(fleet):
    cx, rig, nodes, tenant, _ = fleet
    member, group, now = plant_tenant(cx), uuid.uuid4(), datetime.now(UTC)
    cx.execute(
        "INSERT INTO tenants_sharegroup (id, tenant_id, owner_slug, name, reason, residency, state, requested_by,"
        " requested_at, expires_at, decided_by) VALUES (%s, %s, 'o', 'g', 'x', '', 'approved', 'x', %s, %s, 'y')",
        (group, tenant, now, now + timedelta(days=1)),
    )
    for whose in (tenant, member):
        cx.execute(
            "INSERT INTO tenants_sharemember (tenant_id, group_id, owner, slug, state, expires_at)"
            " VALUES (%s, %s, %s, 's', 'approved', %s)",
            (whose, group, tenant, now + timedelta(days=1)),
        )
    ns = plant_namespace(cx, "shared", tenant=PLATFORM)
    cx.execute("UPDATE tenants_namespace SET share_group = %s WHERE digest = %s", (group, ns))
    one, two = (Sim(n) for n in nodes)
    rig.send(one.node, one.frame(add(ns, *range(6))))
    rig.send(two.node, two.frame())
    limit(cx, rig, tenant, 10 * BYTES)
    assert of_both(rig, one, two, tenant) == 10 * BYTES
    assert of(ask(rig, one), tenant) >= 6 * BYTES
    held = "SELECT bytes::int FROM catalog_tenanttier WHERE tenant_id = %s AND tier = 'hbm' AND bytes > 0"
    rig.tick(3)
    assert rig.rows(held, tenant) == [(6 * BYTES,)]
    assert rig.rows(held, PLATFORM) == rig.rows(held, member) == []
    rig.open()  # another writer, before anybody speaks of the namespace
    rig.tick(3)
    assert rig.rows(held, tenant) == [(6 * BYTES,)]


def of_both(rig, one, two, tenant):
    return sum(of(ask(rig, sim), tenant) for sim in (one, two))
