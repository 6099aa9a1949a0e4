"""REST of reuse: bad input first, then adapters, lineage, roll-outs, explanations and share groups."""

import json
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from audit.models import Event
from tenants import services
from tests.tenants.conftest import Caller
from tests.tenants.making import LLAMA, a_model, a_namespace, a_tenant, a_user, some
from tests.tenants.persons import Person

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
ALL = ("*:read", "*:write", "share-groups:destroy")


def actions():
    return [json.loads(bytes(e.body))["action"] for e in Event.objects.only("id", "body").order_by("id")]


def person(*roles):
    """Somebody of the fleet with a token of their own, good for everything."""
    user = a_user(roles=list(roles))
    return Caller(services.token_issue("service", roles=roles, user=user, scopes=ALL)[1])


def soon(**fields):
    return (datetime.now(UTC) + timedelta(**fields)).isoformat()


def asked(call, owner, *others, **fields):
    body = {"owner_tenant": owner.slug, "name": some("g"), "audience": [t.slug for t in others],
            "expires_at": soon(days=9), "reason": "one contract", **fields}  # fmt: skip
    return call.post("/share-groups", body)


# --- bad input ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"shares": {"1": 50, "2": 49}}, 422, "rollout-shares"),
        ({"shares": {"1": -10, "2": 110}}, 422, "rollout-shares"),
        ({"shares": {}}, 422, "rollout-shares"),
        ({"shares": {"1": 50, "9": 50}}, 422, "epoch-unknown"),
        ({"shares": {"one": 100}}, 422, "epoch-unknown"),
        ({"shares": {"01": 100}}, 422, "epoch-unknown"),
        ({"shares": {"1": 33.5, "2": 66.5}}, 400, "validation-failed"),
        ({"shares": {"1": 100}, "horizon_seconds": 1}, 400, "out-of-range"),
        ({"shares": {"1": 100}, "colour": 1}, 400, "unknown-field"),
        ({}, 400, "validation-failed"),
    ],
)
def test_shares_that_make_no_sense(body, status, code):
    model, call = a_model(epochs=2), person("operator")
    before = actions()
    answer = call("PUT", f"/models/{model.name}/rollout", body, **{"If-Match": "*"})
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert [a for a in actions()[len(before) :] if a != "access.refused"] == []


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"audience": ["nobody"]}, 422, "audience-unknown"),
        ({"owner_tenant": "nobody"}, 404, "not-found"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, 422, "expiry-range"),
        ({"expires_at": soon(days=181)}, 422, "expiry-range"),
        ({"expires_at": "tomorrow"}, 400, "validation-failed"),
        ({"name": "Ä"}, 400, "validation-failed"),
        ({"audience": []}, 400, "out-of-range"),
        ({"audience": "all"}, 400, "validation-failed"),
    ],
)
def test_share_groups_that_cannot_be(fields, status, code):
    answer = asked(person("operator"), a_tenant(), a_tenant(), **fields)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_two_persons_decide_once():
    both, other = Person("operator", "approver"), Person("approver")
    group = asked(both, a_tenant(), a_tenant()).json()
    address = f"/share-groups/{group['id']}"
    assert both.post(f"{address}:approve", {}).json()["code"] == "approval-own"
    assert other.post(f"{address}:approve", {}).json()["state"] == "approved"
    assert other.post(f"{address}:approve", {}).json()["code"] == "approval-decided"
    assert person("approver").post(f"{address}:approve", {}).json()["code"] == "person-needed"
    other.prove(ago=301)
    assert other.post(f"{address}:approve", {}).json()["code"] == "step-up-required"
    other.prove()
    missing = f"/share-groups/{uuid.uuid4()}"
    assert other.post(f"{missing}:approve", {}).json()["code"] == "not-found"
    assert other.post(f"{missing}:revoke", {"reason": "x"}).json()["code"] == "not-found"
    assert other.post(f"{address}:revoke", {}).json()["code"] == "validation-failed"
    assert other.post(f"{address}:revoke", {"reason": "over"}).json()["state"] == "revoked"
    assert other.post(f"{address}:revoke", {"reason": "over"}).json()["code"] == "share-group-inactive"


