"""REST of tenancy, through middleware, registry, row-level security and the audit trail."""

import json

import pytest

from audit.models import Event
from kvconsole.infra import access
from tenants import services
from tests.tenants.making import LLAMA, a_model, a_namespace, a_node, a_tenant, some

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def actions():
    return [json.loads(bytes(e.body))["action"] for e in Event.objects.only("id", "body").order_by("id")]


def test_tenants_are_made_listed_and_read(caller):
    call = caller("operator", "viewer")
    made = call.post("/tenants", {"slug": "acme", "name": "Acme", "classes": ["a"], "retention": {"a": 60}})
    assert made.status_code == 201
    assert made["X-Request-ID"]
    body = made.json()
    assert body["created_at"].endswith("Z")
    assert {t["slug"] for t in call.get("/tenants").json()["items"]} == {"acme", "platform"}
    one = call.get("/tenants/acme")
    assert one.json() == body
    assert one["ETag"].startswith('"')


def test_a_model_answers_its_bytes_and_its_epochs_grow(caller):
    call = caller("operator")
    body = {"name": "m", "config": LLAMA, "kv_dtype": "auto", "block_tokens": 16, "tensor_parallel": 1}
    made = call.post("/models", body).json()
    assert (made["bytes_per_token"], len(made["per_group"])) == (1024, 1)
    epochs = [call.post("/models/m/epochs", {"weights_digest": w}).json()["epoch"] for w in "ab"]
    assert epochs == [1, 2]
    assert call.post("/models/none/epochs", {"weights_digest": "a"}).json()["code"] == "not-found"


def test_a_tenant_resolves_its_own_namespaces_only(caller):
    mine, other, model = a_tenant(), a_tenant(), a_model()
    call = caller("tenant-member", tenant=mine)
    body = {"tenant": mine.slug, "model": model.name, "label": "x"}
    one, two = (call.post("/namespaces:resolve", body).json() for _ in "ab")
    assert one == two
    assert set(one) == {"namespace", "digest", "model_epoch", "generation", "state"}
    foreign = call.post("/namespaces:resolve", {**body, "tenant": other.slug})
    assert (foreign.status_code, foreign.json()["code"]) == (404, "not-found")
    assert actions().count("namespace.created") == 1


def test_a_node_renews_its_leases(caller):
    namespace = a_namespace()
    call = caller("node", kind="node", holder=a_node())
    answer = call.post("/key-leases", {"held": [], "fence_seq": 0, "all": True})
    assert answer.status_code == 200
    assert answer["Cache-Control"] == "no-store"
    body = answer.json()
    assert body["leases"][0]["namespace"] == bytes(namespace.digest).hex()
    assert set(body) >= {"leases", "ticket_key", "fence_seq", "fences_after"}
    services.generation_bump(namespace=namespace, reason="test", actor=None)
    held = [{"namespace": bytes(namespace.digest).hex(), "generation": 1}]
    again = call.post("/key-leases", {"held": held, "fence_seq": body["fence_seq"], "all": True}).json()
    assert again["fences_after"][0]["min_gen"] == again["leases"][0]["generation"] == 2


def test_a_fenced_nodes_lease_is_refused_and_the_refusal_is_an_event(caller):
    a_namespace()
    call = caller("node", kind="node", holder=a_node(state="fenced", wanted="fenced"))
    before = actions()
    answer = call.post("/key-leases", {"held": [], "fence_seq": 0, "all": True})
    assert (answer.status_code, answer.json()["code"]) == (409, "node-fenced")
    assert "leases" not in answer.json()
    assert actions()[len(before) :] == ["access.refused"]


def test_a_tenants_gateway_renews_leases_of_its_tenant_only(caller):
    mine, model = a_tenant(), a_model()
    own = a_namespace(mine, model)
    a_namespace(a_tenant(), model)
    answer = caller("gateway", tenant=mine, kind="gateway", holder="g-1").post("/key-leases", {"all": True})
    assert [x["namespace"] for x in answer.json()["leases"]] == [bytes(own.digest).hex()]


