"""What rules need of tenants and namespaces."""

from datetime import timedelta

import pytest

from tenants.placing import (
    group_namespaces,
    has_namespaces,
    namespace_places,
    shared_in,
    tenant_place,
    tenant_places,
    tenants_with_arena,
)
from tenants.services import share_group_revoke
from tests.tenants.making import a_model, a_namespace, a_tenant, principal
from tests.tenants.services.test_share_group import NOW, a_group, asked

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


def test_a_share_groups_namespace_is_judged_by_its_members_and_paid_by_its_owner():
    owner, member, model = a_tenant(residency="eu"), a_tenant(residency="eu", classes=["restricted"]), a_model()
    group = a_group(owner, member)
    namespace, own = a_namespace(member, model, share_group=group.name), a_namespace(member, model)
    found = namespace_places([bytes(namespace.digest), bytes(own.digest)])
    shared = found[bytes(namespace.digest)]
    assert (shared.tenant.slug, shared.tenant.residency, shared.payer) == ("platform", "eu", owner.id)
    assert set(shared.members) == {tenant_place(owner.slug), tenant_place(member.slug)}
    assert (found[bytes(own.digest)].payer, found[bytes(own.digest)].members) == (member.id, ())
    assert group_namespaces(owner.id) == [namespace.id]
    assert group_namespaces(member.id) == []
    assert [has_namespaces(t.id) for t in (owner, member, a_tenant())] == [True, True, False]


def test_when_somebody_shared():
    owner, member, third = a_tenant(), a_tenant(), a_tenant()
    group, _ = a_group(owner, member), asked(owner, third)
    hour = timedelta(hours=1)

    def shared(tenant, since, until):
        return shared_in(tenant=tenant.id, since=NOW + since, until=NOW + until)

    assert [shared(t, -hour, hour) for t in (owner, member, third)] == [True, True, False]
    assert not shared(member, -hour, timedelta(0))
    share_group_revoke(group_id=group.id, reason="x", actor=principal(None, "operator"), now=NOW + hour)
    assert shared(member, timedelta(0), 2 * hour)
    assert not shared(member, hour, 2 * hour)
