"""Rules open operations of the same engine: once for their matter, as actors of their own, never in a deny window."""

from datetime import UTC, datetime, timedelta

import pytest

from audit.certifying import certificate_of_operation
from audit.models import Event
from audit.registry import TYPES
from catalog.models import Operation
from catalog.operation_requests import deletion_request, plan_create
from catalog.operation_views import operation_view
from catalog.rules import quota, retention
from catalog.rules.due import rules_due
from catalog.rules.sessions import session_end
from catalog.windows import window_create, window_remove
from kvconsole.infra.rest import Problem
from tenants.models import Epoch
from tests.catalog.operations.conftest import sealed as sealed
from tests.catalog.operations.conftest import world as world
from tests.catalog.operations.world import person
from tests.tenants.making import a_model, a_namespace, a_tenant

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


@pytest.fixture(autouse=True)
def _forgetful():
    quota.forget()
    retention.forget()


def now():
    return datetime.now(UTC)


def settled(world):
    """The writer has written what lags, and who has a tenant's blocks has told it."""
    world.rig.tick(2.0)


def test_what_lies_longer_than_its_class_is_kept_goes(world):
    tenant = a_tenant(erasure_scope="class", classes=["internal", "source"], retention={"source": 600})
    kept, late = (a_namespace(tenant, world.model, data_class=name) for name in ("internal", "source"))
    node = world.node("n1")
    world.hold(node, late, 2, 3)
    settled(world)
    assert rules_due(now=now()) == []
    assert rules_due(now=now() + timedelta(seconds=300)) == []
    (operation,) = rules_due(now=now() + timedelta(seconds=601))
    assert rules_due(now=now() + timedelta(seconds=602)) == []
    assert (operation.trigger, operation.requested_by) == ("ttl", "system:rule-ttl")
    assert operation.selector["class"] == "source"
    assert Event.objects.filter(event_type=TYPES["operation.requested"].number).count() == 1
    world.acknowledged()
    assert world.go_on(operation) in ("completed", "completed_with_exceptions")
    kept.refresh_from_db()
    assert (world.left(late), kept.min_gen) == (0, 1)


def test_where_classes_are_not_apart_the_shortest_holds_for_all(world):
    tenant = a_tenant(erasure_scope="tenant", classes=["a", "b"], retention={"a": 600, "b": 60})
    namespace, node = a_namespace(tenant, world.model), world.node("n1")
    world.hold(node, namespace, 1)
    settled(world)
    (operation,) = rules_due(now=now() + timedelta(seconds=61))
    assert operation.selector["namespace"] == bytes(namespace.digest).hex()


def test_a_session_that_ended_goes_once(world):
    tenant = a_tenant(erasure_scope="session")
    mine, other = (a_namespace(tenant, world.model, session=name) for name in ("s1", "s2"))
    node = world.node("n1")
    world.hold(node, mine, 1)
    gateway = person("operator")
    said = {"tenant": tenant.slug, "session": "s1", "actor": gateway}
    operation = session_end(**said, now=now())
    assert session_end(**said, now=now()).id == operation.id
    assert (operation.trigger, operation.requested_by) == ("session_end", "system:rule-session-end")
    assert operation.fenced_at is not None
    world.acknowledged()
    assert world.go_on(operation) == "completed"
    assert certificate_of_operation(operation.id) is not None
    assert session_end(**said, now=now()) is None  # the message came once more
    other.refresh_from_db()
    assert (world.left(mine), other.min_gen) == (0, 1)
    assert Operation.objects.filter(trigger="session_end").count() == 1
    assert Event.objects.filter(event_type=TYPES["session.ended"].number).count() == 3
    assert session_end(**{**said, "session": "never"}, now=now()) is None


def test_a_session_that_is_not_apart_from_the_rest_is_refused(world):
    with pytest.raises(Problem) as refused:
        session_end(tenant=world.tenant.slug, session="s1", actor=person("operator"), now=now())
    assert refused.value.code == "not-separable"
    assert not Operation.objects.exists()


def test_in_a_deny_window_rules_wait_and_what_waits_is_seen(world):
    tenant = a_tenant(erasure_scope="session")
    namespace, node = a_namespace(tenant, world.model, session="s1"), world.node("n1")
    world.hold(node, namespace, 1)
    who = person()
    window = window_create(
        tenant=None, cron="* * * * *", minutes=5, from_risk="R1", reason="audit", actor=who, now=now()
    )
    operation = session_end(tenant=tenant.slug, session="s1", actor=person("operator"), now=now())
    assert operation.risk >= "R1"
    assert (operation.fenced_at, operation.problem) == (None, "deny-window")
    shown = operation_view(operation, now=now())
    assert (shown["state"], shown["error"]["code"]) == ("planned", "deny-window")
    world.go_on(operation, rounds=1)
    namespace.refresh_from_db()
    assert (namespace.min_gen, node.orders) == (1, [])
    window_remove(window_id=window.id, actor=who)
    world.acknowledged()
    assert world.go_on(operation) == "completed"
    assert Event.objects.filter(event_type=TYPES["operation.fenced"].number).count() == 1


def test_an_epoch_that_nobody_used_is_over_for_requests_too(world):
    model, who = a_model(epochs=2), person()
    world.node("n1")
    plan = plan_create(selector={"epoch": f"{model.name}/1"}, options={}, actor=who, now=now(), kind="epoch")
    operation = deletion_request(plan_id=plan.id, plan_hash=bytes(plan.plan_hash).hex(), reason="never used", actor=who,
                                 trigger="epoch", now=now())  # fmt: skip
    assert Epoch.objects.get(model=model, epoch=1).state == "retired"
    world.acknowledged()
    assert world.go_on(operation) == "completed"
