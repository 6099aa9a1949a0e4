"""Nodes of one's own; their refusals over REST are in `test_api_tenancy`, placement in `test_reference_fleet`."""

import pytest

from catalog.dedication import nodes_dedicate, nodes_dedicated
from kvconsole.infra.rest import Problem
from tenants.placing import tenant_place
from tests.tenants.making import a_tenant

pytestmark = pytest.mark.django_db


def test_who_shares_has_no_nodes_of_its_own():
    tenant = tenant_place(a_tenant().slug)
    with pytest.raises(Problem) as refused:
        nodes_dedicate(tenant=tenant, names=["n1"], actor=None)
    assert refused.value.code == "tenant-not-node-isolated"
    assert nodes_dedicate(tenant=tenant, names=[], actor=None) == nodes_dedicated(tenant=tenant.id) == []
