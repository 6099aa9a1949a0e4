"""Legal holds: nobody places or releases one alone, and what is held is fenced and waits."""

from datetime import UTC, datetime, timedelta

import pytest

from audit.approvals import approval_decide, approval_of
from catalog.holds import PLACE, RELEASE, decision_apply, hold_release_request, hold_request, hold_view, holds_sweep
from catalog.operation_bodies import HoldOut
from catalog.operation_plans import holds_on
from kvconsole.infra.access import Principal
from kvconsole.infra.rest import Problem
from tests.catalog.operations.world import person
from tests.tenants.making import a_model, a_namespace, a_tenant

pytestmark = pytest.mark.django_db
NOW = datetime.now(UTC)


@pytest.fixture(autouse=True)
def _nobody(settings):
    settings.TASK_SENDER = "tests.audit.sealed.nobody"


def held(tenant, actor=None):
    return hold_request(selector={"tenant": tenant.slug}, authority="Court 7", reason="case", actor=actor or person(),
                        review_at=NOW + timedelta(days=90), now=NOW)  # fmt: skip


def decide(hold, kind, name, approve):
    approval = approval_of(kind, name, tenant_id=hold.tenant_id)
    approval_decide(approval_id=approval.id, approve=approve, actor=person("approver"), now=datetime.now(UTC))
    assert holds_sweep(now=datetime.now(UTC)) == 1
    hold.refresh_from_db()
    return hold.state


def test_two_persons_place_and_release_it_and_it_covers_what_comes_later():
    tenant, model = a_tenant(), a_model()
    namespace = a_namespace(tenant, model)
    hold = held(tenant)
    assert set(hold_view(hold)) == set(HoldOut().fields)
    assert holds_on({namespace.id}) == []
    assert not decision_apply(hold_id=hold.id, now=NOW)
    assert decide(hold, PLACE, str(hold.id), True) == "active"
    later = a_namespace(tenant, a_model())
    assert [(h.id, covered) for h, covered in holds_on({later.id})] == [(hold.id, {later.id})]
    hold_release_request(hold_id=hold.id, reason="over", actor=person(), now=NOW)
    assert [h.id for h, _ in holds_on({namespace.id})] == [hold.id]  # until somebody else agrees
    assert decide(hold, RELEASE, f"{hold.id}/1", False) == "active"
    hold_release_request(hold_id=hold.id, reason="over", actor=person(), now=NOW)
    assert decide(hold, RELEASE, f"{hold.id}/2", True) == "released"
    assert holds_on({namespace.id}) == []


def test_refusals():
    tenant = a_tenant()
    a_namespace(tenant)
    token = Principal(kind="token", id="t", roles=frozenset({"destructive-operator"}))
    for call in (
        lambda: held(tenant, token),
        lambda: hold_release_request(hold_id=tenant.id, reason="x", actor=person(), now=NOW),
        lambda: hold_release_request(hold_id=held(tenant).id, reason="x", actor=person(), now=NOW),
    ):
        with pytest.raises(Problem):
            call()
    denied = held(tenant)
    assert decide(denied, PLACE, str(denied.id), False) == "denied"


def test_a_hold_is_placed_and_a_release_waits_while_the_log_is_not_signed_in_time(settings):
    tenant = a_tenant()
    a_namespace(tenant)
    hold, signed, late = held(tenant), 3600.0, -1.0
    settings.LOG_LATE_SECONDS = late
    assert decide(hold, PLACE, str(hold.id), True) == "active"
    release = {"hold_id": hold.id, "reason": "over", "actor": person(), "now": NOW}
    with pytest.raises(Problem) as refused:
        hold_release_request(**release)
    assert refused.value.code == "audit-unavailable"
    settings.LOG_LATE_SECONDS = signed
    hold_release_request(**release)
    approval = approval_of(RELEASE, f"{hold.id}/1", tenant_id=hold.tenant_id)
    approval_decide(approval_id=approval.id, approve=True, actor=person("approver"), now=datetime.now(UTC))
    settings.LOG_LATE_SECONDS = late
    assert holds_sweep(now=datetime.now(UTC)) == 0
    settings.LOG_LATE_SECONDS = signed
    assert holds_sweep(now=datetime.now(UTC)) == 1
    hold.refresh_from_db()
    assert hold.state == "released"
