"""Plans and requests: what a selector reaches, what its risk asks for, and that a refusal fences nothing."""

from datetime import UTC, datetime, timedelta

import pytest

from audit.models import Event
from audit.registry import TYPES
from catalog.models import Operation, OperationTarget, Plan
from catalog.operation_requests import deletion_request, plan_create
from kvconsole.infra.access import Principal, tenant_context
from kvconsole.infra.rest import Problem
from kvcore.plans import plan_from_json
from tenants.models import FenceEntry
from tests.catalog.operations.world import person
from tests.tenants.making import a_model, a_namespace, a_tenant, principal
from tests.tenants.services.test_share_group import a_group

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


@pytest.mark.django_db(databases=["default", "tenant"], transaction=True)
def test_a_tenants_people_reach_their_own_and_the_console_orders_it(settings):
    from catalog.operation_orders import order_ensure

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
    from catalog.operation_orders import order_ensure

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
