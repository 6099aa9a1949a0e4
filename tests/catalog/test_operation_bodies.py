"""What is shown has the fields that the description promises, and no others."""

from datetime import UTC, datetime

import pytest

from catalog import operation_bodies as forms
from catalog.operation_plans import finer, selector_of
from catalog.operation_requests import deletion_request, plan_create
from catalog.operation_views import operation_view, operations, plan_view
from kvconsole.infra.rest import Problem
from kvcore.plan_state import State
from kvcore.plans import Selector
from tests.catalog.operations.world import person
from tests.tenants.making import a_namespace, a_tenant, principal

pytestmark = pytest.mark.django_db


def test_plans_and_operations_are_as_described(settings):
    settings.TASK_SENDER = "tests.audit.sealed.nobody"
    tenant = a_tenant(erasure_scope="label")
    a_namespace(tenant, label="a")
    now, who = datetime.now(UTC), person()
    plan = plan_create(selector={"tenant": tenant.slug, "label": "a"}, options={}, actor=who, now=now)
    assert set(plan_view(plan)) == set(forms.PlanOut().fields)
    operation = deletion_request(plan_id=plan.id, plan_hash=bytes(plan.plan_hash).hex(), actor=who, now=now)
    whole = operation_view(operation, now=now)
    assert set(whole) == set(forms.OperationOut().fields)
    assert {c["type"] for c in whole["conditions"]} >= {"Approved", "Fenced", "Unroutable", "Erased", "Verified"}
    assert list(operations(open_=True)) == [operation]
    operation.concluded_at, operation.outcome = now, "stopped"
    assert set(operation_view(operation, now=now, whole=False)) == set(forms.OperationOut().fields)
    assert set(forms.STATES) == set(State)


def test_a_selector_of_a_tenants_people_is_of_their_tenant():
    who = principal(a_tenant(slug="mine"))
    assert selector_of({"label": "x"}, who).tenant == "mine"
    for said in ({"tenant": "theirs"}, {"and": [{"and": [{"label": "x"}]}]}, {"label": 1}):
        with pytest.raises(Problem):
            selector_of(said, who)
    assert finer(Selector(prefix=("00",)))
    assert finer(Selector(and_=(Selector(older_than=1.0),)))
    assert not finer(Selector(label="a"))
