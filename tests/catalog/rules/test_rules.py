"""Rules open operations of the same engine: once for their matter, as actors of their own, never in a deny window."""

from datetime import UTC, datetime, timedelta

import pytest

from audit.certifying import certificate_of_operation
from audit.models import Event
from audit.registry import TYPES
from catalog.models import Operation, Quota
from catalog.operation_views import operation_view
from catalog.rules.due import rules_due
from catalog.rules.sessions import session_end
from catalog.windows import window_create, window_remove
from kvconsole.infra.rest import Problem
from tenants.services import tenant_change
from tests.catalog.ingest.rig import BYTES, TOKENS
from tests.catalog.operations.world import person
from tests.tenants.making import a_namespace, a_tenant

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
LATER = timedelta(hours=1)


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


def test_what_may_not_be_there_any_more_leaves_those_places_only(world):
    tenant = a_tenant(erasure_scope="label")
    namespace, here, there = a_namespace(tenant, world.model, label="x"), world.node("n1"), world.node("n2")
    world.cx.execute("UPDATE catalog_node SET region = 'us' WHERE id = %s", (there.sim.node,))
    world.hold(here, namespace, 1, 2)
    world.hold(there, namespace, 1)
    assert rules_due(now=now()) == []
    tenant_change(slug=tenant.slug, changes={"residency": "eu"}, actor=person())
    (operation,) = rules_due(now=now())
    assert rules_due(now=now()) == []
    assert (operation.kind, operation.trigger, operation.requested_by) == (
        "residency", "residency", "system:rule-residency",
    )  # fmt: skip
    assert world.go_on(operation) == "completed"
    assert certificate_of_operation(operation.id) is None
    assert {c.kind for c in there.orders} == {"erase", "verify"}
    assert here.orders == []
    assert world.left(namespace) == 2
    namespace.refresh_from_db()
    assert namespace.min_gen == 1
    assert rules_due(now=now() + LATER) == []


def test_a_tenant_that_stays_over_its_quota_is_trimmed_of_what_is_coldest(world):
    tenant = a_tenant(erasure_scope="label")
    cold, warm = (a_namespace(tenant, world.model, label=name) for name in ("cold", "warm"))
    node = world.node("n1")
    world.hold(node, cold, 1, 2, 3)
    world.hold(node, warm, 4, 5)
    settled(world)
    world.cx.execute("UPDATE catalog_placement SET born = born - interval '1 hour' WHERE keyspace IN"
                     " (SELECT id FROM catalog_keyspace WHERE digest = %s)", (bytes(cold.digest),))  # fmt: skip
    world.cx.execute("INSERT INTO catalog_quota (tenant_id, tier, limit_bytes, guaranteed_bytes, effective_bytes)"
                     " VALUES (%s, 'hbm', %s, 0, 0)", (tenant.id, 2 * BYTES * TOKENS))  # fmt: skip
    assert Quota.objects.get(tenant_id=tenant.id).limit_bytes
    assert rules_due(now=now()) == []  # nodes have time to let go of it themselves
    (operation,) = rules_due(now=now() + timedelta(seconds=30))
    assert rules_due(now=now() + timedelta(seconds=40)) == []
    assert (operation.kind, operation.trigger) == ("quota_trim", "quota")
    world.sealed()
    world.go_on(operation)
    assert operation.outcome == "completed"
    (order,) = [c for c in node.orders if c.kind == "erase"]
    assert (order.args["tier"], order.args["force"], order.args["fencing"]) == ("hbm", False, False)
    assert [t["ns"] for t in order.args["targets"]] == [bytes(cold.digest).hex()]
    cold.refresh_from_db()
    assert cold.min_gen == 1


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
