"""An operation starts when nobody is waited for: no second person, no window, no drain. Then it starts once."""

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.db import ProgrammingError, transaction

from audit.approvals import approval_decide
from audit.models import Event
from audit.registry import TYPES
from catalog.models import Operation, Plan
from catalog.operation_orders import kept, operation_change
from catalog.operation_requests import deletion_request, plan_create
from catalog.operation_starting import DRAIN_LEAST, decision_apply
from kvcore.keys import GENERATION_CLOSED
from tenants import services
from tenants.constants import PLATFORM_TENANT
from tenants.models import Epoch, KeyLease
from tenants.selectors import namespaces_active
from tests.catalog.operations import world
from tests.tenants.making import a_model, a_namespace, a_tenant
from tests.tenants.persons import Caller, Person, code

pytestmark = pytest.mark.django_db
NOW = datetime.now(UTC)


def person(*roles):
    """Somebody who had proved who they are a moment before."""
    return replace(world.person(*roles), proved_at=NOW.timestamp() - 10)


@pytest.fixture(autouse=True)
def _nobody(settings):
    settings.TASK_SENDER = "tests.audit.sealed.nobody"


class Old:
    """An epoch that is over, its namespace, and the epoch that requests go to then."""

    def __init__(self):
        self.tenant, self.model, self.who = a_tenant(), a_model(), person()
        self.namespace = a_namespace(self.tenant, self.model)
        services.epoch_create(model=self.model, weights_digest="new")

    def retire(self, drain=True, **more):
        options = {"drain": True, "drain_seconds": 600.0} if drain else {}
        plan = plan_create(selector={"epoch": f"{self.model.name}/1"}, options=options, actor=self.who, now=NOW,
                           kind="epoch")  # fmt: skip
        return deletion_request(plan_id=plan.id, plan_hash=bytes(plan.plan_hash).hex(), reason="old", trigger="epoch",
                                actor=self.who, now=NOW, **more)  # fmt: skip

    def leased(self, seconds):
        KeyLease.objects.create(
            tenant_id=self.tenant.id, namespace=self.namespace, holder_kind="gateway", holder="g1", generation=1,
            granted_at=NOW, until=NOW + timedelta(seconds=seconds),
        )  # fmt: skip

    @property
    def state(self):
        self.namespace.refresh_from_db()
        return Epoch.objects.get(model=self.model, epoch=1).state, self.namespace.state, self.namespace.min_gen


CLOSED = ("retired", "closed", GENERATION_CLOSED)


@pytest.fixture
def old(db):
    return Old()


def started(operation, **after):
    changed = decision_apply(operation_id=operation.id, now=NOW + timedelta(**after))
    operation.refresh_from_db()
    return changed and operation.fenced_at is not None


def events(name):
    return Event.objects.filter(event_type=TYPES[name].number).count()


def test_a_drained_epoch_gets_no_new_requests_and_is_read_until_nobody_is_sent_to_it(old):
    old.leased(200)
    operation = old.retire(throttle=1000)
    assert (operation.problem, operation.fenced_at, operation.throttle) == ("draining", None, 1000)
    assert old.state == ("retired", "active", 1)
    assert a_namespace(old.tenant, old.model).model_epoch == 2
    assert old.namespace.id in {row.id for row in namespaces_active()}  # nodes serve it
    assert old.namespace.id not in {row.id for row in namespaces_active(resolved=True)}  # gateways get no new lease
    assert not started(operation, seconds=100)
    assert operation.due_at == NOW + timedelta(seconds=101)
    assert started(operation, seconds=201)
    assert old.state == CLOSED
    assert not started(operation, seconds=202)
    assert events("epoch.retired") == events("operation.fenced") == events("order.approved") == 1


def test_a_drain_ends_at_its_deadline_whoever_has_a_lease_still(old):
    old.leased(900)
    operation = old.retire()
    assert operation.drain_until == NOW + timedelta(seconds=600)
    assert not started(operation, seconds=599)
    assert started(operation, seconds=601)


def test_who_was_sent_there_at_the_last_moment_has_read_by_then(old):
    operation = old.retire()
    assert not started(operation, seconds=DRAIN_LEAST.total_seconds() - 1)
    assert started(operation, seconds=DRAIN_LEAST.total_seconds() + 1)


def test_a_drain_that_is_stopped_leaves_the_epoch_as_it_was(old):
    operation = old.retire()
    operation_change(operation=operation, change="stopped", actor=old.who, now=NOW)
    assert old.state == ("open", "active", 1)
    assert not started(operation, seconds=700)
    assert (operation.outcome, events("epoch.reopened")) == ("stopped", 1)


def test_at_once_is_at_once_and_once(old):
    operation = old.retire(drain=False)
    assert (operation.fenced_at, old.state) == (NOW, CLOSED)
    with pytest.raises(Exception, match="retired already"):
        old.retire(drain=False)


