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
