"""The same plan started twice, by a double click, a second session or a repeated call: one effect, one clear answer."""

import uuid
from datetime import UTC, datetime
from threading import Barrier, Thread

import pytest
from django.db import connections

from audit.models import Approval, Event
from audit.registry import TYPES
from catalog.models import Operation
from catalog.operation_requests import deletion_request, plan_create
from kvconsole.infra.rest import Problem
from tests.catalog.operations.world import person
from tests.tenants.making import a_namespace, a_tenant
from tests.tenants.persons import Person, code

PHRASE = {"reason": "why", "confirm_phrase": "delete 0 objects"}


@pytest.fixture(autouse=True)
def _nobody(settings):
    settings.TASK_SENDER = "tests.audit.sealed.nobody"


def requested():
    return Event.objects.filter(event_type=TYPES["operation.requested"].number).count()


@pytest.mark.django_db
@pytest.mark.parametrize(("options", "state"), [({}, "fenced"), ({"crypto_erase": True}, "awaiting_approval")])
def test_a_repeated_call_has_the_first_ones_answer_and_another_is_told_of_it(options, state):
    tenant = a_tenant(erasure_scope="label")
    namespace = a_namespace(tenant, label="a")
    me = Person("destructive-operator", "approver", "viewer")
    selector = {"selector": {"tenant": tenant.slug, "label": "a"}, "options": options}
    plan = me.post("/deletion-plans", selector).json()
    body = {"plan_id": plan["id"], "plan_hash": plan["plan_hash"], **PHRASE}
    key = str(uuid.uuid4())
    first = me.post("/deletions", body, **{"Idempotency-Key": key})
    assert (first.status_code, first.json()["state"]) == (202, state), first.content
    again = me.post("/deletions", body, **{"Idempotency-Key": key})
    assert (again.status_code, again.json(), again["Idempotency-Replayed"]) == (202, first.json(), "true")
    second = Person("viewer")  # of the same person
    assert second.client.login(username=me.user.username, password="correct horse")
    second.prove()
    for session in (me, second):
        other = session.post("/deletions", body, **{"Idempotency-Key": str(uuid.uuid4())})
        assert code(other) == (409, "plan-started")
        assert first.json()["id"] in other.json()["detail"]
    namespace.refresh_from_db()
    assert namespace.min_gen == (2 if state == "fenced" else 1)
    assert (Operation.objects.count(), requested()) == (1, 1)
    assert Approval.objects.filter(kind="operation").count() == (0 if state == "fenced" else 1)


@pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
def test_of_two_who_start_a_plan_at_once_one_does():
    tenant, who = a_tenant(erasure_scope="label"), person()
    namespace = a_namespace(tenant, label="a")
    row = plan_create(selector={"tenant": tenant.slug, "label": "a"}, options={}, actor=who, now=datetime.now(UTC))
    ready, ends = Barrier(2), []

    def click():
        try:
            ready.wait(10)
            made = deletion_request(plan_id=row.id, plan_hash=bytes(row.plan_hash).hex(), actor=who,
                                    now=datetime.now(UTC))  # fmt: skip
            ends.append(str(made.id))
        except Problem as problem:
            ends.append(problem.code)
        finally:
            connections.close_all()

    threads = [Thread(target=click) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    made = Operation.objects.get()
    assert sorted(ends) == sorted([str(made.id), "plan-started"])
    namespace.refresh_from_db()
    assert (namespace.min_gen, requested()) == (2, 1)
