import pytest

from catalog.workers import refusals, workers
from kvconsole.infra.access import FLEET_PLANE
from tests.catalog.ingest.rig import plant_node, superuser
from tests.tenants.making import a_namespace, a_tenant

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


@pytest.fixture
def planted(postgres, transactional_db):
    with superuser(postgres) as cx:
        nodes = {name: plant_node(cx, name) for name in ("n1", "n2")}
        cx.execute("UPDATE catalog_node SET region = 'eu' WHERE name = 'n1'")
        for i, name in enumerate(nodes):
            cx.execute(
                "INSERT INTO catalog_source (id, shard, node_id, name, dp_rank, boot, stream, seq, state, since)"
                " VALUES (%s, 0, %s, 'e', 0, 'b', 's', 0, 'exact', now())", (i + 1, nodes[name])
            )  # fmt: skip
        cx.execute(
            "INSERT INTO catalog_workerload (source, dp_rank, at, body) VALUES"
            " (1, 0, now() - interval '2 seconds', '{\"number\": 1, \"queue_ms\": 7}')"
        )
        yield nodes, cx


def test_a_report_comes_with_its_age_and_none_is_none(planted):
    one, two = workers()
    assert (one.name, one.load.queue_ms) == ("n1", 7.0)
    assert 1_900 < one.age_ms < 30_000
    assert (two.name, two.load, two.age_ms) == ("n2", None, None)


def test_reasons_are_those_of_the_namespaces_rules(planted):
    nodes, cx = planted
    resident = a_namespace(tenant=a_tenant(residency="eu"))
    anywhere = a_namespace(tenant=a_tenant())
    digests = [bytes(resident.digest), bytes(anywhere.digest)]
    found = refusals([*digests, b"x" * 32])
    assert found == {digests[0]: {nodes["n2"]: "residency"}, digests[1]: {}}
    cx.execute("UPDATE catalog_node SET dedicated_to = %s WHERE name = 'n1'", (a_tenant().id,))
    assert refusals(digests[1:])[digests[1]] == {nodes["n1"]: "rights"}
    assert FLEET_PLANE == "default"
