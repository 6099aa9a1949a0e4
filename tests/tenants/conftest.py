"""Clients of the API for the tests of tenancy."""

import pytest

from routing import replica as replicas
from tenants import services
from tests.tenants.making import a_tenant, some
from tests.tenants.persons import Caller


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
