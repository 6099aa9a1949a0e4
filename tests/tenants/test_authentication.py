"""Who calls: sessions, tokens, and those who are nobody."""

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth import authenticate
from django.test import Client

from tenants import services
from tenants.models import Token
from tests.tenants.making import a_tenant, a_user, unrecorded

both = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
TENANTS = "/api/v1/tenants"


def log_in(user, **options):
    client = Client(**options)
    assert client.login(username=user.username, password="correct horse")
    return client


def code(answer):
    return answer.status_code, answer.json().get("code")


@both
def test_a_person_logs_in_with_name_and_password():
    user = a_user(username="Alice")
    assert authenticate(username="Alice", password="correct horse") == user
    for name, password in (("Alice", "wrong"), ("alice", "correct horse"), ("", ""), ("a\0", "x"), ("nobody", "x")):
        assert authenticate(username=name, password=password) is None


@both
def test_who_is_not_active_is_nobody_at_once():
    user = a_user()
    client = log_in(user)
    assert client.get(TENANTS).status_code == 200
    services.user_change(user_id=user.id, roles=[])
    assert code(client.get(TENANTS)) == (403, "forbidden")
    services.user_change(user_id=user.id, roles=["viewer"], is_active=False)
    assert code(client.get(TENANTS)) == (401, "not-authenticated")


@both
def test_a_new_password_ends_the_sessions_of_the_old_one():
    user = a_user()
    client = log_in(user)
    services.user_password_set(user_id=user.id, password="another one")
    assert code(client.get(TENANTS)) == (401, "not-authenticated")


@both
def test_a_session_must_prove_that_its_own_page_called():
    client = log_in(a_user(roles=["operator"]), enforce_csrf_checks=True)
    body = {"slug": "acme", "name": "Acme"}
    assert code(client.post(TENANTS, body, content_type="application/json")) == (403, "csrf-failed")
    assert client.get(TENANTS).status_code == 200


@both
def test_a_token_needs_no_such_proof_and_counts_before_the_session(caller):
    call = caller("operator")
    call.client.handler.enforce_csrf_checks = True
    assert call.post("/tenants", {"slug": "acme", "name": "Acme"}).status_code == 201
    client = log_in(a_user())
    answer = client.get(TENANTS, headers={"Authorization": "Bearer kvc_user_" + "x" * 66})
    assert code(answer) == (401, "token-invalid")


@both
def test_which_reason_a_token_is_refused_for_is_not_told(caller, anonymous):
    call = caller("viewer")
    assert call.get("/tenants").status_code == 200
    token = Token.objects.get()
    answers = []
    for change in ({"expires_at": datetime.now(UTC) - timedelta(seconds=1)}, {"revoked_at": datetime.now(UTC)}):
        with unrecorded():
            Token.objects.filter(id=token.id).update(**change)
        answers.append(call.get("/tenants").json())
    call.bearer = call.bearer[:-1] + ("a" if call.bearer[-1] != "a" else "b")
    answers.append(call.get("/tenants").json())
    assert {(a["code"], a["detail"]) for a in answers} == {
        ("token-invalid", "The token is unknown, expired or revoked")
    }
    for header in ("Bearer x", "Basic x", "Bearer", "x"):
        assert code(anonymous.get("/tenants", Authorization=header)) == (401, "not-authenticated")


@both
def test_a_token_can_be_bound_to_addresses():
    for cidr, status in (("127.0.0.0/8", 200), ("10.0.0.0/8", 401), ("nonsense", 401)):
        _, plaintext = services.token_issue("service", roles=["viewer"], cidr=cidr)
        answer = Client().get(TENANTS, headers={"Authorization": f"Bearer {plaintext}"})
        assert answer.status_code == status, cidr


@both
def test_a_tenants_person_sees_the_tenant_and_nothing_else():
    mine, other = a_tenant(), a_tenant()
    client = log_in(a_user(tenant=mine, roles=["tenant-admin"]))
    assert [t["slug"] for t in client.get(TENANTS).json()["items"]] == [mine.slug]
    assert client.get(f"{TENANTS}/{mine.slug}").status_code == 200
    foreign, absent = client.get(f"{TENANTS}/{other.slug}").json(), client.get(f"{TENANTS}/absent").json()
    foreign.pop("request_id"), absent.pop("request_id")
    assert foreign == absent
    assert foreign["status"] == 404