def test_models_that_look_alike_and_unknown_bases():
    call = person("operator")
    assert call.post("/models", {"name": "org/Llama-1", "config": LLAMA}).status_code == 201
    for name in ("org/llama-1", "org/Llаma-1", "org/Llama_1"):
        answer = call.post("/models", {"name": name, "config": LLAMA})
        assert (answer.status_code, answer.json()["code"]) == (409, "model-name-alike")
    answer = call.post("/models", {"name": "x", "config": LLAMA, "base": "nothing"})
    assert answer.json()["code"] == "model-unknown-base"


# --- what works -------------------------------------------------------------------------------


def test_a_roll_out_is_read_changed_and_not_changed_from_an_old_page():
    model, call = a_model(name="org/model", epochs=2), person("operator")
    address = f"/models/{model.name}/rollout"
    first = call.get(address)
    assert (first.json()["shares"], first.json()["version"]) == ({"2": 100}, 0)
    body = {"shares": {"1": 90, "2": 10}}
    assert call("PUT", address, body).json()["code"] == "etag-required"
    rehearsed = call("PUT", f"{address}?validate_only=true", body, **{"If-Match": first["ETag"]})
    assert rehearsed.json()["version"] == 1
    assert call.get(address)["ETag"] == first["ETag"]
    done = call("PUT", address, body, **{"If-Match": first["ETag"]})
    assert (done.status_code, done.json()["shares"]) == (200, {"1": 90, "2": 10})
    assert call("PUT", address, body, **{"If-Match": first["ETag"]}).json()["code"] == "etag-mismatch"
    assert call.get(address)["ETag"] == done["ETag"] != first["ETag"]
    assert actions().count("rollout.changed") == 1
    assert call.get("/models/nothing/rollout").json()["code"] == "not-found"


def test_adapters_are_their_bytes():
    call, model = person("operator"), a_model()
    body = {"model": model.name, "name": "lora", "digest": "sha256:1"}
    got = [call.post("/adapters", {**body, **more}).json()["adapter_epoch"] for more in (
        {}, {"digest": "sha256:2"}, {}, {"name": "other"},
    )]  # fmt: skip
    assert got == [1, 2, 1, 1]
    items = call.get("/adapters").json()["items"]
    assert [(a["name"], a["adapter_epoch"], a["shared"]) for a in items] == [("lora", 1, True), ("lora", 2, True)]
    assert call.post("/adapters", {**body, "digest": "a b"}).json()["code"] == "validation-failed"
    assert call.post("/adapters", {**body, "model": "nothing"}).json()["code"] == "not-found"


def test_a_tenants_adapter_is_its_own(caller):
    mine, other, model = a_tenant(), a_tenant(), a_model()
    body = {"model": model.name, "name": "lora", "digest": "sha256:1"}
    assert caller("tenant-admin", tenant=mine).post("/adapters", body).json()["adapter_epoch"] == 1
    assert caller("tenant-admin", tenant=other).get("/adapters").json()["items"] == []
    resolve = {"model": model.name, "adapter": "sha256:1"}
    calls = [caller("tenant-member", tenant=t) for t in (mine, other)]
    own, foreign = (
        c.post("/namespaces:resolve", {**resolve, "tenant": t.slug}, **{"X-Request-ID": "same"})
        for c, t in zip(calls, (mine, other), strict=True)
    )
    assert (own.status_code, foreign.status_code) == (200, 404)
    for change in ({"tenant": other.slug, "adapter": "sha256:nothing"}, {"tenant": mine.slug}, {"tenant": "nobody"}):
        absent = calls[1].post("/namespaces:resolve", {**resolve, **change}, **{"X-Request-ID": "same"})
        assert (absent.status_code, absent.content) == (404, foreign.content)


def test_lineage_and_uses_are_the_callers(caller):
    mine, other, base = a_tenant(), a_tenant(), a_model()
    variant = services.model_register(name="org/small", config=LLAMA, base=base.name, kv_dtype="fp8")
    services.epoch_create(model=variant, weights_digest="w")
    a_namespace(mine, variant), a_namespace(other, variant)
    fleet, own = caller("viewer"), caller("tenant-member", tenant=mine)
    said = fleet.get("/models/org/small/lineage").json()
    assert [b["name"] for b in said["bases"]] == [base.name]
    assert {u["tenant"] for u in said["uses"]} == {mine.slug, other.slug}
    assert {u["tenant"] for u in own.get("/models/org/small/lineage").json()["uses"]} == {mine.slug}
    assert [u["tenant"] for u in own.get("/models/org/small/uses").json()["items"]] == [mine.slug]
    first = fleet.get("/models/org/small/uses?limit=1").json()
    assert len(fleet.get(f"/models/org/small/uses?limit=1&cursor={first['next']}").json()["items"]) == 1
    assert own.get("/models/nothing/lineage").json()["code"] == "not-found"
    assert fleet.get("/models/org/small").json()["base"] == base.name
    assert fleet.get("/models/org/small/epochs").json()["items"][0]["epoch"] == 1


