"""Plans and requests: what a selector reaches, what its risk asks for, and that a refusal fences nothing."""

from datetime import UTC, datetime, timedelta

import pytest

from audit.approvals import approval_decide
from audit.models import Event
from audit.registry import TYPES
from catalog.models import Operation, OperationTarget
from catalog.operation_requests import deletion_request, plan_create
from catalog.operation_starting import decision_apply
from kvconsole.infra.access import Principal
from kvconsole.infra.rest import Problem
from tenants.models import FenceEntry
from tests.catalog.operations.world import person
from tests.tenants.making import a_namespace, a_tenant

pytestmark = pytest.mark.django_db
NOW = datetime.now(UTC)
SIGNED, LATE = 3600.0, -1.0
"""So long an event may wait: what was just recorded does not wait for too long, or does."""


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


@pytest.mark.parametrize("whole", [False, True])
def test_a_plan_is_started_once_whatever_became_of_it(whole):
    tenant = a_tenant(erasure_scope="label")
    namespace = a_namespace(tenant, label="a")
    plan = planned(tenant=tenant.slug, **({} if whole else {"label": "a"}))
    good = {"reason": "why", "confirm_phrase": "delete 0 objects"} if whole else {}
    first = started(plan, **good)
    with pytest.raises(Problem) as caught:
        started(plan, **good)
    assert caught.value.code == "plan-started"
    assert str(first.id) in caught.value.detail
    Operation.objects.filter(id=first.id).update(concluded_at=NOW, outcome="stopped", finalizers=[])
    assert refusal(started, plan, **good) == "plan-started"
    namespace.refresh_from_db()
    assert namespace.min_gen == 2
    assert Operation.objects.count() == 1


def test_nothing_is_deleted_while_the_log_is_not_signed_in_time(settings):
    tenant = a_tenant(erasure_scope="label")
    namespace = a_namespace(tenant, label="a")
    plan = planned(tenant=tenant.slug, label="a")
    settings.LOG_LATE_SECONDS = LATE
    assert refusal(started, plan) == "audit-unavailable"
    namespace.refresh_from_db()
    assert (namespace.min_gen, Operation.objects.count()) == (1, 0)
    settings.LOG_LATE_SECONDS = SIGNED
    assert started(plan).fenced_at == NOW


def test_what_a_second_person_agreed_to_waits_for_a_signed_log(settings):
    tenant = a_tenant(erasure_scope="label")
    namespace, who = a_namespace(tenant, label="a"), person()
    plan = planned(who, {"crypto_erase": True}, tenant=tenant.slug, label="a")
    operation = started(plan, who, reason="why", confirm_phrase="delete 0 objects")
    assert (plan.risk, operation.fenced_at) == ("R3", None)
    decision = {"approval_id": operation.approval, "approve": True, "actor": person("approver"), "now": NOW}
    settings.LOG_LATE_SECONDS = LATE
    assert refusal(approval_decide, **decision) == "audit-unavailable"
    settings.LOG_LATE_SECONDS = SIGNED
    approval_decide(**decision)
    settings.LOG_LATE_SECONDS = LATE
    assert not decision_apply(operation_id=operation.id, now=NOW)
    operation.refresh_from_db()
    assert (operation.fenced_at, operation.concluded_at) == (None, None)
    settings.LOG_LATE_SECONDS = SIGNED
    assert decision_apply(operation_id=operation.id, now=NOW)
    namespace.refresh_from_db()
    assert namespace.min_gen == 2
