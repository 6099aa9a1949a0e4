"""Deny windows: people are refused, what a second person agreed to waits, and a second person may let one through."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from audit.approvals import approval_decide
from catalog.models import Operation
from catalog.operation_requests import deletion_request, plan_create
from catalog.operation_starting import decision_apply
from catalog.windows import MOST, denied, window_create, window_remove
from kvconsole.infra.access import Principal
from kvconsole.infra.rest import Problem
from tenants.placing import tenant_place
from tests.catalog.operations import world
from tests.tenants.making import a_namespace, a_tenant

pytestmark = pytest.mark.django_db
NOW = datetime.now(UTC)
ALWAYS = {"cron": "* * * * *", "minutes": 1, "from_risk": "R1", "reason": "audit"}


def until():
    """When the window of now is over."""
    return NOW.replace(second=0, microsecond=0) + timedelta(minutes=1)


def person(*roles):
    """Somebody who had proved who they are a moment before."""
    return replace(world.person(*roles), proved_at=NOW.timestamp() - 10)


@pytest.fixture(autouse=True)
def _nobody(settings):
    settings.TASK_SENDER = "tests.audit.sealed.nobody"


@pytest.fixture
def tenant():
    return a_tenant(erasure_scope="label")


def window(tenant=None, actor=None, **more):
    said = {**ALWAYS, **more}
    place = tenant_place(tenant.slug) if tenant else None
    return window_create(tenant=place, actor=actor or person(), now=NOW, **said)


def asked(tenant, actor, *, options=None, **more):
    plan = plan_create(selector={"tenant": tenant.slug, "label": "a"}, options=options or {}, actor=actor, now=NOW)
    return deletion_request(plan_id=plan.id, plan_hash=bytes(plan.plan_hash).hex(), actor=actor, now=NOW, **more)


def refusal(call, *args, **more):
    with pytest.raises(Problem) as caught:
        call(*args, **more)
    return caught.value


def test_nothing_starts_in_a_window_and_everything_after_it(tenant):
    namespace, who = a_namespace(tenant, label="a"), person()
    made = window()
    refused = refusal(asked, tenant, who)
    assert refused.code == "deny-window"
    assert 1 <= refused.retry_after_seconds <= 60
    namespace.refresh_from_db()
    assert (namespace.min_gen, Operation.objects.count()) == (1, 0)
    window_remove(window_id=made.id, actor=who)
    assert asked(tenant, who).fenced_at == NOW


def test_a_tenants_window_is_for_its_own_matters(tenant):
    other = a_tenant(erasure_scope="label")
    a_namespace(tenant, label="a")
    a_namespace(other, label="a")
    window(other)
    assert denied(tenant.id, "R3", NOW) is None
    assert denied(other.id, "R1", NOW) == until()
    assert denied(other.id, "R0", NOW) is None
    assert asked(tenant, person()).fenced_at == NOW
    assert refusal(asked, other, person()).code == "deny-window"


def test_what_was_agreed_to_waits_for_the_end_of_the_window(tenant):
    namespace, who = a_namespace(tenant, label="a"), person()
    good = {"reason": "why", "confirm_phrase": "delete 0 objects", "options": {"crypto_erase": True}}
    operation = asked(tenant, who, **good)
    made = window()
    approval_decide(approval_id=operation.approval, approve=True, actor=person("approver"), now=NOW)
    assert decision_apply(operation_id=operation.id, now=NOW)  # that it waits is new
    assert not decision_apply(operation_id=operation.id, now=NOW)
    operation.refresh_from_db()
    assert (operation.problem, operation.fenced_at) == ("deny-window", None)
    assert NOW < operation.due_at <= until()
    window_remove(window_id=made.id, actor=who)
    assert decision_apply(operation_id=operation.id, now=NOW)
    operation.refresh_from_db()
    namespace.refresh_from_db()
    assert (operation.problem, namespace.min_gen) == ("", 2)


def test_a_second_person_lets_one_through(tenant):
    namespace, who = a_namespace(tenant, label="a"), person()
    window()
    assert refusal(asked, tenant, who, pass_windows=True).code == "reason-needed"
    token = Principal(kind="token", id="t", roles=frozenset({"destructive-operator"}))
    assert refusal(asked, tenant, token, pass_windows=True, reason="a court").code == "person-needed"
    operation = asked(tenant, who, pass_windows=True, reason="a court")
    assert (operation.risk, operation.needs_approval, operation.fenced_at) == ("R1", True, None)
    approval = {"approval_id": operation.approval, "approve": True, "now": NOW}
    assert refusal(approval_decide, actor=who, **approval).code == "approval-own"
    assert not decision_apply(operation_id=operation.id, now=NOW)
    approval_decide(actor=person("approver"), **approval)
    assert decision_apply(operation_id=operation.id, now=NOW)
    namespace.refresh_from_db()
    assert namespace.min_gen == 2


def test_what_is_no_window(tenant):
    for wrong in ({"cron": "x"}, {"minutes": 0}, {"minutes": 10**6}, {"from_risk": "R0"}):
        assert refusal(window, **wrong).code == "validation-failed"
    assert refusal(window_remove, window_id=tenant.id, actor=person()).code == "not-found"
    for _ in range(MOST):
        window(tenant)
    assert refusal(window, tenant).code == "validation-failed"
