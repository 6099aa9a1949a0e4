"""A tenant is closed once; what it held and who may delete it is the catalog's matter."""

import uuid

import pytest

from kvconsole.infra.rest import Problem
from tenants.services.closing import tenant_close
from tests.tenants.making import a_tenant


@pytest.mark.django_db
def test_a_tenant_is_closed_once():
    from datetime import UTC, datetime

    now, tenant = datetime.now(UTC), a_tenant()
    tenant_close(tenant=tenant.id, actor=None, now=now)
    tenant.refresh_from_db()
    assert tenant.state == "closed"
    for gone in (tenant.id, uuid.uuid4()):
        with pytest.raises(Problem):
            tenant_close(tenant=gone, actor=None, now=now)
