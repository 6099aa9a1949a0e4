"""The access review: who can delete what today."""

from datetime import UTC, datetime, timedelta

import pytest

from tenants import services
from tenants.models import Token
from tests.tenants.making import a_tenant, a_user, some, unrecorded
from tests.tenants.persons import Person

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def review(call):
    answer = call.get("/audit/access-review")
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_powers_people_and_tokens_are_listed():
    tenant = a_tenant()
    admin = a_user(username=some("adm"), tenant=tenant, roles=["tenant-admin"])
    a_user(username=some("view"), roles=["viewer"])
    good, _ = services.token_issue("service", roles=["operator"], scopes=["people:destroy", "nodes:read"])
    services.token_issue("service", roles=["operator"], scopes=["nodes:read"])
    said = review(Person("auditor"))
    powers = {power["scope"]: power for power in said["powers"]}
    assert "DELETE person" in powers["people:destroy"]["calls"]
    assert "tenant-admin" in powers["people:destroy"]["roles"]
    assert admin.username in [p["username"] for p in said["people"]]
    assert "viewer" not in {role for p in said["people"] for role in p["roles"] if p["roles"] == ["viewer"]}
    assert [t["id"] for t in said["tokens"]] == [good.id]
    assert (said["complete"], said["unused_tokens"]) == (True, [])


def test_tokens_that_nobody_used_for_ninety_days_are_named():
    old, _ = services.token_issue("service", roles=["viewer"])
    services.token_issue("service", roles=["viewer"])
    with unrecorded():
        at = datetime.now(UTC) - timedelta(days=91)
        Token.objects.filter(id=old.id).update(created_at=at, expires_at=datetime.now(UTC) + timedelta(days=9))
    assert [t["id"] for t in review(Person("auditor"))["unused_tokens"]] == [old.id]


def test_attempts_to_approve_ones_own_wishes_are_told():
    call = Person("operator", "approver", "viewer")
    body = {
        "owner_tenant": a_tenant().slug, "name": some("g"), "audience": [a_tenant().slug], "reason": "why",
        "expires_at": (datetime.now(UTC) + timedelta(days=9)).isoformat(),
    }  # fmt: skip
    assert call.post("/share-groups", body).status_code in (201, 202)
    (waiting,) = call.get("/approvals?state=open").json()["items"]
    assert call.post(f"/approvals/{waiting['id']}:approve", {}).json()["code"] == "approval-own"
    (one,) = review(Person("auditor"))["own_approvals"]
    assert one["data"]["code"] == "approval-own"


def test_a_tenants_people_see_their_own_and_others_nothing():
    mine, other = a_tenant(), a_tenant()
    theirs = a_user(username=some("x"), tenant=other, roles=["tenant-admin"])
    call = Person("tenant-admin", tenant=mine)
    names = [p["username"] for p in review(call)["people"]]
    assert names == [call.user.username]
    assert theirs.username not in names
    assert Person("viewer").get("/audit/access-review").json()["code"] == "forbidden"
