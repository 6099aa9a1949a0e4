"""Class rules: built in, replaced, one event; their REST is in `test_api_tenancy`."""

import pytest

from audit.models import Event
from catalog.classes import class_rules_set, class_rules_view
from kvconsole.infra.rest import Problem
from kvcore.residency import Rule
from tenants.placing import tenant_place
from tests.tenants.making import a_tenant

pytestmark = pytest.mark.django_db


def test_rules_replace_the_built_in_ones_and_leave_an_event():
    tenant = tenant_place(a_tenant(classes=["restricted"]).slug)
    assert class_rules_view(tenant=tenant)["restricted"].built_in
    before = Event.objects.filter(event_type=0x0241).count()
    view = class_rules_set(tenant=tenant, rules={"restricted": Rule(tiers=frozenset({"hbm"}))}, actor=None)
    assert (view["restricted"].tiers, view["restricted"].built_in) == (["hbm"], False)
    assert class_rules_set(tenant=tenant, rules={}, actor=None)["restricted"].built_in
    assert Event.objects.filter(event_type=0x0241).count() == before + 2
    with pytest.raises(Problem):
        class_rules_set(tenant=tenant, rules={"other": Rule()}, actor=None)
