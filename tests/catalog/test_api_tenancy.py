"""REST of quotas, class rules, own nodes, usage and the end of a tenant: refusals first."""

import pytest

from catalog import rates
from tests.catalog.ingest.rig import Rig, Sim, add, plant_node, superuser
from tests.tenants.conftest import Caller, caller  # noqa: F401
from tests.tenants.making import a_model, a_namespace, a_tenant
from tests.tenants.persons import Person

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
GIB = 2**30


def put(call: Caller, path: str, body, tag: str | None = None, query: str = ""):
    headers = {"If-Match": tag or call.get(path)["ETag"]}
    return call("PUT", path + query, body, **headers)


def codes(answer):
    return answer.status_code, answer.json()["code"]


def test_quotas_are_refused_where_they_make_no_sense(caller):  # noqa: F811
    tenant = a_tenant()
    operator, path = caller("operator", "destructive-operator"), f"/tenants/{tenant.slug}/quotas"
    tag = operator.get(path)["ETag"]
    assert codes(operator("PUT", path, {"tiers": {}})) == (428, "etag-required")
    assert codes(put(operator, path, {}, '"stale"')) == (412, "etag-mismatch")
    for body, pointer in [
        ({"tiers": {"hbm": {"limit_bytes": -1}}}, "/tiers/hbm/limit_bytes"),
        ({"tiers": {"hbm": {"limit_bytes": 2**53}}}, "/tiers/hbm/limit_bytes"),
        ({"tiers": {"hbm": {"limit_bytes": 10**400}}}, ""),  # no number that JSON readers know
        ({"tiers": {"hbm": {"limit_bytes": "much"}}}, "/tiers/hbm/limit_bytes"),
        ({"tiers": {"hbm": {"limit_bytes": 1, "guaranteed_bytes": 2}}}, "/tiers/hbm/guaranteed_bytes"),
        ({"tiers": {"tape": {}}}, "/tiers/tape"),
        ({"requests_per_second": -1}, "/requests_per_second"),
        ({"deletions_per_hour": 10**9}, "/deletions_per_hour"),
        ({"limits": {}}, "/limits"),
    ]:
        answer = put(operator, path, body, tag)
        assert answer.status_code == 400, (body, answer.content)
        assert [e["pointer"] for e in answer.json()["errors"]] == ([pointer] if pointer else [])
    assert operator.get(path)["ETag"] == tag
    body = {"tiers": {"hbm": {"limit_bytes": 5 * GIB, "guaranteed_bytes": GIB}}, "requests_per_second": 50}
    rehearsed = put(operator, path, body, tag, "?validate_only=true")
    assert rehearsed.status_code == 200
    assert operator.get(path)["ETag"] == tag
    done = put(operator, path, body, tag)
    assert done.status_code == 200
    assert done.json()["tiers"]["hbm"]["limit_bytes"] == 5 * GIB
    assert done.json()["tiers"]["ssd"]["limit_bytes"] is None
    assert done["ETag"] == operator.get(path)["ETag"] != tag


def test_350_under_guarantees_of_200_and_500_is_100_and_250(caller, postgres):  # noqa: F811
    with superuser(postgres) as cx:
        node = plant_node(cx, "n", tiers=["dram"], engine={"kind": "reference"})
        cx.execute("UPDATE catalog_nodetier SET capacity_bytes = 350 WHERE node_id = %s", (node,))
    operator = caller("operator")
    answers = []
    for size in (200, 500):
        path = f"/tenants/{a_tenant().slug}/quotas"
        answers.append((path, put(operator, path, {"tiers": {"dram": {"guaranteed_bytes": size}}})))
    worth = [operator.get(path).json()["tiers"]["dram"]["effective_guaranteed_bytes"] for path, _ in answers]
    assert worth == [100, 250]
    assert answers[1][1].json()["tiers"]["dram"]["effective_guaranteed_bytes"] == 250


