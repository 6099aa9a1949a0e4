"""REST of findings and of the end of a log."""

import pytest

from tests.audit.test_selectors import told
from tests.tenants.persons import APPROVER, OPERATOR, Person


@pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
def test_through_rest_it_needs_two_people_and_findings_are_listed(sealed):
    told(3)
    sealed()
    operator, approver = Person(*OPERATOR), Person(*APPROVER)
    asked = operator.post("/audit/epochs", {"reason": "restore", "note": "n"}, **{"Idempotency-Key": "e"})
    assert asked.status_code == 202, asked.json()
    path = f"/audit/epochs/{asked.json()['id']}/order"
    assert operator.get(path).json()["code"] == "epoch-not-approved"
    assert approver.post(f"/approvals/{asked.json()['id']}:approve", {"reason": ""}).status_code == 200
    order = operator.get(path).json()
    assert (order["kept"]["size"], order["reason"]) == (sealed.size, "restore")
    listed = approver.get("/audit/epochs").json()
    assert [(log["number"], log["ended"]) for log in listed["items"]] == [(1, False)]
    assert [one["state"] for one in listed["asked"]] == ["approved"]
    assert approver.get("/audit/findings?state=open").json()["items"] == []
    assert approver.get("/audit/findings?state=odd").json()["code"] == "validation-failed"
    assert operator.get("/audit/checkpoint?epoch=1").json()["epoch"] == 1
    assert operator.get("/audit/checkpoint?epoch=2").status_code == 404
    assert Person("auditor").post("/audit/epochs", {"reason": "restore"}).status_code == 403
