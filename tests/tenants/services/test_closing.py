"""A tenant is closed once; what it held and who may delete it is the catalog's matter."""

import json
import uuid

import pytest

from audit.models import Event
from kvconsole.infra.rest import Problem
from tenants.models import Namespace, ShareGroup, ShareMember
from tenants.services import share_group_approve, share_group_revoke
from tenants.services.closing import tenant_close
from tests.tenants.making import a_model, a_namespace, a_tenant, principal
from tests.tenants.services.test_share_group import a_group, asked


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


@pytest.mark.django_db
def test_who_is_closed_shares_with_nobody_any_more():
    from datetime import UTC, datetime

    owner, member, third, model = a_tenant(), a_tenant(), a_tenant(), a_model()
    own, of_two, of_three = a_group(member, third), a_group(owner, member), a_group(owner, member, third)
    waiting = asked(third, owner, member)
    spaces = [a_namespace(member, model, share_group=str(g.id)) for g in (own, of_two, of_three)]
    tenant_close(tenant=member.id, actor=None, now=datetime.now(UTC))
    states = [ShareGroup.objects.get(id=g.id).state for g in (own, of_two, of_three, waiting)]
    assert states == ["revoked", "revoked", "approved", "revoked"]
    assert not ShareMember.objects.filter(tenant=member).exclude(state="revoked").exists()
    assert set(ShareMember.objects.filter(group=of_three, state="approved").values_list("slug", flat=True)) == {
        owner.slug, third.slug,
    }  # fmt: skip
    assert set(Namespace.objects.filter(id__in=[n.id for n in spaces]).values_list("min_gen", flat=True)) == {2}
    assert a_namespace(third, model, share_group=str(of_three.id)).generation == 2
    actions = [json.loads(bytes(e.body))["action"] for e in Event.objects.only("id", "body").order_by("id")]
    assert [actions.count(a) for a in ("sharing.revoked", "sharing.left", "tenant.closed")] == [3, 1, 1]
    with pytest.raises(Problem) as refused:
        share_group_approve(group_id=waiting.id, actor=principal(None, "approver"))
    assert refused.value.code in ("approval-decided", "share-group-inactive")
    share_group_revoke(group_id=of_three.id, reason="x", actor=principal(None, "operator"))
    assert set(ShareMember.objects.values_list("state", flat=True)) == {"revoked"}
