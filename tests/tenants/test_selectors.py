"""Reads that other rooms use: who is behind a token, fences, namespaces."""

import threading
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from django.db import connections, transaction

from kvconsole.infra import sql
from tenants import selectors, services
from tenants.constants import PLATFORM_TENANT
from tenants.models import Token, User
from tests.tenants.making import a_model, a_namespace, a_tenant, a_user

pytestmark = pytest.mark.django_db
NOW = datetime.now(UTC)


def test_a_token_is_known_by_its_plaintext_alone():
    tenant, user = a_tenant(), a_user(roles=["viewer", "operator"])
    token, plaintext = services.token_issue("user", user=user, roles=["operator", "auditor"], tenant_id=tenant.id)
    who = selectors.token_principal(plaintext)
    assert (who.kind, who.id, who.user_id) == ("token", token.id, str(user.id))
    assert (who.tenant_id, who.tenant_slug) == (tenant.id, tenant.slug)
    assert who.roles == {"operator"}  # never more than the person behind it may
    assert Token.objects.get(id=token.id).last_used_at is not None


def test_a_nodes_token_names_the_node_and_is_over_all_tenants():
    _, plaintext = services.token_issue("node", holder="n-1", roles=["node"], scopes=["region:eu"])
    who = selectors.token_principal(plaintext)
    assert (who.kind, who.holder, who.tenant_id, who.subject) == ("node", "n-1", None, "node:n-1")
    assert who.scopes == {"region:eu"}


def test_tokens_that_are_not_good_are_nobody():
    user = a_user()
    issued = [services.token_issue("user", user=user, roles=["viewer"]) for _ in range(4)]
    (_, good), (expired, p1), (revoked, p2), (used, p3) = issued
    Token.objects.filter(id=expired.id).update(expires_at=NOW - timedelta(seconds=1))
    services.token_revoke(token=revoked, reason="test")
    Token.objects.filter(id=used.id).update(used_at=NOW)
    assert selectors.token_principal(good) is not None
    wrong_secret = good[:30] + good[36:42] + good[36:]
    for plaintext in (p1, p2, p3, wrong_secret, good[:-1], ""):
        assert selectors.token_principal(plaintext) is None
    User.objects.filter(id=user.id).update(is_active=False)
    assert selectors.token_principal(good) is None


def test_the_tokens_of_a_tenant_end_with_it():
    tenant = a_tenant()
    _, plaintext = services.token_issue("service", tenant_id=tenant.id, roles=["tenant-member"])
    assert selectors.token_principal(plaintext) is not None
    tenant.state = "deleting"
    tenant.save()
    assert selectors.token_principal(plaintext) is None


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("role", ["ingest", "router"])
def test_passwords_are_looked_up_by_the_operators_connection_alone(role):
    a_user(username="alice")
    assert selectors.known_username("alice").password
    with sql.connect(role) as c:
        assert c.execute("SELECT tenants_lookup('username', 'alice', NULL)").fetchall() == [(None,)]


def test_a_tenants_role_looks_nobody_up(db):
    with sql.connect("tenant") as c, pytest.raises(psycopg.errors.InsufficientPrivilege):
        c.execute("SELECT * FROM tenants_lookup('token', 'x', NULL)")


def test_fences_come_once_per_namespace_with_the_newest_position():
    one, two = a_namespace(label="a"), a_namespace(label="b")
    services.generation_bump(namespace=a_namespace(), reason="first", actor=None)
    before, _ = selectors.fences_after(0)
    for namespace in (one, one, two, one):
        services.generation_bump(namespace=namespace, reason="test", actor=None)
    latest, fences = selectors.fences_after(before)
    assert latest == before + 4
    assert {f.ns: f.min_gen for f in fences} == {bytes(one.digest): 4, bytes(two.digest): 2}
    assert selectors.fences_after(latest) == (latest, [])
    assert [f.ns for f in selectors.fences_after(latest - 1)[1]] == [bytes(one.digest)]


@pytest.mark.django_db(transaction=True)
def test_no_fence_is_passed_over_that_comes_while_they_are_read():
    """Whoever follows by position never hears of a fence that is behind it: position and fences are of one moment."""
    namespaces = [a_namespace(label=f"l{i}") for i in range(3)]
    raised, told = [], {}

    def bump():
        raised.append(services.generation_bump(namespace=namespaces[len(raised)], reason="test", actor=None))
        connections.close_all()

    def and_then(execute, statement, parameters, many, context):
        result = execute(statement, parameters, many, context)
        if "tenants_fenceentry" in statement and len(raised) < len(namespaces):
            other = threading.Thread(target=bump)
            other.start()
            other.join()
        return result

    at = 0
    with connections["default"].execute_wrapper(and_then):
        for _ in range(5):
            at, fences = selectors.fences_after(at)
            told |= {f.ns: f.min_gen for f in fences}
    assert told == {bytes(one.digest): 2 for one in raised}
    assert len(raised) == 3


def test_a_position_that_was_never_given_counts_as_the_beginning():
    services.generation_bump(namespace=a_namespace(), reason="test", actor=None)
    assert selectors.fences_after(10**12) == selectors.fences_after(0)


def test_namespaces_are_found_by_digest_with_what_others_need():
    tenant, model = a_tenant(), a_model(block_tokens=32)
    namespace = a_namespace(tenant, model, label="repo")
    found = selectors.namespaces_by_digest([bytes(namespace.digest), bytes(32)])
    row = found.pop(bytes(namespace.digest))
    assert not found
    assert (row.id, row.tenant_slug, row.model, row.label) == (namespace.id, tenant.slug, model.name, "repo")
    assert (row.generation, row.min_gen, row.block_tokens, row.bytes_per_token) == (1, 1, 32, 1024)
    assert row.group_bytes == 1024
    assert selectors.namespaces_by_digest([]) == {}


def test_a_tenants_own_model_hides_the_platforms():
    tenant = a_tenant()
    shared, own = a_model(name="m"), a_model(name="m", tenant_id=tenant.id, block_tokens=32)
    assert selectors.model_by_name("m").id == shared.id
    assert selectors.model_by_name("m", tenant_id=tenant.id).id == own.id
    assert selectors.model_by_name("m", tenant_id=a_tenant().id).id == shared.id
    assert selectors.model_by_name("none") is None
    assert shared.tenant_id == PLATFORM_TENANT


def test_nothing_is_left_open():
    assert not transaction.get_connection().needs_rollback
