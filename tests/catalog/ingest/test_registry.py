"""Fences are known within a tenth of a second, namespaces that are registered late within a second."""

from tests.catalog.ingest.rig import add, plant_namespace


def test_fences_reach_the_writer_within_a_tenth_of_a_second(rig, sim, ns, planted):
    rig.send(sim.node, sim.frame(add(ns, 1)))
    planted.execute("UPDATE tenants_namespace SET generation = 2, min_gen = 2 WHERE digest = %s", (ns,))
    planted.execute(
        "INSERT INTO tenants_fenceentry (seq, tenant_id, namespace_id, digest, min_gen, at)"
        " SELECT 9, tenant_id, id, digest, 2, now() FROM tenants_namespace WHERE digest = %s",
        (ns,),
    )
    assert rig.send(sim.node, sim.frame(add(ns, 2)), step=0.1).fence_seq == 9
    assert rig.refused() == {"stale-generation": 1}


def test_unregistered_namespaces_are_unclaimed_and_adopted(rig, sim, planted):
    stranger = bytes(range(32))
    rig.send(sim.node, sim.frame(add(stranger, 1, 2, 3)))
    claimed, tenant = rig.rows("SELECT claimed, tenant_id FROM catalog_keyspace WHERE digest = %s", stranger)[0]
    assert (claimed, str(tenant)) == (False, "00000000-0000-7000-8000-000000000001")
    assert rig.holdings(sim.node) == sim.sums()
    plant_namespace(planted, "late", digest=stranger)
    rig.tick(0.3)
    assert rig.rows("SELECT claimed FROM catalog_keyspace WHERE digest = %s", stranger) == [(False,)]
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
