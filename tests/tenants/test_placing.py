"""What rules need of tenants and namespaces."""

import pytest

from tenants.placing import namespace_places, tenant_place, tenant_places, tenants_with_arena
from tests.tenants.making import a_namespace, a_tenant

pytestmark = pytest.mark.django_db


def test_tenants_and_namespaces_as_rules_see_them():
    tenant = a_tenant(classes=["internal"], erasure_scope="class", residency="eu", isolation="arena")
    namespace = a_namespace(tenant, data_class="internal")
    found = namespace_places([bytes(namespace.digest), bytes(32)])
    (place,) = found.values()
    assert (place.data_class, place.tenant) == ("internal", tenant_place(tenant.slug))
    assert (place.tenant.residency, place.tenant.isolation, place.tenant.separable) == ("eu", "arena", True)
    assert tenant_places([tenant.id]) == {tenant.id: place.tenant} == {tenant.id: tenants_with_arena()[tenant.id]}
    assert not tenant_place(a_tenant(erasure_scope="tenant").slug).separable
    assert tenant_place("nobody") is None
    assert namespace_places([]) == {}
