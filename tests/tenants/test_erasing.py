"""Who still has the keys of what is fenced, and whose namespaces are whose."""

from datetime import UTC, datetime, timedelta

import pytest

from tenants.erasing import erasable_tenant, keys_out, node_fences, owned
from tenants.models import KeyLease
from tenants.services import fence_acknowledge
from tests.tenants.making import a_model, a_namespace, a_tenant
from tests.tenants.services.test_share_group import a_group

pytestmark = pytest.mark.django_db
NOW = datetime.now(UTC)


def lease(namespace, kind, holder, seconds):
    KeyLease.objects.create(tenant_id=namespace.tenant_id, namespace=namespace, holder_kind=kind, holder=holder,
                            generation=1, granted_at=NOW, until=NOW + timedelta(seconds=seconds))  # fmt: skip


def test_leases_count_until_they_end_or_their_holder_has_applied_the_fence():
    namespace = a_namespace()
    fences = [(namespace.id, 2)]
    assert keys_out(fences=fences, seq=5, now=NOW).until is None
    lease(namespace, "gateway", "g", 100)
    lease(namespace, "node", "n", 200)
    found = keys_out(fences=fences, seq=5, now=NOW)
    assert (found.gateways, found.until) == (1, NOW + timedelta(seconds=200))
    assert keys_out(fences=[(namespace.id, 1)], seq=5, now=NOW).until is None  # of the generation that goes on
    assert keys_out(fences=fences, seq=5, now=NOW + timedelta(seconds=150)).gateways == 0
    fence_acknowledge(holder_kind="node", holder="n", seq=0, now=NOW)
    assert keys_out(fences=fences, seq=5, now=NOW).until == NOW + timedelta(seconds=200)
    assert node_fences() == {"n": 0}
    found = keys_out(fences=fences, seq=0, now=NOW)
    assert found.until == NOW + timedelta(seconds=100)  # the gateway never said a word


def test_a_tenant_owns_its_namespaces_and_those_of_its_groups():
    owner, member, model = a_tenant(), a_tenant(), a_model()
    own, foreign = a_namespace(owner, model), a_namespace(member, model)
    shared = a_namespace(member, model, share_group=a_group(owner, member).name)
    digests = [bytes(n.digest) for n in (own, foreign, shared)]
    assert owned(digests, owner.id) == {digests[0], digests[2]}
    assert owned(digests, member.id) == {digests[1]}
    assert erasable_tenant(owner.slug).id == owner.id
    assert erasable_tenant("nobody-at-all") is None
