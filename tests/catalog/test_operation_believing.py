"""What a tenant's session wrote: the database takes only what such a session may ask, and the console believes none of
it. Each lie is told by SQL, or with a plan that the session wrote itself."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import DatabaseError, connections, transaction

from audit.approvals import approval_of
from catalog.models import Operation, OperationTarget, Plan
from catalog.operation_orders import order_ensure
from catalog.operations.engine import reconcile
from kvconsole.infra.access import FLEET_PLANE, TENANT_PLANE, tenant_context
from kvconsole.infra.sql import uuid7
from tenants.models import FenceEntry, Namespace
from tests.catalog.test_operation_requests import planned, started
from tests.tenants.making import a_namespace, a_tenant, principal

pytestmark = pytest.mark.django_db(databases=["default", "tenant"], transaction=True)
NOW = datetime.now(UTC)
COLUMNS = [field.column for field in Operation._meta.fields]


@pytest.fixture(autouse=True)
def _nobody(settings):
    settings.TASK_SENDER = "tests.audit.sealed.nobody"


@pytest.fixture
def tenant():
    made = a_tenant(erasure_scope="label")
    a_namespace(made, label="a")
    return made


def copied(operation, alias, **changes):
    """SQL of an operation like this one, with another plan of the same kind, but for the changes."""
    new = uuid7()
    said = {"id": f"'{new}'", "plan": "%(plan)s", "about": "''"} | changes
    query = f"INSERT INTO catalog_operation ({', '.join(COLUMNS)}) SELECT " + ", ".join(said.get(c, c) for c in COLUMNS)
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        (plan,) = Plan.objects.using(alias).filter(id=operation.plan)
        plan.id, plan.pk = uuid7(), None
        plan.pk = plan.id
        plan.save(using=alias, force_insert=True)
        cursor.execute(f"{query} FROM catalog_operation WHERE id = %(id)s", {"plan": plan.id, "id": operation.id})
    return new


def refused(call, *args, **more):
    with pytest.raises(DatabaseError) as caught:
        call(*args, **more)
    return caught.value.__cause__.sqlstate == "42501"


LIES = (
    {"trigger": "'ttl'"},
    {"trigger": "'session_end'", "requester": "jsonb_set(requester, '{kind}', '\"system\"')"},
    {"requester": "jsonb_set(requester, '{kind}', '\"system\"')"},
    {"requester": "jsonb_set(requester, '{tenant}', '\"\"')"},
    {"requested_by": "'user:another'"},
    {"risk": "'R0'"},
    {"selector": '\'{"tenant": "x"}\''},
    {"options": "options || '{\"crypto_erase\": true}'"},
    {"options": 'options || \'{"supplements": "x"}\''},
    {"plan_hash": "'\\x00'"},
    {"plan": "NULL"},
    {"kind": "'quota_trim'"},
    {"windows_passed": "true"},
    {"needs_approval": "true"},
    {"approval": "gen_random_uuid()"},
    {"order_event": "1"},
    {"certificate": "gen_random_uuid()"},
    {"verified_at": "now()"},
    {"concluded_at": "now()", "finalizers": "'{}'"},
    {"finalizers": "'{}'"},
    {"outcome": "'completed'"},
    {"not_after": "now() + interval '1 year'"},
    {"id": "'019a0000-0000-7000-8000-000000000001'"},
)


def test_a_session_of_a_tenant_asks_for_nothing_that_only_the_console_says(tenant):
    who = principal(tenant, at=NOW - timedelta(seconds=30))
    with tenant_context(who):
        operation = started(planned(who, label="a"), who)
        assert operation.needs_approval is False
        copied(operation, TENANT_PLANE)
        for lie in LIES:
            assert refused(copied, operation, TENANT_PLANE, **lie), lie
        for change in ("needs_approval = false", "risk = 'R0'", "approval = NULL", "fenced_at = NULL"):
            assert refused(changed, operation, TENANT_PLANE, change), change
        changed(operation, TENANT_PLANE, "stopped_at = now(), generation = 2")
        assert refused(changed, operation, TENANT_PLANE, "stopped_at = NULL, generation = 3")


def changed(operation, alias, what):
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        cursor.execute(f"UPDATE catalog_operation SET {what} WHERE id = %s", (operation.id,))


def test_no_login_of_the_console_lowers_what_an_operation_needs(tenant):
    with transaction.atomic():
        who = principal(at=NOW - timedelta(seconds=30))
        operation = started(planned(who, tenant=tenant.slug, label="a", options={"crypto_erase": True}), who,
                            reason="why", confirm_phrase="delete 0 objects")  # fmt: skip
        assert operation.needs_approval
        for change in ("needs_approval = false", "risk = 'R0'", "approval = NULL", "approval = gen_random_uuid()",
                       "plan_hash = '\\x00'", "order_event = 1", "said_at = now()"):  # fmt: skip
            assert refused(changed, operation, FLEET_PLANE, change), change
        assert refused(copied, operation, FLEET_PLANE, needs_approval="false")
        assert refused(copied, operation, FLEET_PLANE, risk="'R1'", needs_approval="false")


def lied(plan, **body):
    """A plan like this one, as the tenant's session wrote it itself."""
    plan.body = {**plan.body, **body}
    plan.risk, plan.id = plan.body["risk"], uuid7()
    plan.save(force_insert=True)
    return plan