@pytest.mark.parametrize(
    ("path", "body", "code", "pointer"),
    [
        ("/tenants", {"slug": "a", "name": "b", "colour": 1}, "unknown-field", "/colour"),
        ("/tenants", {"name": "b"}, "validation-failed", "/slug"),
        ("/tenants", {"slug": "Ä", "name": "b"}, "validation-failed", "/slug"),
        ("/tenants", {"slug": "a\0", "name": "b"}, "unstorable-text", "/slug"),
        ("/tenants", {"slug": "a", "name": "b", "retention": {"x": -1}}, "out-of-range", "/retention/x"),
        ("/tenants", [], "validation-failed", "/"),
        ("/tenants", "x", "validation-failed", "/"),
        ("/models", {"name": "m", "config": {}}, "config-unusable", "/config"),
        ("/models", {"name": "m", "config": LLAMA, "block_tokens": 10**30}, "out-of-range", "/block_tokens"),
        ("/namespaces:resolve", {"tenant": "none", "model": "m"}, "not-found", None),
        ("/models", {"name": "m", "config": {"x": "a\0"}}, "unstorable-text", "/config/x"),
        ("/models", {"name": "m", "config": {"x": ["\ud800"]}}, "unstorable-text", "/config/x/0"),
    ],
)
def test_bad_bodies_are_refused_field_by_field_with_no_effect(caller, path, body, code, pointer):
    call = caller("operator")
    before = actions()
    answer = call.post(path, body)
    assert answer.json()["code"] == code
    assert 400 <= answer.status_code < 500
    if pointer:
        assert pointer in {e["pointer"] for e in answer.json()["errors"]}
    assert [a for a in actions()[len(before) :] if a != "access.refused"] == []


def test_what_is_not_json_is_refused(caller):
    call = caller("operator")
    headers = {"Authorization": f"Bearer {call.bearer}"}
    broken = call.client.post("/api/v1/tenants", b"{", content_type="application/json", headers=headers)
    assert (broken.status_code, broken.json()["code"]) == (400, "bad-request")
    form = call.client.post("/api/v1/tenants", b"a=b", content_type="text/csv", headers=headers)
    assert (form.status_code, form.json()["code"]) == (415, "unsupported-media-type")


def test_too_deep_and_too_large_bodies_are_refused(caller):
    call = caller("operator")
    headers = {"Authorization": f"Bearer {call.bearer}"}
    for raw, status, code in (
        (b"[" * 100_000 + b"]" * 100_000, 400, "body-too-deep"),
        (b'{"name":"m","config":' + b'{"a":' * 80 + b"1" + b"}" * 81, 400, "body-too-deep"),
        (b'{"name":"' + b"x" * 1_100_000 + b'"}', 413, "body-too-large"),
        (b'{"name":"m","config":{"x":1e999}}', 400, "out-of-range"),
        (b'{"name":"m","name":"n","config":{}}', 400, "duplicate-field"),
    ):
        answer = call.client.post("/api/v1/models", raw, content_type="application/json", headers=headers)
        assert answer.status_code == status
        assert code in (None, answer.json()["code"])
    assert call.get("/tenants/a%00b").status_code == 400


def test_the_registry_decides_for_every_role(caller, anonymous):
    """Each route and method of tenancy: who is not in its rule gets 403, nobody gets 401, other methods are 405."""
    addresses = {
        "tenants": "/tenants", "tenant": "/tenants/x", "models": "/models", "model": "/models/x",
        "epochs": "/models/x/epochs",
        "namespaces-resolve": "/namespaces:resolve", "key-leases": "/key-leases",
    }  # fmt: skip
    roles = ("viewer", "operator", "approver", "tenant-admin", "tenant-member", "auditor", "gateway", "node")
    kinds = {"gateway": "gateway", "node": "node"}
    holders = {"node": a_node()}
    callers = {role: caller(role, kind=kinds.get(role, "service"), holder=holders.get(role, role)) for role in roles}
    for name, path in addresses.items():
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            rule = access.rule_for(name, method)
            for role, call in callers.items():
                status = call(method, path, {} if method != "GET" else None).status_code
                if rule is None:
                    assert status == 405, (name, method, role)
                else:
                    assert (status == 403) != (role in rule.roles), (name, method, role, status)
            assert anonymous(method, path).status_code == (405 if rule is None else 401), (name, method)


