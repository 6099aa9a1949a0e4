"""Principals, planes and the registry of routes."""

import contextlib
import uuid

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.urls import include, path

from kvconsole.infra import access
from kvconsole.infra.access import ANY, PUBLIC, Principal, audited, counted, plane, system, tenant_context
from kvconsole.infra.sql import uuid7
from tenants import selectors
from tests.tenants.making import a_namespace, a_tenant, principal

both = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def view(request):
    return HttpResponse("x")


# --- principals -----------------------------------------------------------------


def test_a_person_is_one_subject_with_all_its_tokens():
    token = Principal(kind="token", id="abc", user_id="u1")
    assert token.subject == "user:u1" == Principal(kind="user", id="u1", user_id="u1").subject
    assert Principal(kind="node", id="tok", holder="n1").subject == "node:n1"
    assert system("fleet").subject == "system:fleet"


def test_may_asks_for_one_of_the_roles():
    who = Principal(kind="user", id="x", roles=frozenset({"viewer"}))
    assert who.may("operator", "viewer")
    assert not who.may("operator")
    assert not who.may()


def test_within_a_tenant_roles_of_the_fleet_are_void():
    given = frozenset({"viewer", "operator", "destructive-operator", "approver", "auditor", "node", "tenant-admin"})
    who = Principal(kind="token", id="x", roles=given, tenant_id=uuid7())
    assert who.may("tenant-admin")
    assert not who.may(*(given - {"tenant-admin"}))
    assert not counted("viewer").allows(who)
    assert counted(ANY).allows(who)


# --- planes -----------------------------------------------------------------------


@both
def test_the_context_of_a_tenant_shows_its_rows_and_only_those():
    mine, other = a_tenant(), a_tenant()
    a_namespace(mine, label="mine"), a_namespace(other, label="other")
    assert plane() == "default"
    with tenant_context(principal(mine)) as alias:
        assert alias == plane() == "tenant"
        assert [r.label for r in selectors.namespaces_active()] == ["mine"]
        assert selectors.tenant_by_slug(other.slug) is None
    assert plane() == "default"
    assert len(selectors.namespaces_active()) == 2


@both
def test_the_next_context_on_the_same_connection_sees_the_next_tenant():
    mine, other = a_tenant(), a_tenant()
    for tenant in (mine, other, mine):
        with tenant_context(principal(tenant)):
            assert selectors.tenant_by_slug(tenant.slug) is not None
            assert selectors.Tenant.objects.count() == 1


@both
def test_outside_a_context_the_tenants_connection_shows_nothing():
    a_tenant()
    with tenant_context(principal(a_tenant())):
        pass
    assert selectors.Tenant.objects.using("tenant").count() == 0


@both
def test_nested_contexts_give_the_outer_tenant_back_also_after_an_error():
    mine, other = a_tenant(), a_tenant()
    with tenant_context(principal(mine)):
        with tenant_context(principal(other)):
            assert [t.slug for t in selectors.Tenant.objects.all()] == [other.slug]
        assert [t.slug for t in selectors.Tenant.objects.all()] == [mine.slug]
        with pytest.raises(RuntimeError), tenant_context(principal(other)):
            raise RuntimeError
        assert [t.slug for t in selectors.Tenant.objects.all()] == [mine.slug]
        with tenant_context(system("x")):
            assert plane() == "default"
            assert selectors.Tenant.objects.count() == 3
        assert plane() == "tenant"
        assert [t.slug for t in selectors.Tenant.objects.all()] == [mine.slug]


@both
def test_an_error_undoes_what_the_context_did():
    with contextlib.suppress(RuntimeError), tenant_context(system("x")):
        a_tenant(slug="gone")
        raise RuntimeError
    assert selectors.tenant_by_slug("gone") is None


def test_sessions_always_live_on_the_fleets_connection():
    from django.contrib.sessions.models import Session

    router, token = access.PlaneRouter(), access._plane.set("tenant")
    try:
        assert router.db_for_read(Session) == router.db_for_write(Session) == "default"
        assert router.db_for_read(selectors.Tenant) == "tenant"
    finally:
        access._plane.reset(token)
    assert router.allow_migrate("default", "tenants")
    assert not router.allow_migrate("tenant", "tenants")
    assert router.allow_relation(1, 2)


# --- the registry -------------------------------------------------------------------


def test_rules_say_who_may():
    anybody, known = counted(PUBLIC), counted(ANY)
    viewer = Principal(kind="user", id="x", roles=frozenset({"viewer"}))
    assert anybody.allows(None)
    assert not known.allows(None)
    assert known.allows(viewer)
    assert counted("viewer").allows(viewer)
    assert not audited("operator").allows(viewer)
    assert not audited("operator").allows(None)


def test_a_route_is_registered_with_its_pattern_and_heads_follow_gets():
    name = f"test-{uuid.uuid4().hex}"
    made = access.route("x", view, name, GET=counted("viewer"), POST=audited("operator"))
    assert access.unregistered([made]) == []
    assert access.rule_for(name, "HEAD") == access.rule_for(name, "GET") == counted("viewer", scope="x:read")
    assert access.rule_for(name, "DELETE") is None
    assert access.rule_for(None, "GET") is None
    with pytest.raises(ImproperlyConfigured):
        access.register(name, {"GET": counted("operator")})


def test_a_route_without_an_entry_is_found_at_any_depth():
    loose = [path("a/", include([path("b", view, name="loose"), path("c", view)])), path("d", view)]
    assert access.unregistered(loose) == ["a/b", "a/c", "d"]


def test_a_route_without_an_entry_stops_start_up(settings, monkeypatch):
    monkeypatch.setattr(access, "unregistered", lambda: ["loose"])
    with pytest.raises(ImproperlyConfigured, match="loose"):
        access.PrincipalMiddleware(view)
    assert [e.id for e in access.check_routes()] == ["kvc.E001"]


def test_every_route_of_the_console_has_roles_and_evidence():
    assert access.unregistered() == []
    assert all(rules for rules in access.registry().values())


@both
def test_the_check_of_the_database_finds_nothing():
    assert access.check_database(databases=["default", "tenant"]) == []
    assert connections["tenant"].settings_dict["USER"] == "kv_tenant"


def test_a_view_that_the_middleware_did_not_see_is_refused():
    request = HttpRequest()
    request.method = "GET"
    request.resolver_match = None
    assert not access.RoutePermission().has_permission(request, None)