def test_a_plan_that_a_session_wrote_does_not_lower_its_risk(tenant):
    who = principal(tenant, at=NOW - timedelta(seconds=30))
    with tenant_context(who):
        plan = planned(who, label="a", options={"crypto_erase": True})
        assert plan.risk == "R3"
        operation = started(lied(plan, risk="R0"), who)
        assert (operation.needs_approval, operation.fenced_at) == (False, operation.created_at)
    assert ordered(operation) == ("failed", "approval-needed", None)


def ordered(operation):
    operation.refresh_from_db()
    assert order_ensure(operation, NOW)
    operation.refresh_from_db()
    return operation.outcome, operation.problem, operation.order_event


def test_a_plan_that_means_something_else_than_it_says_is_not_carried_out(tenant):
    who = principal(tenant, at=NOW - timedelta(seconds=30))
    with tenant_context(who):
        plan = planned(who, label="a")
        wide = {**plan.body["selector"]}
        del wide["label"]
        operation = started(lied(plan, selector=wide), who)
    assert ordered(operation) == ("failed", "plan-mismatch", None)


@pytest.mark.parametrize("what", [{"min_gen": 2**62}, {"keys_hash": "ab" * 32, "key_count": 1}, {"label": "b"}])
def test_targets_beyond_what_was_selected_are_not_erased(tenant, what):
    who, own = principal(tenant, at=NOW - timedelta(seconds=30)), a_namespace(tenant, label=what.get("label", "c"))
    with tenant_context(who):
        operation = started(planned(who, label="a"), who)
        if "label" not in what:
            own = Namespace.objects.get(tenant_id=tenant.id, label="a")
        row = {"namespace": own.id, "digest": bytes(own.digest), "min_gen": 1, "fence_seq": 1, "part": 7}
        OperationTarget.objects.create(
            operation=operation.id, tenant_id=tenant.id, **row | {k: v for k, v in what.items() if k != "label"}
        )
    outcome, problem, order = ordered(operation)
    assert (outcome, order) == ("failed", None)
    assert problem == ("targets-foreign" if "label" in what else "plan-mismatch")


def test_how_far_and_since_when_it_is_fenced_is_what_the_log_of_fences_says(tenant):
    who, ago = principal(tenant), "now() - interval '50 minutes'"
    with tenant_context(who):
        first = started(planned(who, label="a"), who)
        seq = FenceEntry.objects.get(tenant_id=tenant.id).seq
        new = copied(first, TENANT_PLANE, fence_seq="0", fenced_at=ago, created_at=ago, deadline=ago)
        (target,) = OperationTarget.objects.filter(operation=first.id)
        target.operation, target.fence_seq = new, 0
        target.save(force_insert=True)
    operation = Operation.objects.get(id=new)
    assert ordered(operation)[2] is not None
    assert operation.fence_seq == seq > 0
    assert operation.said_at - timedelta(seconds=60) <= operation.fenced_at == operation.created_at
    assert operation.deadline == operation.said_at + timedelta(seconds=60)


def test_a_second_person_is_told_what_is_there_and_not_what_the_session_wrote(tenant):
    who = principal(tenant, at=NOW - timedelta(seconds=30))
    with tenant_context(who):
        plan = planned(who, label="a", options={"crypto_erase": True})
        told = lied(plan, blocks=7, reasons=["one-label"])
        operation = started(told, who, reason="why", confirm_phrase="delete 7 objects")
        assert operation.fenced_at is None
    operation.refresh_from_db()
    assert reconcile(operation_id=operation.id, holder="test", now=NOW) == "waiting"
    approval = approval_of("operation", str(operation.id), tenant_id=tenant.id)
    assert (approval.risk, approval.what["blocks"], approval.what["tenants"]) == ("R3", 0, [tenant.slug])
    assert approval.what["reasons"][0] == "crypto-erase"


def test_nobody_adds_to_what_others_asked_for_or_somebody_decides_on(tenant):
    """A row more, before the order, would be erased with the rest."""
    who, staff = principal(tenant, at=NOW - timedelta(seconds=30)), principal(at=NOW - timedelta(seconds=30))
    good = {"reason": "why", "confirm_phrase": "delete 0 objects"}
    theirs = a_namespace(a_tenant())
    with transaction.atomic():
        plan = planned(staff, tenant=tenant.slug, label="a", options={"crypto_erase": True})
        waits = started(plan, staff, **good)
    with tenant_context(who):
        own = started(planned(who, label="a", options={"crypto_erase": True}), who, **good)
        for operation in (waits, own):
            assert operation.fenced_at is None
            with pytest.raises(DatabaseError) as caught, transaction.atomic(using=TENANT_PLANE):
                OperationTarget.objects.create(
                    operation=operation.id, tenant_id=tenant.id, namespace=theirs.id, digest=bytes(theirs.digest),
                    min_gen=9, fence_seq=1,
                )  # fmt: skip
            assert caught.value.__cause__.sqlstate == "42501"
        assert refused(changed, waits, TENANT_PLANE, "due_at = now() + interval '1 year'")
        changed(waits, TENANT_PLANE, "due_at = now()")
