"""REST of plans, deletions, operations, receipts and certificates: refusals first, then the whole way of a request."""

import uuid

import pytest

from catalog.models import Operation
from tenants.models import Namespace
from tests.tenants.conftest import caller  # noqa: F401
from tests.tenants.making import a_model, a_namespace, a_tenant

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
SCOPES = ("deletions:write", "deletions:read", "operations:read")


@pytest.fixture(autouse=True)
def _nobody(settings):
    settings.TASK_SENDER = "tests.audit.sealed.nobody"


def codes(answer):
    return answer.status_code, answer.json()["code"]


def key():
    return {"Idempotency-Key": str(uuid.uuid4())}


@pytest.fixture
def tenant(db):
    made = a_tenant(erasure_scope="label")
    model = a_model()
    for label in ("a", "b"):
        a_namespace(made, model, label=label)
    return made


@pytest.fixture
def staff(caller):  # noqa: F811
    return caller("destructive-operator", "operator", scopes=SCOPES)


def plan(call, **selector):
    answer = call("POST", "/deletion-plans", {"selector": selector})
    assert answer.status_code == 201, answer.content
    return answer.json()


def test_what_is_wrong_is_named_and_nothing_is_planned(staff, tenant):
    for body, code in [
        ({"selector": {}}, (422, "selector-empty")),
        ({"selector": {"tenant": "no-such"}}, (404, "not-found")),
        ({"selector": {"tenant": tenant.slug, "session": "s"}}, (422, "not-separable")),
        ({"selector": {"tenant": tenant.slug, "older_than": "2026-01-01T00:00:00Z"}}, (422, "collateral-needed")),
        ({"selector": {"tennant": tenant.slug}}, (400, "unknown-field")),
        ({"selector": {"subject": "somebody@example.org"}}, (400, "validation-failed")),
    ]:
        assert codes(staff("POST", "/deletion-plans", body)) == code, body


def test_who_may_only_look_deletes_nothing(caller, tenant):  # noqa: F811
    looks = caller("viewer", "operator")
    found = plan(looks, tenant=tenant.slug, label="a")
    body = {"plan_id": found["id"], "plan_hash": found["plan_hash"]}
    assert codes(looks("POST", "/deletions", body, **key())) == (403, "forbidden")
    assert codes(caller("viewer")("POST", "/deletion-plans", {"selector": {"tenant": tenant.slug}})) == (
        403, "forbidden",
    )  # fmt: skip


def test_a_deletion_is_answered_with_where_it_stands(staff, tenant):
    found = plan(staff, tenant=tenant.slug, label="a")
    assert (found["risk"], found["namespaces"], found["friction"]["phrase"]) == ("R1", 1, False)
    assert staff.get(f"/deletion-plans/{found['id']}").json() == found
    body = {"plan_id": found["id"], "plan_hash": found["plan_hash"], "reason": "asked for"}
    assert codes(staff("POST", "/deletions", body)) == (400, "idempotency-key-required")
    rehearsed = staff("POST", "/deletions?validate_only=true", body, **key())
    assert rehearsed.status_code == 202
    assert not Operation.objects.exists()
    once = key()
    answer = staff("POST", "/deletions", body, **once)
    assert answer.status_code == 202, answer.content
    said = answer.json()
    assert answer["Location"] == f"/api/v1/operations/{said['id']}"
    assert answer["Retry-After"] == "1"
    assert (said["state"], said["done"], said["generation"]) == ("fenced", False, 1)
    assert said["t_fence"] is not None
    assert staff("POST", "/deletions", body, **once).json()["id"] == said["id"]
    assert Operation.objects.count() == 1
    listed = staff.get("/operations?state=open").json()["items"]
    assert [one["id"] for one in listed] == [said["id"]]
    assert staff.get("/operations?state=completed").json()["items"] == []
    assert codes(staff.get("/operations?state=gone")) == (400, "validation-failed")


def test_a_whole_tenant_needs_what_its_risk_asks_for(staff, caller, tenant):  # noqa: F811
    found = plan(staff, tenant=tenant.slug)
    body = {"plan_id": found["id"], "plan_hash": found["plan_hash"], "reason": "asked for"}
    assert codes(staff("POST", "/deletions", body, **key())) == (403, "scope-missing")
    strong = caller("destructive-operator", scopes=(*SCOPES, "deletions:destroy"))
    assert codes(strong("POST", "/deletions", body, **key())) == (422, "confirm-phrase-wrong")
    body["confirm_phrase"] = found["confirm_phrase"]
    assert strong("POST", "/deletions", body, **key()).status_code == 202


def test_minds_are_changed_and_each_change_is_a_generation(staff, caller, tenant):  # noqa: F811
    found = plan(staff, tenant=tenant.slug, label="a")
    body = {"plan_id": found["id"], "plan_hash": found["plan_hash"]}
    path = f"/operations/{staff('POST', '/deletions', body, **key()).json()['id']}"
    paused = staff("POST", f"{path}:pause").json()
    assert (paused["paused"], paused["generation"]) == (True, 2)
    assert staff("POST", f"{path}:resume").json()["generation"] == 3
    tag = staff.get(path)["ETag"]
    answer = staff("PATCH", path, {"throttle": 1000}, **{"If-Match": tag})
    assert (answer.status_code, answer.json()["throttle"]) == (200, 1000)
    assert codes(staff("PATCH", path, {"throttle": 2000}, **{"If-Match": tag})) == (412, "etag-mismatch")
    assert codes(staff("POST", f"{path}:stop")) == (403, "scope-missing")
    strong = caller("destructive-operator", scopes=(*SCOPES, "deletions:destroy"))
    assert strong("POST", f"{path}:stop").json()["state"] == "stopped"
    assert codes(strong("POST", f"{path}:pause")) == (409, "operation-over")


