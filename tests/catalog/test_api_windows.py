"""REST of deny windows: the fleet's people make them for all, a tenant's for its own, and nobody sees another's."""

import uuid

import pytest

from tests.catalog.test_api_operations import codes
from tests.tenants.conftest import caller  # noqa: F401
from tests.tenants.making import a_tenant

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
SCOPES = ("deny-windows:write", "deny-windows:read", "deny-windows:destroy")
NIGHT = {"cron": "0 22 * * *", "minutes": 480, "reason": "nobody is here"}


def test_windows_are_made_seen_and_removed(caller):  # noqa: F811
    staff = caller("destructive-operator", scopes=SCOPES)
    answer = staff("POST", "/deny-windows", NIGHT)
    assert answer.status_code == 201, answer.content
    made = answer.json()
    assert (made["from_risk"], made["cron"]) == ("R1", "0 22 * * *")
    assert staff.get(f"/deny-windows/{made['id']}").json()["id"] == made["id"]
    always = staff("POST", "/deny-windows", {**NIGHT, "cron": "* * * * *", "from_risk": "R3"}).json()
    assert always["open_until"] is not None
    assert [one["id"] for one in staff.get("/deny-windows").json()["items"]] == [always["id"], made["id"]]
    assert staff("DELETE", f"/deny-windows/{made['id']}?validate_only=true").status_code == 204
    assert staff("DELETE", f"/deny-windows/{made['id']}").status_code == 204
    assert codes(staff.get(f"/deny-windows/{made['id']}")) == (404, "not-found")
    assert codes(staff("DELETE", f"/deny-windows/{uuid.uuid4()}")) == (404, "not-found")


def test_refusals(caller):  # noqa: F811
    staff = caller("destructive-operator", scopes=SCOPES)
    assert codes(staff("POST", "/deny-windows", {**NIGHT, "cron": "every day"})) == (400, "validation-failed")
    assert codes(staff("POST", "/deny-windows", {**NIGHT, "tenant": "nobody-here"})) == (404, "not-found")
    assert codes(caller("viewer")("POST", "/deny-windows", NIGHT)) == (403, "forbidden")
    weak = caller("destructive-operator", scopes=("deny-windows:write",))
    made = weak("POST", "/deny-windows", NIGHT).json()
    assert codes(weak("DELETE", f"/deny-windows/{made['id']}")) == (403, "scope-missing")


def test_a_tenants_people_have_windows_of_their_own(caller):  # noqa: F811
    tenant, other = a_tenant(), a_tenant()
    mine = caller("tenant-admin", tenant=tenant, scopes=SCOPES)
    theirs = caller("tenant-admin", tenant=other, scopes=SCOPES)
    made = mine("POST", "/deny-windows", NIGHT).json()
    assert made["tenant_id"] == str(tenant.id)
    assert codes(mine("POST", "/deny-windows", {**NIGHT, "tenant": other.slug})) == (404, "not-found")
    assert codes(theirs.get(f"/deny-windows/{made['id']}")) == (404, "not-found")
    assert theirs.get("/deny-windows").json()["items"] == []
    assert codes(theirs("DELETE", f"/deny-windows/{made['id']}")) == (404, "not-found")
    assert mine("DELETE", f"/deny-windows/{made['id']}").status_code == 204
