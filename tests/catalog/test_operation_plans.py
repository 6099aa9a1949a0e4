"""What a selector reaches: sets of namespaces that can be told apart, and who reads them besides."""

import pytest

from kvconsole.infra.rest import Problem
from kvcore.plans import plan_from_json
from tests.catalog.test_operation_requests import planned, refusal
from tests.tenants.making import a_model, a_namespace, a_tenant
from tests.tenants.services.test_share_group import a_group

pytestmark = pytest.mark.django_db


def test_selectors_mean_sets_of_namespaces():
    tenant, other, model = a_tenant(erasure_scope="session"), a_tenant(), a_model()
    one = a_namespace(tenant, model, label="a", session="s")
    two = a_namespace(tenant, model, label="b")
    a_namespace(other, model, label="a")

    def reach(**selector):
        return {t.namespace for t in plan_from_json(planned(**selector).body).targets}

    assert reach(tenant=tenant.slug) == {str(one.id), str(two.id)}
    assert reach(tenant=tenant.slug, label="a") == {str(one.id)}
    assert reach(tenant=tenant.slug, session="s") == {str(one.id)}
    assert reach(namespace=bytes(two.digest).hex()) == {str(two.id)}
    assert len(reach(epoch=f"{model.name}/1")) == 3
    assert reach(**{"tenant": tenant.slug, "and": [{"label": "b"}]}) == {str(two.id)}
    assert reach(**{"tenant": tenant.slug, "label": "a", "and": [{"label": "b"}]}) == set()


def test_what_is_not_apart_is_refused_and_says_what_would_go():
    tenant = a_tenant(erasure_scope="tenant")
    a_namespace(tenant, label="a")
    with pytest.raises(Problem) as caught:
        planned(tenant=tenant.slug, label="a")
    assert caught.value.code == "not-separable"
    assert "erasure_scope tenant" in caught.value.text
    assert refusal(planned, tenant="nobody-at-all") == "not-found"
    assert refusal(planned, older_than=1.0) == "selector-empty"
    assert refusal(planned, tenant=tenant.slug, older_than=1.0) == "collateral-needed"


def test_groups_that_others_read_are_left_out_unless_they_are_chosen():
    owner, member = a_tenant(), a_tenant()
    group = a_group(owner, member)
    shared = a_namespace(member, share_group=group.name)
    own = a_namespace(owner)
    plan = plan_from_json(planned(tenant=owner.slug).body)
    assert [t.namespace for t in plan.targets] == [str(own.id)]
    assert [t.namespace for t in plan.left_out] == [str(shared.id)]
    plan = plan_from_json(planned(tenant=owner.slug, options={"share_groups": [str(group.id)]}).body)
    assert {t.namespace for t in plan.targets} == {str(own.id), str(shared.id)}
    assert plan.risk == "R3"