def test_a_tenant_sees_its_own_and_changes_nothing(caller):  # noqa: F811
    mine, other = a_tenant(), a_tenant(classes=["restricted"])
    call = caller("tenant-admin", "tenant-member", tenant=mine)
    for name in ("quotas", "usage", "classes"):
        assert call.get(f"/tenants/{mine.slug}/{name}").status_code == 200
        absent, foreign = call.get(f"/tenants/none/{name}"), call.get(f"/tenants/{other.slug}/{name}")
        assert codes(absent) == codes(foreign) == (404, "not-found")
        assert absent.json()["detail"] == foreign.json()["detail"]
    quotas = call.get(f"/tenants/{mine.slug}/quotas").json()["tiers"]["hbm"]
    assert (quotas["used_bytes"], quotas["in_force"]) == (None, None)  # nobody counts here
    usage = call.get(f"/tenants/{mine.slug}/usage").json()
    assert (usage["complete"], usage["hits"], usage["tiers"]["hbm"]["used_bytes"]) == (False, None, None)
    for path in (f"/tenants/{mine.slug}/quotas", f"/tenants/{mine.slug}/classes", f"/tenants/{mine.slug}/nodes"):
        assert codes(call("PUT", path, {}, **{"If-Match": "*"})) == (403, "forbidden")
    assert codes(call("DELETE", f"/tenants/{mine.slug}")) == (403, "forbidden")
    backwards = "from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z"
    for wrong in ("from=x", "from=2026-01-01", backwards, "to=9999-01-01T00:00:00Z"):
        assert call.get(f"/tenants/{mine.slug}/usage?{wrong}").status_code == 400


def test_requests_beyond_the_rate_are_429_with_a_reason(caller):  # noqa: F811
    tenant = a_tenant()
    operator, call = caller("operator"), caller("tenant-admin", tenant=tenant)
    path = f"/tenants/{tenant.slug}/quotas"
    assert put(operator, path, {"requests_per_second": 3}).status_code == 200
    rates.forget()
    answers = [call.get(path) for _ in range(12)]
    refused = [a for a in answers if a.status_code == 429]
    assert refused
    assert codes(refused[0]) == (429, "requests-quota-exceeded")
    assert refused[0]["Retry-After"] == "1"
    assert "requests_per_second is 3" in refused[0].json()["detail"]
    assert operator.get(path).status_code == 200
    put(operator, path, {"requests_per_second": 0})
    rates.forget()
    assert codes(call.get(path)) == (429, "requests-quota-exceeded")


def test_class_rules_and_nodes_of_ones_own(caller, postgres):  # noqa: F811
    with superuser(postgres) as cx:
        plant_node(cx, "n1"), plant_node(cx, "n2")
    shared, own = a_tenant(classes=["internal", "restricted"], residency="r"), a_tenant(isolation="node")
    operator, path = caller("operator", "viewer"), f"/tenants/{shared.slug}/classes"
    rules = operator.get(path).json()["rules"]
    assert rules["restricted"]["tiers"] == ["hbm", "pinned", "dram"]
    assert rules["internal"] == {"tiers": None, "regions": None, "min_protection": "plain", "built_in": True}
    for body in (
        {"rules": {"public": {}}},
        {"rules": {"internal": {"tiers": ["tape"]}}},
        {"rules": {"internal": {"regions": ["us"]}}},
        {"rules": {"internal": {"min_protection": "much"}}},
        {"rules": {"internal": {"colour": 1}}},
    ):
        assert put(operator, path, body).status_code == 400, body
    done = put(operator, path, {"rules": {"internal": {"tiers": ["ssd", "hbm"], "min_protection": "encrypted"}}})
    assert done.json()["rules"]["internal"] == {
        "tiers": ["hbm", "ssd"], "regions": None, "min_protection": "encrypted", "built_in": False,
    }  # fmt: skip
    nodes = f"/tenants/{own.slug}/nodes"
    assert codes(put(operator, f"/tenants/{shared.slug}/nodes", {"nodes": ["n1"]})) == (409, "tenant-not-node-isolated")
    assert put(operator, nodes, {"nodes": ["n9"]}).status_code == 400
    assert put(operator, nodes, {"nodes": ["n1"]}).json() == {"isolation": "node", "nodes": ["n1"]}
    third = a_tenant(isolation="node")
    assert codes(put(operator, f"/tenants/{third.slug}/nodes", {"nodes": ["n1"]})) == (409, "node-dedicated")
    assert put(operator, nodes, {"nodes": ["n2"]}).json()["nodes"] == ["n2"]
    assert operator.get(nodes).json()["nodes"] == ["n2"]


