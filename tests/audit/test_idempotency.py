"""A POST repeated with its key has one effect and one answer."""

# ruff: noqa: F811

import threading
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connections
from django.utils import timezone

from audit import idempotency
from audit.models import Idempotency
from kvconsole.infra import sql
from tenants.models import Tenant
from tests.tenants.conftest import Caller, caller  # noqa: F401
from tests.tenants.making import a_model, a_tenant

committed = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
KEY = {"Idempotency-Key": "k-1"}


def body(slug="acme"):
    return {"slug": slug, "name": "Acme"}


@committed
def test_the_second_call_has_the_first_ones_answer(caller):
    call = caller("operator")
    first, second = (call.post("/tenants", body(), **KEY) for _ in "ab")
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json() == second.json()
    assert second["Idempotency-Replayed"] == "true"
    assert Tenant.objects.filter(slug="acme").count() == 1


@committed
def test_another_body_or_caller_with_the_same_key_is_refused(caller):
    call, other = caller("operator"), caller("operator")
    assert call.post("/tenants", body(), **KEY).status_code == 201
    for answer in (call.post("/tenants", body("other"), **KEY), other.post("/tenants", body(), **KEY)):
        assert answer.status_code == 422
        assert answer.json()["code"] == "idempotency-mismatch"
    assert not Tenant.objects.filter(slug="other").exists()


@committed
def test_a_refused_call_leaves_no_key(caller):
    call = caller("operator")
    assert call.post("/tenants", body("platform"), **KEY).status_code == 409
    assert call.post("/tenants", body(), **KEY).status_code == 201


@committed
def test_neither_key_nor_answer_can_be_read_from_the_table(caller):
    caller("operator").post("/tenants", body(), **KEY)
    row = Idempotency.objects.get()
    assert b"acme" not in bytes(row.response)
    assert b"k-1" not in bytes(row.key_hash)


@committed
def test_500_at_once_have_one_effect(caller):
    """20 threads, one key: one call has the effect; the others get its answer, or are told that it is at work."""
    token, answers, start = caller("operator").bearer, [], threading.Barrier(20)

    def call():
        start.wait()
        for _ in range(25):
            answers.append(Caller(token).post("/tenants", body(), **KEY))
        connections.close_all()

    threads = [threading.Thread(target=call) for _ in range(20)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(answers) == 500
    good = [a for a in answers if a.status_code == 201]
    assert len({a.json()["id"] for a in good}) == 1
    assert sum("Idempotency-Replayed" not in a for a in good) == 1
    busy = [a for a in answers if a.status_code != 201]
    assert {(a.status_code, a.json()["code"], a["Retry-After"]) for a in busy} <= {
        (409, "idempotency-in-progress", "1")
    }
    with sql.connect("audit") as c:
        assert c.execute("SELECT count(*) FROM audit_event WHERE event_type = 257").fetchone() == (1,)


@committed
def test_a_call_that_is_at_work_is_not_waited_for(caller):
    from kvconsole.infra import rest

    call = caller("operator")
    key_hash = rest.private("idempotency", str(sql.PLATFORM), "k-1")
    with sql.connect("operator", autocommit=False) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", (int.from_bytes(key_hash[:8], "big", signed=True),))
        assert call.post("/tenants", body(), **KEY).json()["code"] == "idempotency-in-progress"
    assert call.post("/tenants", body(), **KEY).status_code == 201


@committed
def test_a_rehearsal_has_no_effect_no_event_and_makes_no_key(caller, settings):
    call = caller("operator")
    with sql.connect("audit") as c:
        before = c.execute("SELECT count(*) FROM audit_event").fetchone()
        answer = call.post("/tenants?validate_only=true", body(), **KEY)
        assert answer.status_code == 201
        assert c.execute("SELECT count(*) FROM audit_event").fetchone() == before
    assert not Tenant.objects.filter(slug="acme").exists()
    assert call.post("/tenants?validate_only=true", body("platform")).status_code == 409
    assert list(Path(settings.KEYSTORE_DIR).glob("tenant-*")) == []


def aged(**ago):
    """Every answer that is kept was given so long ago."""
    Idempotency.objects.update(created_at=timezone.now() - timedelta(**ago))


@committed
@pytest.mark.parametrize("staff", [True, False])
def test_after_a_day_a_key_is_as_new(caller, staff):
    """Also where nobody has swept: for the same request, for another one, and within a tenant."""
    if staff:
        call, path, one, two = caller("operator"), "/tenants", body("one-tenant"), body("two-tenants")
    else:
        mine, model = a_tenant(), a_model()
        call, path = caller("tenant-admin", tenant=mine), "/adapters"
        one, two = ({"model": model.name, "name": n, "digest": f"sha256:{n}"} for n in ("a", "b"))
    assert call.post(path, one, **KEY).status_code == 201
    aged(hours=23, minutes=59)
    assert call.post(path, one, **KEY)["Idempotency-Replayed"] == "true"
    assert call.post(path, two, **KEY).json()["code"] == "idempotency-mismatch"
    aged(hours=24, seconds=1)
    second = call.post(path, two, **KEY)
    assert second.status_code == 201
    assert "Idempotency-Replayed" not in second
    assert call.post(path, two, **KEY).json() == second.json()
    aged(hours=24, seconds=1)
    assert call.post(path, {"nonsense": 1}, **KEY).status_code == 400
    assert call.post(path, two, **KEY).status_code == (409 if staff else 201), "neither key is there"


@committed
def test_old_answers_are_swept(caller, monkeypatch):
    monkeypatch.setattr(idempotency, "AT_ONCE", 2)
    call = caller("operator")
    for i in range(5):
        assert call.post("/tenants", body(f"old-{i}-tenant"), **{"Idempotency-Key": str(i)}).status_code == 201
    aged(hours=24, seconds=1)
    assert call.post("/tenants", body("young-tenant"), **KEY).status_code == 201
    assert idempotency.sweep(now=timezone.now()) == 5
    assert idempotency.sweep(now=timezone.now()) == 0
    assert Idempotency.objects.count() == 1
    assert call.post("/tenants", body("young-tenant"), **KEY)["Idempotency-Replayed"] == "true"


@committed
@pytest.mark.parametrize("key", ["x" * 256, "a b", "ä"])
def test_a_malformed_key_is_refused(caller, key):
    answer = caller("operator").post("/tenants", body(), **{"Idempotency-Key": key})
    assert answer.json()["code"] == "idempotency-key-invalid"
