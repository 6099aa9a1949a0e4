"""Clients of the API for the tests of tenancy."""

import json

import pytest
from django.test import Client

from routing import replica as replicas
from tenants import services
from tests.tenants.making import a_tenant, some


class Caller:
    """Speaks JSON to the API as the owner of one token."""

    def __init__(self, token=None):
        self.client, self.token = Client(raise_request_exception=True), token

    def __call__(self, method, path, body=None, **headers):
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        content = {} if body is None else {"data": json.dumps(body), "content_type": "application/json"}
        return self.client.generic(method, f"/api/v1{path}", headers=headers, **content)

    def get(self, path, **headers):
        return self("GET", path, **headers)

    def post(self, path, body, **headers):
        return self("POST", path, body, **headers)


@pytest.fixture
def caller():
    """`caller("operator")` is staff of the fleet; `caller("tenant-admin", tenant=t)` somebody of a tenant."""

    def make(*roles, tenant=None, kind="service", holder="", scopes=()):
        given = {"tenant_id": tenant.id} if tenant else {}
        _, plaintext = services.token_issue(kind, roles=roles, holder=holder, scopes=scopes, **given)
        return Caller(plaintext)

    return make


@pytest.fixture
def index(transactional_db, monkeypatch):
    """This process's index, loaded, so that all look-ups are answered alike; its thread ends with the test."""
    monkeypatch.setattr(replicas, "_replica", None)
    running = replicas.replica()
    assert running.fresh.wait(20)
    yield running
    running.close()


@pytest.fixture
def anonymous():
    return Caller()


@pytest.fixture
def tenant(db):
    return a_tenant(slug=some("t"), classes=["internal"])
