"""Plans and requests: what a selector reaches, what its risk asks for, and that a refusal fences nothing."""

from datetime import UTC, datetime, timedelta

import pytest

from audit.models import Event
from audit.registry import TYPES
from catalog.models import Operation, OperationTarget
from catalog.operation_requests import deletion_request, plan_create
from kvconsole.infra.access import Principal
from kvconsole.infra.rest import Problem
from tenants.models import FenceEntry
from tests.catalog.operations.world import person
from tests.tenants.making import a_namespace, a_tenant

pytestmark = pytest.mark.django_db
NOW = datetime.now(UTC)


@pytest.fixture(autouse=True)
def _nobody(settings):
    settings.TASK_SENDER = "tests.audit.sealed.nobody"


def planned(actor=None, options=None, **selector):
    return plan_create(selector=selector, options=options or {}, actor=actor or person(), now=NOW)


def started(plan, actor=None, **more):
    return deletion_request(**{"plan_id": plan.id, "plan_hash": bytes(plan.plan_hash).hex(), "actor": actor or person(),
                               "now": NOW, **more})  # fmt: skip


def refusal(call, *args, **more):
    with pytest.raises(Problem) as caught:
        call(*args, **more)
    return caught.value.code


def test_a_request_fences_orders_and_tells_in_one_transaction():
    tenant = a_tenant(erasure_scope="label")
    namespace, other = a_namespace(tenant, label="a"), a_namespace(tenant, label="b")
    who = person()
    operation = started(planned(who, tenant=tenant.slug, label="a"), who)
    target = OperationTarget.objects.get(operation=operation.id)
    assert (bytes(target.digest), target.min_gen) == (bytes(namespace.digest), 2)
    assert FenceEntry.objects.get(seq=target.fence_seq).min_gen == 2
    other.refresh_from_db()
    assert other.min_gen == 1
    order = Event.objects.only("event_type", "body_hash").get(id=operation.order_event)
    assert order.event_type == TYPES["order.approved"].number
    assert bytes(order.body_hash) == bytes(operation.order_hash)
    assert Event.objects.filter(event_type=TYPES["operation.requested"].number).count() == 1


def test_refusals_fence_nothing():
    tenant = a_tenant(erasure_scope="label")
    namespace = a_namespace(tenant, label="a")
    whole = planned(tenant=tenant.slug)
    assert whole.risk == "R2"
    phrase = "delete 0 objects"
    good = {"reason": "why", "confirm_phrase": phrase}
    assert refusal(started, whole) == "reason-needed"
    assert refusal(started, whole, reason="why") == "confirm-phrase-wrong"
    assert refusal(started, whole, **good, plan_hash="0" * 64) == "plan-mismatch"
    assert refusal(started, whole, **good, now=NOW + timedelta(minutes=16)) == "plan-expired"
    stale = Principal(kind="user", id=person().id, roles=frozenset({"destructive-operator"}))
    assert refusal(started, whole, stale, **good) == "step-up-required"
    token = Principal(kind="token", id="t", roles=frozenset({"destructive-operator"}), scopes=frozenset({"x:write"}))
    assert refusal(started, whole, token, **good) == "scope-missing"
    namespace.refresh_from_db()
    assert namespace.min_gen == 1
    assert Operation.objects.count() == 0
    assert started(whole, **good).fenced_at == NOW
