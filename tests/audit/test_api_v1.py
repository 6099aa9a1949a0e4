"""REST of approvals."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from tenants import services
from tests.tenants.making import a_tenant, principal, some
from tests.tenants.persons import Person

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def a_group():
    now = datetime.now(UTC)
    return services.share_group_request(
        owner=a_tenant().slug, name=some("g"), audience=[a_tenant().slug], expires_at=now + timedelta(days=9),
        reason="why", actor=principal(None, "operator"), now=now,
    )  # fmt: skip


def test_bad_questions_are_refused():
    call = Person("approver")
    assert call.get("/approvals?state=strange").json()["code"] == "validation-failed"
    assert call.get(f"/approvals/{uuid.uuid4()}").json()["code"] == "not-found"
    assert call.post(f"/approvals/{uuid.uuid4()}:approve", {}).json()["code"] == "not-found"
    assert call.post(f"/approvals/{uuid.uuid4()}:approve", {"why": 1}).json()["code"] == "unknown-field"
    assert Person("operator").post(f"/approvals/{uuid.uuid4()}:approve", {}).json()["code"] == "forbidden"


def test_what_waits_is_listed_read_and_decided_once():
    group = a_group()
    call = Person("approver")
    (one,) = call.get("/approvals?state=open").json()["items"]
    assert (one["kind"], one["object_id"], one["risk"], one["state"]) == ("share_group", str(group.id), "R2", "open")
    assert one["what"]["audience"]
    address = f"/approvals/{one['id']}"
    read = call.get(address)
    assert read.json() == one
    assert read["ETag"]
    assert call.post(f"{address}:approve?validate_only=true", {}).json()["state"] == "approved"
    assert call.get(address).json()["state"] == "open"
    assert call.post(f"{address}:deny", {"reason": "too wide"}).json()["state"] == "denied"
    assert call.post(f"{address}:approve", {}).json()["code"] == "approval-decided"
    assert services.share_groups_sweep(now=datetime.now(UTC)) == 1
    group.refresh_from_db()
    assert group.state == "denied"
