"""Every method of every route: what the registry does not offer reaches no view, whoever asks."""

import re
from collections.abc import Callable, Iterator
from functools import update_wrapper
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from kvconsole.infra import access, rate
from tenants import services
from tests.tenants.making import a_model, a_tenant, a_user, principal

committed = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
UUID = "018f0000-0000-7000-8000-000000000001"
SAMPLES = {"uuid": UUID, "int": "7", "str": "sample", "slug": "sample", "path": "sample"}
STRANGE = ("OPTIONS", "TRACE", "CONNECT", "PURGE", "PROPFIND", "LINK", "options", "Trace")
ROLES = ("viewer", "operator", "destructive-operator", "approver", "auditor")
OWN = ("tenant-admin", "tenant-member")


def patterns(found: Any = None, prefix: str = "/") -> Iterator[tuple[str, URLPattern]]:
    """Every route with an address that leads to it."""
    for entry in get_resolver().url_patterns if found is None else found:
        if isinstance(entry, URLResolver):
            yield from patterns(entry.url_patterns, prefix + str(entry.pattern))
        else:
            yield prefix + re.sub(r"<(?:(\w+):)?\w+>", lambda m: SAMPLES[m[1] or "str"], str(entry.pattern)), entry


@pytest.fixture
def reached(monkeypatch) -> list[str]:
    """Names of the routes whose view was called."""
    found: list[str] = []
    rate.buckets.clear()

    def watched(entry: URLPattern) -> Callable[..., Any]:
        def view(request: Any, *args: Any, **kwargs: Any) -> Any:
            found.append(f"{request.method} {entry.name}")
            raise AssertionError(found)

        return update_wrapper(view, entry.callback)

    for _, entry in patterns():
        monkeypatch.setattr(entry, "callback", watched(entry))
    return found


def logged_in(*roles: str, tenant: Any = None) -> Client:
    client = Client(headers={"accept": "text/html"})
    user = a_user(roles=list(roles), tenant=tenant)
    assert client.login(username=user.username, password="correct horse")
    return client


def with_token(*roles: str, tenant: Any = None, **fields: Any) -> Client:
    given = {"tenant_id": tenant.id} if tenant else {}
    scopes = sorted(access.scopes())
    plain = services.token_issue("service", roles=roles, scopes=scopes, **given, **fields)[1]
    return Client(headers={"authorization": f"Bearer {plain}"})


@committed
@pytest.mark.timeout(400)
def test_no_method_reaches_a_view_that_does_not_offer_it(reached):
    tenant = a_tenant()
    callers = {"nobody": Client(), "nobody's browser": Client(headers={"accept": "text/html"})}
    callers |= {role: logged_in(role) for role in ROLES} | {r: logged_in(r, tenant=tenant) for r in OWN}
    callers["token of all roles"] = with_token(*ROLES)
    callers["token of a gateway"] = with_token("gateway", tenant=tenant)
    routes = list(patterns())
    assert len(routes) > 60
    for who, client in callers.items():
        for path, entry in routes:
            rate.buckets.clear()  # how many calls one may make is not asked here
            rules = access.registry()[entry.name]
            unoffered = {m for m in access.METHODS if m not in rules} | ({"HEAD"} if "GET" not in rules else set())
            every = (*STRANGE, *sorted(unoffered)) if who == "nobody" else STRANGE[: 1 if "api/" in path else 2]
            for method in every:
                answer = client.generic(method, path)
                about = (who, method, path, answer.status_code)
                assert answer.status_code == (204 if method.upper() == "OPTIONS" else 405), about
                assert answer.headers["Allow"].split(", ") == access.offered(entry.name), about
                assert method.upper() != "OPTIONS" or answer.content == b"", about
    assert reached == []


def test_what_a_route_offers():
    name = "test-offered"
    access.register(name, {"GET": access.counted("viewer"), "DELETE": access.audited("operator")})
    assert access.offered(name) == ["GET", "DELETE", "HEAD", "OPTIONS"]
    assert access.offered(None) == ["OPTIONS"]
    with pytest.raises(access.ImproperlyConfigured, match="test-odd"):
        access.register("test-odd", {"OPTIONS": access.counted("viewer")})


@committed
def test_asking_what_is_offered_shows_and_changes_nothing(client):
    from datetime import UTC, datetime, timedelta

    secret, person, now = a_tenant(slug="secret-tenant"), a_user(), datetime.now(UTC)
    a_model()
    group = services.share_group_request(
        owner=secret.slug, name="group", audience=[a_tenant().slug], expires_at=now + timedelta(days=9),
        reason="why", actor=principal(None, "operator"), now=now,
    )  # fmt: skip
    approver = logged_in("approver", "operator")
    for asks in (client, approver):
        for path in (
            "/tenants", "/settings", f"/people/{person.id}/state", f"/people/{person.id}/invite",
            f"/people/{person.id}/remove", f"/share-groups/{group.id}/approve", f"/share-groups/{group.id}/deny",
            f"/share-groups/{group.id}/revoke", f"/tenants/{secret.slug}/close", f"/t/{secret.slug}",
            f"/api/v1/tenants/{secret.slug}", f"/api/v1/share-groups/{group.id}:approve",
        ):  # fmt: skip
            for method in ("OPTIONS", "TRACE", "HEAD"):
                answer = asks.generic(method, path, headers={"accept": "text/html"})
                assert answer.content == b"" or b"secret-tenant" not in answer.content, (method, path)
    group.refresh_from_db()
    person.refresh_from_db()
    secret.refresh_from_db()
    assert (group.state, person.is_active, secret.state) == ("awaiting_approval", True, "active")
