"""A tenant that holds nothing may go; who holds bytes is in `test_api_tenancy`."""

import uuid

import pytest

from catalog.closing import tenant_delete
from catalog.models import Node
from catalog.services import node_retire
from kvconsole.infra.rest import Problem
from tenants.placing import tenant_place
from tests.catalog.ingest.rig import BYTES, TOKENS, Rig, Sim, add, plant_node, superuser
from tests.catalog.test_rates import NOW
from tests.tenants.making import a_model, a_namespace, a_tenant
from tests.tenants.services.test_share_group import a_group

pytestmark = pytest.mark.django_db


def test_it_is_closed_once_with_its_namespaces_fenced():
    tenant = a_tenant()
    namespace = a_namespace(tenant)
    tenant_delete(tenant=tenant_place(tenant.slug), actor=None, now=NOW)
    namespace.refresh_from_db()
    assert (namespace.state, namespace.min_gen) == ("closed", 2)
    with pytest.raises(Problem) as refused:
        tenant_delete(tenant=tenant_place(tenant.slug), actor=None, now=NOW)
    assert refused.value.code == "not-found"


def refused(code, tenant):
    with pytest.raises(Problem) as caught:
        tenant_delete(tenant=tenant_place(tenant.slug), actor=None, now=NOW)
    assert (caught.value.code, caught.value.status_code) == (code, 409)
    return caught.value


@pytest.mark.django_db(transaction=True)
def test_what_lies_on_nodes_that_nobody_sees_is_unknown_not_nothing(postgres, request):
    tenant, bare = a_tenant(), a_tenant()
    ns = bytes(a_namespace(tenant).digest)
    with superuser(postgres) as cx:
        memory, disk = plant_node(cx, "memory", tiers=["hbm"]), plant_node(cx, "disk", tiers=["hbm", "ssd"])
        own = plant_node(cx, "own", tiers=["ssd"])
        cx.execute("UPDATE catalog_node SET state = 'lost', dedicated_to = %s WHERE id = %s", (uuid.uuid4(), own))
        rig = Rig()
        request.addfinalizer(rig.close)
        for node in (memory, disk):
            sim = Sim(node)
            rig.send(node, sim.frame(add(ns, 1, tier="hbm", bytes=BYTES * TOKENS)))
        rig.send(disk, sim.frame(add(ns, 2, tier="ssd", bytes=BYTES * TOKENS)))
        assert "1 blocks" not in refused("tenant-holds-bytes", tenant).text
        for _ in range(12):
            rig.tick(1)  # both are silent: nothing of theirs is known any more
        assert rig.holdings(disk) == rig.holdings(memory) == {}
        problem = refused("tenant-bytes-unknown", tenant)
        assert [e["detail"] for e in problem.errors] == ["disk"]
        assert "node_retire" in problem.text
        tenant_delete(tenant=tenant_place(bare.slug), actor=None, now=NOW)  # nothing of it could ever be cached
    node_retire(node=Node.objects.get(id=disk), reason="gone", actor=None, now=NOW)
    tenant_delete(tenant=tenant_place(tenant.slug), actor=None, now=NOW)


@pytest.mark.django_db(transaction=True)
def test_what_a_share_group_holds_holds_its_owner(postgres, request):
    owner, member = a_tenant(), a_tenant()
    ns = bytes(a_namespace(member, a_model(block_tokens=TOKENS), share_group=a_group(owner, member).name).digest)
    with superuser(postgres) as cx:
        node = plant_node(cx, "n")
    rig, sim = Rig(), Sim(node)
    request.addfinalizer(rig.close)
    rig.send(node, sim.frame(add(ns, 1, 2, bytes=BYTES * TOKENS)))
    assert "2 blocks" in refused("tenant-holds-bytes", owner).text
    tenant_delete(tenant=tenant_place(member.slug), actor=None, now=NOW)  # whose bytes they are not
    assert "2 blocks" in refused("tenant-holds-bytes", owner).text  # also when the group is over
