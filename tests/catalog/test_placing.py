"""What nodes are told of namespaces."""

import uuid

import pytest

from catalog.classes import class_rules_set
from catalog.placing import node_policies, open_nodes
from catalog.quotas import quota_set
from kvcore.residency import Rule
from tenants.placing import tenant_place
from tests.catalog.test_rates import NOW
from tests.tenants.making import a_model, a_namespace, a_tenant
from tests.tenants.services.test_share_group import a_group

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


def test_what_is_shared_may_be_only_where_every_member_allows_it():
    owner, member, model = a_tenant(), a_tenant(classes=["restricted"]), a_model()
    group = a_group(owner, member)
    fields = {"model": model, "share_group": group.name}
    policy = told(member, **fields)
    assert (policy.barred, policy.metered, policy.tenant) == ({}, False, owner.id.hex)
    rules = {owner: Rule(tiers=frozenset({"hbm", "dram", "ssd"})), member: Rule(tiers=frozenset({"hbm", "remote"}))}
    for tenant, rule in rules.items():
        class_rules_set(tenant=tenant_place(tenant.slug), rules={"": rule}, actor=None)
    assert told(member, **fields).barred == dict.fromkeys(("pinned", "dram", "ssd", "remote"), "data-class")
    eu = Rule(regions=frozenset({"eu"}), min_protection="encrypted")
    class_rules_set(tenant=tenant_place(member.slug), rules={"": eu}, actor=None)
    assert told(member, **fields).barred == {"pinned": "data-class", "ssd": "protection", "remote": "data-class"}
    assert told(member, "us", **fields).shut == "residency"
    quota_set(tenant=owner.id, tiers={"hbm": {"limit_bytes": 1}}, requests_per_second=None, deletions_per_hour=None,
              actor=None, now=NOW)  # fmt: skip
    assert told(member, **fields).metered  # its owner's limit