def test_an_audited_call_leaves_exactly_one_event_also_when_refused(caller):
    call, viewer = caller("operator"), caller("viewer")
    before = len(actions())
    call.post("/tenants", {"slug": some("t"), "name": "x"}, **{"X-Request-ID": "r-1"})
    assert len(actions()) == before + 1
    viewer.post("/tenants", {"slug": some("t"), "name": "x"})
    assert actions()[before + 1 :] == ["access.refused"]
    call.get("/tenants")
    assert len(actions()) == before + 2
    event = json.loads(bytes(Event.objects.only("id", "body").get(request_id="r-1").body))
    assert (event["request_id"], event["outcome"], event["actor"]["roles"]) == ("r-1", "success", ["operator"])


def test_a_tenant_is_changed_by_who_has_seen_it(caller):
    call = caller("operator", "viewer")
    call.post("/tenants", {"slug": "acme", "name": "Acme", "classes": ["a"]})
    tag = call.get("/tenants/acme")["ETag"]
    assert call("PATCH", "/tenants/acme", {"name": "B"}).json()["code"] == "etag-required"
    for stale in ('"x"', f"W/{tag}", tag.strip('"')):
        refused = call("PATCH", "/tenants/acme", {"name": "B"}, **{"If-Match": stale})
        assert (refused.status_code, refused.json()["code"]) == (412, "etag-mismatch")
    rehearsed = call("PATCH", "/tenants/acme?validate_only=true", {"name": "B"}, **{"If-Match": tag})
    assert rehearsed.json()["name"] == "B"
    assert call.get("/tenants/acme")["ETag"] == tag
    changed = call("PATCH", "/tenants/acme", {"name": "B", "isolation": "node"}, **{"If-Match": tag})
    assert (changed.status_code, changed.json()["name"], changed.json()["classes"]) == (200, "B", ["a"])
    assert changed["ETag"] == call.get("/tenants/acme")["ETag"] != tag
    assert call("PATCH", "/tenants/acme", {"name": "C"}, **{"If-Match": tag}).status_code == 412
    bad = call("PATCH", "/tenants/acme", {"classes": ["a b"]}, **{"If-Match": "*"})
    assert bad.json()["errors"][0]["pointer"] == "/classes"
    for field in ("slug", "id", "state"):
        assert call("PATCH", "/tenants/acme", {field: "x"}, **{"If-Match": "*"}).json()["code"] == "unknown-field"
    assert actions().count("tenant.changed") == 1


def test_models_and_epochs_are_listed_and_read(caller):
    call = caller("operator", "viewer")
    model = a_model(epochs=3)
    assert [m["name"] for m in call.get("/models").json()["items"]] == [model.name]
    assert call.get(f"/models/{model.name}").json()["bytes_per_token"] == 1024
    assert call.get("/models/none").status_code == 404
    page = call.get(f"/models/{model.name}/epochs?limit=2").json()
    assert ([e["epoch"] for e in page["items"]], page["approximate_total"]) == ([1, 2], 3)
    rest = call.get(f"/models/{model.name}/epochs?limit=2&cursor={page['next']}").json()
    assert [e["epoch"] for e in rest["items"]] == [3]
    assert call.get(f"/models?cursor={page['next']}").json()["code"] == "cursor-invalid"


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("x=1", "/x"),
        ("vaildate_only=true", "/vaildate_only"),
        ("validate_only=true&validate_only=false", "/validate_only"),
    ],
)
def test_a_query_parameter_that_is_not_known_has_no_effect_at_all(caller, query, pointer):
    answer = caller("operator").post(f"/tenants?{query}", {"slug": "acme", "name": "x"})
    assert answer.json()["code"] == "unknown-parameter"
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert caller("viewer").get("/tenants?limit=1&limit=2").json()["code"] == "unknown-parameter"
    assert caller("viewer").get("/tenants/acme").status_code == 404
