"""What nodes are told of namespaces."""

import uuid

import pytest

from catalog.placing import node_policies, open_nodes
from catalog.quotas import quota_set
from tests.catalog.test_rates import NOW
from tests.tenants.making import a_namespace, a_tenant

pytestmark = pytest.mark.django_db


def told(tenant, region="eu", **fields):
    digest = bytes(a_namespace(tenant, **fields).digest)
    return node_policies(node=str(uuid.uuid4()), region=region, digests=[digest])[digest]


def test_what_a_node_is_told():
    assert told(a_tenant()).barred == {}
    tenant = a_tenant(classes=["restricted"], erasure_scope="class")
    policy = told(tenant, data_class="restricted")
    assert (policy.barred, policy.shut) == ({"ssd": "data-class", "remote": "data-class"}, "")
    assert told(a_tenant(residency="us")).shut == "residency"
    assert told(a_tenant(isolation="node")).shut == "isolation"
    assert told(a_tenant(isolation="arena")).metered
    limited = a_tenant()
    assert not told(limited).metered
    quota_set(tenant=limited.id, tiers={"hbm": {"limit_bytes": 1}}, requests_per_second=None, deletions_per_hour=None,
              actor=None, now=NOW)  # fmt: skip
    policy = told(limited)
    assert (policy.metered, policy.tenant) == (True, limited.id.hex)
    mixed = a_tenant(classes=["public", "restricted"], erasure_scope="tenant")
    assert told(mixed).barred == {"ssd": "data-class", "remote": "data-class"}  # its classes cannot be told apart


def test_who_is_not_registered_may_be_anywhere():
    assert node_policies(node="no-uuid", region="", digests=[bytes(32)]) == {}
    node = uuid.uuid4()
    assert open_nodes(bytes(32), [node]) == {node}