def test_reuse_is_explained_and_foreign_is_absent(caller):
    mine, other, model = a_tenant(), a_tenant(), a_model()
    one, two, foreign = a_namespace(mine, model), a_namespace(mine, model, label="x"), a_namespace(other, model)
    fleet, own = caller("viewer"), caller("tenant-member", tenant=mine)

    def ask(call, a, b):
        return call.get(f"/explain-reuse?a={a}&b={b}")

    said = ask(own, one.id, bytes(two.digest).hex()).json()
    assert [(d["code"], d["a"], d["b"]) for d in said["fields"]] == [("label", "", "x")]
    assert said["words"] == "They share nothing, because of label."
    assert [d["code"] for d in ask(fleet, one.id, foreign.id).json()["fields"]] == ["scope"]
    absent = ask(own, one.id, uuid.uuid4())
    for b in (foreign.id, bytes(foreign.digest).hex(), "nonsense", ""):
        answer = ask(own, one.id, b)
        assert answer.status_code == 404
        same = ("type", "title", "status", "detail", "code", "errors")
        assert [answer.json()[k] for k in same] == [absent.json()[k] for k in same]
    assert own.get(f"/explain-reuse?a={one.id}").json()["code"] == "not-found"
    assert own.get(f"/explain-reuse?a={one.id}&b={two.id}&c=1").json()["code"] == "unknown-parameter"


def test_members_share_until_it_is_revoked_and_others_see_nothing(caller):
    one, two, third, model = a_tenant(), a_tenant(), a_tenant(), a_model()
    operator, approver = person("operator"), Person("approver")
    group = asked(operator, one, two).json()
    callers = [caller("tenant-admin", tenant=t, scopes=ALL) for t in (one, two, third)]

    def resolve():
        body = {"model": model.name, "share_group": group["id"]}
        return [
            c.post("/namespaces:resolve", {**body, "tenant": t.slug})
            for c, t in zip(callers, (one, two, third), strict=True)
        ]

    assert [a.json().get("code") for a in resolve()] == ["share-group-inactive", "share-group-inactive", "not-found"]
    approver.post(f"/share-groups/{group['id']}:approve", {})
    shared = [a.json() for a in resolve()]
    assert shared[0] == shared[1]
    assert shared[2]["code"] == "not-found"
    seen = [c.get("/share-groups").json()["items"] for c in callers]
    assert [[g["audience"] for g in items] for items in seen] == [[sorted([one.slug, two.slug])], [[two.slug]], []]
    assert [c.get(f"/share-groups/{group['id']}").status_code for c in callers] == [200, 200, 404]
    ends = [c.post(f"/share-groups/{group['id']}:revoke", {"reason": "over"}) for c in callers[::-1]]
    assert [a.status_code for a in ends] == [404, 404, 200]
    assert [a.json()["code"] for a in resolve()] == ["share-group-inactive", "share-group-inactive", "not-found"]
    kinds = [a for a in actions() if a.startswith("sharing.")]
    assert kinds == ["sharing.requested", "sharing.approved", "sharing.revoked"]


def test_a_longer_page_asks_the_database_no_more_often(caller):
    one, two, base = a_tenant(), a_tenant(), a_model()
    requester, reader = Person("operator"), caller("viewer")
    for tenant in (one, two):
        assert asked(requester, one, two).status_code == 201
        resolve = {"tenant": tenant.slug, "model": base.name}
        assert caller("tenant-member", tenant=tenant).post("/namespaces:resolve", resolve).status_code == 200

    def queries(path):
        reader.get(path)
        with CaptureQueriesContext(connection) as found:
            items = reader.get(path).json()["items"]
        return len(items), len(found)

    for path in ("/share-groups", f"/models/{base.name}/uses"):
        (short, few), (long, many) = queries(f"{path}?limit=1"), queries(path)
        assert (short, long) == (1, 2), path
        assert few - many in (0, 1), path  # a page that is not the whole list may count it
