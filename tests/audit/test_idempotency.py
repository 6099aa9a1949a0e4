"""A POST repeated with its key has one effect and one answer."""

# ruff: noqa: F811

import threading

import pytest
from django.db import connections

from audit.models import Idempotency
from kvconsole.infra import sql
from tenants.models import Tenant
from tests.tenants.conftest import Caller, caller  # noqa: F401

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
def test_many_at_once_have_one_effect(caller):
    token, answers, start = caller("operator").token, [], threading.Barrier(6)

    def call():
        start.wait()
        for _ in range(5):
            answers.append(Caller(token).post("/tenants", body(), **KEY))
        connections.close_all()

    threads = [threading.Thread(target=call) for _ in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert {a.status_code for a in answers} == {201}
    assert len({a.json()["id"] for a in answers}) == 1
    with sql.connect("audit") as c:
        assert c.execute("SELECT count(*) FROM audit_event WHERE event_type = 257").fetchone() == (1,)


@committed
def test_a_rehearsal_has_no_effect_and_no_event(caller):
    call = caller("operator")
    with sql.connect("audit") as c:
        before = c.execute("SELECT count(*) FROM audit_event").fetchone()
        answer = call.post("/tenants?validate_only=true", body(), **KEY)
        assert answer.status_code == 201
        assert c.execute("SELECT count(*) FROM audit_event").fetchone() == before
    assert not Tenant.objects.filter(slug="acme").exists()
    assert call.post("/tenants?validate_only=true", body("platform")).status_code == 409


@committed
@pytest.mark.parametrize("key", ["x" * 256, "a b", "ä"])
def test_a_malformed_key_is_refused(caller, key):
    answer = caller("operator").post("/tenants", body(), **{"Idempotency-Key": key})
    assert answer.json()["code"] == "idempotency-key-invalid"