def test_who_owns_bytes_cannot_vanish(caller, postgres, request):  # noqa: F811
    tenant, model = a_tenant(), a_model()
    ns = bytes(a_namespace(tenant, model).digest)
    with superuser(postgres) as cx:
        node = plant_node(cx, "n")
    rig = Rig()
    request.addfinalizer(rig.close)
    sim = Sim(node)
    size = 1024 * 16
    rig.send(node, sim.frame(add(ns, 1, 2, bytes=size)))
    roles, scopes = ("operator", "destructive-operator"), ("*:read", "*:write", "tenants:destroy")
    call, path = caller(*roles, scopes=scopes), f"/tenants/{tenant.slug}"
    refused = call("DELETE", path)
    assert codes(refused) == (409, "tenant-holds-bytes")
    assert "2 blocks" in refused.json()["detail"]
    assert "evict" in refused.json()["detail"]
    below = put(call, path + "/quotas", {"tiers": {"hbm": {"limit_bytes": 2 * size - 1}}})
    assert codes(below) == (409, "quota-below-use")
    assert below.json()["errors"][0]["pointer"] == "/tiers/hbm/limit_bytes"
    other = a_tenant(isolation="node")
    assert codes(put(call, f"/tenants/{other.slug}/nodes", {"nodes": ["n"]})) == (409, "node-holds-others")
    quotas = {"tiers": {"hbm": {"limit_bytes": 0}}, "deletions_per_hour": 0, "evict": True}
    assert put(call, path + "/quotas", quotas).status_code == 200
    rig.send(node, sim.frame(*[drop(ns, n) for n in (1, 2)]))  # as an agent does when it hears of it
    refused = call("DELETE", path)
    assert codes(refused) == (429, "deletions-quota-exceeded")
    assert "deletions_per_hour is 0" in refused.json()["detail"]
    assert put(call, path + "/quotas", {"deletions_per_hour": 1}).status_code == 200
    assert call("DELETE", path).status_code == 204
    assert call.get(path).json()["state"] == "closed"
    assert call("DELETE", path).status_code == 404
    assert rig.rows("SELECT count(*) FROM tenants_namespace WHERE state = 'active'") == [(0,)]


def drop(ns, number):
    from kvcore.events import Drop
    from tests.catalog.ingest.rig import keys

    return Drop(ns=ns, gen=1, keys=keys(number), tier="hbm", reason="quota")


def test_what_cannot_be_taken_back_needs_a_proof_or_the_scope(caller):  # noqa: F811
    """A tenant's end, and bytes that leave: a token by the scope's name alone, a person who has just proved it."""
    tenant = a_tenant(isolation="node")
    path = f"/tenants/{tenant.slug}"
    roles = ("operator", "destructive-operator")
    acts = (
        ("DELETE", path, None),
        ("PUT", f"{path}/quotas", {"tiers": {}, "evict": True}),
        ("PUT", f"{path}/nodes", {"nodes": [], "evict": True}),
        ("PUT", f"{path}/quotas?validate_only=true", {"tiers": {}, "evict": True}),
    )
    for call in (caller(*roles), caller(*roles, scopes=("*:read", "*:write", "tenants:write"))):
        for method, where, body in acts:
            answer = call(method, where, body, **{"If-Match": "*"})
            assert codes(answer) == (403, "scope-missing"), where
            assert "tenants:destroy" in answer.json()["detail"]
        assert put(call, f"{path}/quotas", {"tiers": {}}).status_code == 200, "without evict it is a change as any"
        assert put(call, f"{path}/nodes", {"nodes": []}).status_code == 200
    person = Person(*roles, proved=False)
    for method, where, body in acts:
        assert codes(person(method, where, body, **{"If-Match": "*"})) == (403, "step-up-required"), where
    person.prove()
    for method, where, body in (*acts[1:], acts[0]):
        assert person(method, where, body, **{"If-Match": "*"}).status_code < 300, where
    assert caller("viewer").get(path).json()["state"] == "closed"
