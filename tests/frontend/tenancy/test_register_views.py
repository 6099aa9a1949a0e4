"""A tenant's administrator registers adapters of the own tenant, and finds them in the portal."""

import pytest

from kvconsole.infra.access import system, tenant_context
from tests.frontend.tenancy.test_portal import two  # noqa: F401
from tests.frontend.tenancy.test_walls import posted
from tests.tenants.making import a_model

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def test_an_administrator_registers_an_adapter_of_the_own_tenant(two):  # noqa: F811
    client, acme, _bank = two
    with tenant_context(system("test")):
        a_model(name="m")
    assert 'href="/adapters/new"' in client.get("/t/acme-code").content.decode()
    checked = client.get("/adapters/new", {"check": "1", "model": "m", "name": "house-style", "digest": "sha256:own"})
    assert checked.context["plan"].own
    assert "/epochs" not in checked.content.decode()
    assert client.post("/adapters/new", posted(checked)).url == "/t/acme-code#adapters"
    assert "house-style" in client.get("/t/acme-code").content.decode()
    from tenants.models import Adapter

    assert Adapter.objects.get(name="house-style").tenant_id == acme.id
    for path in ("/models/new", "/epochs/new?model=m", "/tenants/acme-code/classes", "/tenants/acme-code/nodes"):
        assert client.get(path).status_code == 403, path


def test_what_is_left_of_the_own_rates_is_told_and_of_nobody_elses(two):  # noqa: F811
    from django.utils import timezone

    from catalog import rates
    from catalog.quotas import quota_set

    client, acme, _bank = two
    now = timezone.now()
    quota_set(tenant=acme.id, tiers={}, requests_per_second=40, deletions_per_hour=2, actor=None, now=now)
    rates.deletion_take(acme.id, now=timezone.now())
    part = client.get("/t/acme-code/rates")
    text = part.content.decode()
    assert 'id="rates"' in text
    assert "<html" not in text
    assert "40 left in this second" in text
    assert "1 left in this hour, UTC" in text
    rates.deletion_take(acme.id, now=timezone.now())
    page = client.get("/t/acme-code").content.decode()
    assert "none left in this hour, UTC" in page
    assert 'hx-get="/t/acme-code/rates"' in page
    assert client.get("/t/borealis-bank/rates").status_code == 404