def test_a_tenants_people_reach_and_see_their_own(caller, tenant):  # noqa: F811
    other = a_tenant(erasure_scope="label")
    a_namespace(other, label="a")
    mine = caller("tenant-admin", tenant=tenant, scopes=SCOPES)
    theirs = caller("tenant-admin", tenant=other, scopes=SCOPES)
    found = plan(mine, label="a")
    assert found["tenants"] == [tenant.slug]
    assert codes(mine("POST", "/deletion-plans", {"selector": {"tenant": other.slug}})) == (404, "not-found")
    body = {"plan_id": found["id"], "plan_hash": found["plan_hash"]}
    assert codes(theirs("POST", "/deletions", body, **key())) == (404, "not-found")
    answer = mine("POST", "/deletions", body, **key())
    assert answer.status_code == 202, answer.content
    path = f"/operations/{answer.json()['id']}"
    assert mine.get(path).status_code == 200
    assert codes(theirs.get(path)) == codes(theirs.get(f"/operations/{uuid.uuid4()}")) == (404, "not-found")
    assert theirs.get("/operations").json()["items"] == []


def test_one_subject_goes_in_one_call_where_the_risk_allows(caller):  # noqa: F811
    tenant = a_tenant(erasure_scope="subject")
    namespace = a_namespace(tenant, subject="somebody")
    call = caller("destructive-operator", scopes=SCOPES)
    path = f"/tenants/{tenant.slug}/subjects/{namespace.subject}"
    answer = call("DELETE", path)
    assert answer.status_code == 202, answer.content
    namespace.refresh_from_db()
    assert namespace.min_gen == 2
    assert codes(call("DELETE", f"/tenants/{tenant.slug}/subjects/{'0' * 64}")) == (409, "nothing-selected")


def test_a_whole_tenant_goes_in_one_call_if_its_phrase_is_said(caller, tenant):  # noqa: F811
    call = caller("destructive-operator", scopes=(*SCOPES, "tenants:destroy", "deletions:destroy"))
    path = f"/tenants/{tenant.slug}"
    said = "?confirm_phrase=delete%200%20objects"
    assert codes(call("DELETE", path + "?confirm_phrase=delete")) == (422, "reason-needed")
    assert codes(call("DELETE", path + "?confirm_phrase=delete&reason=over")) == (422, "confirm-phrase-wrong")
    assert codes(call("DELETE", "/tenants/nobody" + said + "&reason=over")) == (404, "not-found")
    unscoped = caller("destructive-operator", scopes=(*SCOPES, "tenants:destroy"))
    assert codes(unscoped("DELETE", path + said + "&reason=over")) == (403, "scope-missing")
    assert call("DELETE", path + said + "&reason=over&validate_only=true").status_code == 202
    assert not Operation.objects.exists()
    answer = call("DELETE", path + said + "&reason=over")
    assert answer.status_code == 202, answer.content
    assert answer["Location"] == f"/api/v1/operations/{answer.json()['id']}"
    assert answer.json()["risk"] == "R2"
    assert set(Namespace.objects.filter(tenant=tenant).values_list("min_gen", flat=True)) == {2}
    grave = a_tenant(erasure_scope="class", classes=["restricted"])
    a_namespace(grave, a_model(), data_class="restricted")
    refused = call("DELETE", f"/tenants/{grave.slug}{said}&reason=over")
    assert codes(refused) == (409, "plan-needed")
    assert "restricted" in refused.json()["detail"]


def test_a_part_of_a_namespace_is_planned_when_it_is_said_what_becomes_of_the_rest(staff, tenant):
    prefix = {"tenant": tenant.slug, "prefix": ["ab" * 32]}
    for options in ({}, {"override_pins": True}):
        asked = staff("POST", "/deletion-plans", {"selector": prefix, "options": options})
        assert codes(asked) == (422, "collateral-needed")
    ahead = {"tenant": tenant.slug, "older_than": "2999-01-01T00:00:00Z"}
    refused = staff("POST", "/deletion-plans", {"selector": ahead, "options": {"collateral": "none"}})
    assert codes(refused) == (400, "validation-failed")
    for collateral in ("none", "namespace"):
        answer = staff("POST", "/deletion-plans", {"selector": prefix, "options": {"collateral": collateral}})
        assert answer.status_code == 201, answer.content
        assert (answer.json()["namespaces"], answer.json()["blocks"]) == (0, 0), "no block is there that it means"


def test_evidence_that_is_not_there_is_not_found(staff):
    for path in (f"/receipts/{uuid.uuid4()}", f"/certificates/{uuid.uuid4()}.json", f"/operations/{uuid.uuid4()}"):
        assert codes(staff.get(path)) == (404, "not-found")
    verdict = staff("POST", "/certificates:verify", {"certificate": {"body": {}, "note": "x"}}).json()
    assert (verdict["valid"], verdict["known"]) == (False, False)
