"""What must not lie where it lies leaves those places, and only those."""

from datetime import UTC, datetime, timedelta

import pytest

from audit.certifying import certificate_of_operation
from catalog.rules import residency
from catalog.rules.residency import residency_due
from tenants.services import tenant_change
from tests.catalog.operations.conftest import sealed as sealed
from tests.catalog.operations.conftest import world as world
from tests.catalog.operations.world import person
from tests.tenants.making import a_namespace, a_tenant
from tests.tenants.services.test_share_group import a_group

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def now():
    return datetime.now(UTC)


def test_what_may_not_be_there_any_more_leaves_those_places_only(world):
    residency.forget()
    tenant = a_tenant(erasure_scope="label")
    namespace, here, there = a_namespace(tenant, world.model, label="x"), world.node("n1"), world.node("n2")
    world.cx.execute("UPDATE catalog_node SET region = 'us' WHERE id = %s", (there.sim.node,))
    world.hold(here, namespace, 1, 2)
    world.hold(there, namespace, 1)
    assert residency_due(now=now()) == []
    tenant_change(slug=tenant.slug, changes={"residency": "eu"}, actor=person())
    (operation,) = residency_due(now=now())
    assert residency_due(now=now()) == []
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
    assert residency_due(now=now() + timedelta(hours=1)) == []


def test_what_a_share_group_holds_leaves_places_where_a_member_may_not_have_it(world):
    """The members must stay in one region; the namespace lives on, so no second person is asked."""
    residency.forget()
    owner, member = a_tenant(residency="eu"), a_tenant(residency="eu")
    group = a_group(owner, member)
    shared = a_namespace(owner, world.model, share_group=group.name)
    here, there = world.node("n1"), world.node("n2")
    world.cx.execute("UPDATE catalog_node SET region = 'us' WHERE id = %s", (there.sim.node,))
    world.hold(here, shared, 1, 2)
    world.hold(there, shared, 1)
    (operation,) = residency_due(now=now())
    assert residency_due(now=now() + timedelta(minutes=1)) == []
    assert (operation.tenant_id, operation.kind, operation.needs_approval) == (owner.id, "residency", False)
    assert world.go_on(operation) == "completed"
    assert ({c.kind for c in there.orders}, here.orders) == ({"erase", "verify"}, [])
    assert world.left(shared) == 2
    shared.refresh_from_db()
    assert shared.min_gen == 1
