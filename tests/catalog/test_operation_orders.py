"""Orders: the console gives them itself, for what a tenant reaches of its own and for nothing else."""

import pytest

from audit.models import Event
from catalog.models import Operation, OperationTarget, Plan
from catalog.operation_orders import order_ensure
from kvconsole.infra.access import tenant_context
from tests.catalog.test_operation_requests import NOW, planned, refusal, started
from tests.tenants.making import a_namespace, a_tenant, principal


@pytest.fixture(autouse=True)
def _nobody(settings):
    settings.TASK_SENDER = "tests.audit.sealed.nobody"


@pytest.mark.django_db(databases=["default", "tenant"], transaction=True)
def test_a_tenants_people_reach_their_own_and_the_console_orders_it(settings):
    tenant, foreign = a_tenant(erasure_scope="label"), a_tenant(erasure_scope="label")
    a_namespace(tenant, label="a")
    theirs = a_namespace(foreign, label="a")
    who = principal(tenant)
    with tenant_context(who):
        assert refusal(planned, who, tenant=foreign.slug) == "not-found"
        assert refusal(planned, who, namespace=str(theirs.id)) == "not-found"
        plan = planned(who, label="a")
        assert plan.tenant_id == tenant.id
        operation = started(plan, who)
        assert operation.order_event is None
    operation.refresh_from_db()
    assert order_ensure(operation, NOW)
    operation.refresh_from_db()
    assert operation.order_event is not None
    assert Event.objects.only("producer_id").get(id=operation.order_event).producer_id < 64
    with tenant_context(principal(foreign)):
        assert not Plan.objects.exists()
        assert not Operation.objects.exists()


@pytest.mark.django_db(databases=["default", "tenant"], transaction=True)
def test_what_a_tenants_session_wrote_of_others_is_over_at_once():
    tenant, foreign = a_tenant(erasure_scope="label"), a_tenant()
    a_namespace(tenant, label="a")
    theirs, who = a_namespace(foreign), principal(tenant)
    with tenant_context(who):
        operation = started(planned(who, label="a"), who)
        OperationTarget.objects.create(
            operation=operation.id, tenant_id=tenant.id, namespace=theirs.id, digest=bytes(theirs.digest), min_gen=9,
            fence_seq=1,
        )  # fmt: skip
    operation.refresh_from_db()
    assert order_ensure(operation, NOW)
    operation.refresh_from_db()
    assert (operation.outcome, operation.problem, operation.order_event) == ("failed", "targets-foreign", None)
