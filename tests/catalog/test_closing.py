"""A tenant that holds nothing may go; who holds bytes is in `test_api_tenancy`."""

import pytest

from catalog.closing import tenant_delete
from kvconsole.infra.rest import Problem
from tenants.placing import tenant_place
from tests.catalog.test_rates import NOW
from tests.tenants.making import a_namespace, a_tenant

pytestmark = pytest.mark.django_db


def test_it_is_closed_once_with_its_namespaces_fenced():
    tenant = a_tenant()
    namespace = a_namespace(tenant)
    tenant_delete(tenant=tenant_place(tenant.slug), actor=None, now=NOW)
    namespace.refresh_from_db()
    assert (namespace.state, namespace.min_gen) == ("closed", 2)
    with pytest.raises(Problem) as refused:
        tenant_delete(tenant=tenant_place(tenant.slug), actor=None, now=NOW)
    assert refused.value.code == "not-found"