@pytest.mark.parametrize("options", [{"drain": True, "drain_seconds": 60.0}, {}])
def test_what_a_tenants_session_wrote_closes_no_epoch_of_the_platform(old, options):
    real = plan_create(selector={"epoch": f"{old.model.name}/1"}, options=options, actor=old.who, now=NOW, kind="epoch")
    assert real.tenant_id == PLATFORM_TENANT
    told = {f.attname: getattr(real, f.attname) for f in Plan._meta.fields}
    plan = Plan.objects.create(**told | {"id": uuid.uuid4(), "tenant_id": old.tenant.id})
    operation = Operation.objects.create(
        tenant_id=old.tenant.id, kind="epoch", trigger="epoch", selector=real.selector, options=real.options,
        plan=plan.id, plan_hash=bytes(real.plan_hash), risk="R2", requested_by="user:x", requester=kept(old.who),
        deadline=NOW, not_after=NOW, created_at=NOW, due_at=NOW,
    )  # fmt: skip
    assert not started(operation)
    assert not started(operation, seconds=700)
    assert old.state == ("open", "active", 1)
    assert operation.outcome == "expired"


# --- the second person --------------------------------------------------------------------


def far(tenant, who, **more):
    """A deletion that a second person has to agree to."""
    plan = plan_create(selector={"tenant": tenant.slug, "label": "a"}, options={"crypto_erase": True}, actor=who,
                       now=NOW)  # fmt: skip
    return deletion_request(plan_id=plan.id, plan_hash=bytes(plan.plan_hash).hex(), reason="why", actor=who, now=NOW,
                            confirm_phrase="delete 0 objects", **more)  # fmt: skip


def test_who_asked_for_it_never_agrees_to_it_wherever_they_ask_from():
    tenant = a_tenant(erasure_scope="label")
    namespace, me = a_namespace(tenant, label="a"), Person("destructive-operator", "approver", "viewer")
    plan = me.post("/deletion-plans", {"selector": {"tenant": tenant.slug, "label": "a"},
                                       "options": {"crypto_erase": True}}).json()  # fmt: skip
    body = {
        "plan_id": plan["id"],
        "plan_hash": plan["plan_hash"],
        "reason": "why",
        "confirm_phrase": "delete 0 objects",
    }
    answer = me.post("/deletions", body, **{"Idempotency-Key": str(uuid.uuid4())})
    assert (answer.status_code, answer.json()["state"]) == (202, "awaiting_approval"), answer.content
    operation = Operation.objects.get(id=answer.json()["id"])
    path = f"/approvals/{operation.approval}:approve"
    assert code(me.post(path, {})) == (403, "approval-own")
    again = Person("viewer")  # a second browser
    assert again.client.login(username=me.user.username, password="correct horse")
    again.prove()
    assert code(again.post(path, {})) == (403, "approval-own")
    for kind in ("user", "service"):
        token = services.token_issue(kind, user=me.user if kind == "user" else None, roles=["approver"],
                                     scopes=["approvals:destroy"])[1]  # fmt: skip
        assert code(Caller(token).post(path, {})) == (403, "person-needed")
    assert not decision_apply(operation_id=operation.id, now=NOW)
    namespace.refresh_from_db()
    assert namespace.min_gen == 1
    other = Person("approver", "viewer")
    assert [one["id"] for one in other.get("/approvals?state=open").json()["items"]] == [str(operation.approval)]
    assert other.post(path, {"reason": "seen"}).status_code == 200
    assert code(other.post(path.replace("approve", "deny"), {})) == (409, "approval-decided")
    assert started(operation)


def test_an_agreement_is_to_the_plan_that_was_seen():
    tenant, who = a_tenant(erasure_scope="label"), person()
    namespace, operation = a_namespace(tenant, label="a"), far(tenant, who)
    for change in ({"plan_hash": b"x" * 32}, {"selector": {"tenant": tenant.slug}}, {"plan": uuid.uuid4()}):
        with pytest.raises(ProgrammingError, match="stays what it was asked"), transaction.atomic():
            Operation.objects.filter(id=operation.id).update(**change)
    namespace.refresh_from_db()
    assert namespace.min_gen == 1
    approval_decide(approval_id=operation.approval, approve=True, actor=person("approver"), now=NOW)
    assert started(operation)
    namespace.refresh_from_db()
    assert namespace.min_gen == 2


def test_an_agreement_that_comes_too_late_is_none():
    tenant, who = a_tenant(erasure_scope="label"), person()
    a_namespace(tenant, label="a")
    operation = far(tenant, who)
    assert not started(operation, hours=23)
    assert operation.outcome == ""
    assert not started(operation, hours=25)
    assert operation.outcome == "expired"


def test_what_is_stopped_while_it_waits_is_over(old):
    tenant, who = a_tenant(erasure_scope="label"), person()
    a_namespace(tenant, label="a")
    operation = far(tenant, who)
    operation_change(operation=operation, change="stopped", actor=who, now=NOW)
    with pytest.raises(Exception, match="withdrawn"):
        approval_decide(approval_id=operation.approval, approve=True, actor=person("approver"), now=NOW)
    assert not started(operation)
    assert operation.outcome == "stopped"
