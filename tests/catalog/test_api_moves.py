"""REST of moves and pins: who may, what is answered, and nothing of another tenant."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from tests.tenants.conftest import caller  # noqa: F401
from tests.tenants.making import a_namespace, a_tenant

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
SOON = (datetime.now(UTC) + timedelta(hours=1)).isoformat()


def test_pins_are_made_listed_and_taken_away_each_tenant_its_own(caller):  # noqa: F811
    mine, other = a_tenant(), a_tenant()
    namespace, foreign = a_namespace(mine), a_namespace(other)
    scopes = ("pins:write", "pins:read")
    admin, fleet = caller("tenant-admin", tenant=mine, scopes=scopes), caller("operator", scopes=scopes)
    body = {"namespace": str(namespace.id), "until": SOON, "reason": "launch", "prefix": ["ab" * 32]}
    pin = admin("POST", "/pins", body)
    assert pin.status_code == 201, pin.content
    assert (pin.json()["whole"], pin.json()["blocks"]) == (False, 1)
    theirs = fleet("POST", "/pins", {"namespace": bytes(foreign.digest).hex(), "until": SOON}).json()
    assert [one["id"] for one in admin.get("/pins").json()["items"]] == [pin.json()["id"]]
    assert {one["id"] for one in fleet.get("/pins").json()["items"]} == {pin.json()["id"], theirs["id"]}
    assert [one["id"] for one in fleet.get(f"/pins?namespace={foreign.id}").json()["items"]] == [theirs["id"]]
    assert [one["id"] for one in fleet.get(f"/pins?namespace={theirs['digest']}").json()["items"]] == [theirs["id"]]
    assert fleet.get(f"/pins?namespace={'0' * 64}").json()["items"] == []
    assert [fleet.get(f"/pins?namespace={wrong}").status_code for wrong in ("x", "z" * 64)] == [400, 400]
    for id_ in (theirs["id"], uuid.uuid4()):
        assert admin.get(f"/pins/{id_}").status_code == 404
        assert admin("DELETE", f"/pins/{id_}").status_code == 404
    assert admin("POST", "/pins", {**body, "namespace": str(foreign.id)}).status_code == 404
    assert admin("DELETE", f"/pins/{pin.json()['id']}").status_code == 204
    assert admin("POST", "/pins", {**body, "prefix": ["ab"]}).status_code == 400


def test_moves_are_for_those_who_run_the_fleet(caller):  # noqa: F811
    tenant = a_tenant()
    body = {"selector": {"tenant": tenant.slug}, "from_tier": "hbm", "to_tier": "ssd"}
    scopes = ("migrations:write", "prefetches:write", "nodes:write")
    admin, fleet = caller("tenant-admin", tenant=tenant, scopes=scopes), caller("operator", scopes=scopes)
    key = {"Idempotency-Key": str(uuid.uuid4())}
    assert admin("POST", "/migrations", body, **key).status_code == 403
    answer = fleet("POST", "/migrations", body, **key)
    assert (answer.status_code, answer.json()["code"]) == (409, "nothing-selected")
    late = {"namespace": "ab" * 32, "prefix": ["ab" * 32], "to_node": "n", "to_tier": "hbm", "need_at": SOON}
    key = {"Idempotency-Key": str(uuid.uuid4())}
    assert fleet("POST", "/prefetches", late, **key).status_code == 404
    key = {"Idempotency-Key": str(uuid.uuid4())}
    assert fleet("POST", f"/nodes/{uuid.uuid4()}:drain", {}, **key).status_code == 404
