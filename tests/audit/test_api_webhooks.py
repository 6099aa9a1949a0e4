"""REST of webhooks: whose they are, what is refused, and secrets shown once."""

import uuid

import pytest

from audit.models import Webhook
from audit.webhooks import services
from tests.tenants.making import a_tenant
from tests.tenants.persons import Person

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
URL = "https://hooks.example.com/in"


def test_one_is_made_read_changed_and_removed():
    call = Person("operator")
    made = call.post("/webhooks", {"url": URL, "events": ["log.gap", "checkpoint.signed"], "name": "siem"})
    assert made.status_code == 201
    assert made["Cache-Control"] == "no-store"
    one = made.json()
    assert one["secret"].startswith("whsec_")
    assert one["events"] == ["checkpoint.signed", "log.gap"]
    read = call.get(f"/webhooks/{one['id']}")
    assert "secret" not in read.json()
    tag = {"If-Match": read["ETag"]}
    changed = call("PATCH", f"/webhooks/{one['id']}", {"state": "paused"}, **tag)
    assert changed.json()["state"] == "paused"
    assert call("PATCH", f"/webhooks/{one['id']}", {"state": "active"}, **tag).json()["code"] == "etag-mismatch"
    assert call("POST", f"/webhooks/{one['id']}:test").json()["code"] == "conflict"
    assert [w["id"] for w in call.get("/webhooks").json()["items"]] == [one["id"]]
    assert call("DELETE", f"/webhooks/{one['id']}").status_code == 204
    assert call.get(f"/webhooks/{one['id']}").json()["code"] == "not-found"


def test_a_repetition_with_the_same_key_makes_one_and_shows_the_same_secret():
    call, key = Person("operator"), {"Idempotency-Key": "k"}
    body = {"url": URL, "events": ["log.gap"]}
    first, again = call.post("/webhooks", body, **key).json(), call.post("/webhooks", body, **key).json()
    assert first == again
    assert call.post("/webhooks?validate_only=true", body).status_code == 201
    assert Webhook.objects.count() == 1


@pytest.mark.parametrize(("body", "code"), [
    ({"url": "ftp://x.example/", "events": ["log.gap"]}, "webhook-url-refused"),
    ({"url": "https://u:p@x.example/", "events": ["log.gap"]}, "webhook-url-refused"),
    ({"url": URL, "events": []}, "out-of-range"),
    ({"url": URL, "events": ["odd"]}, "validation-failed"),
    ({"url": URL, "events": ["log.gap"], "secret": "x"}, "unknown-field"),
])  # fmt: skip
def test_what_cannot_be_is_refused(body, code):
    found = Person("operator").post("/webhooks", body).json()
    assert found["code"] in (code, "validation-failed"), found


def test_a_tenants_are_its_own(monkeypatch):
    mine, other = a_tenant(), a_tenant()
    call = Person("tenant-admin", tenant=mine)
    one = call.post("/webhooks", {"url": URL, "events": ["quota.refused"]}).json()
    for stranger in (Person("tenant-admin", tenant=other), Person("operator")):
        assert stranger.get("/webhooks").json()["items"] == []
        for method, path in (
            ("GET", ""),
            ("DELETE", ""),
            ("POST", ":rotate"),
            ("POST", ":test"),
            ("GET", "/deliveries"),
        ):
            assert stranger(method, f"/webhooks/{one['id']}{path}").json()["code"] == "not-found", (method, path)
    assert Person("tenant-member", tenant=mine).get("/webhooks").json()["code"] == "forbidden"
    assert call.get(f"/webhooks/{uuid.uuid4()}").json()["code"] == "not-found"
    monkeypatch.setattr(services, "MOST", 1)
    assert call.post("/webhooks", {"url": URL, "events": ["quota.refused"]}).json()["code"] == "too-many-webhooks"
    assert call("DELETE", f"/webhooks/{one['id']}").status_code == 204
