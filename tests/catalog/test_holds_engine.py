"""Under a legal hold everything is fenced and nothing erased, until two persons have released it."""

from datetime import UTC, datetime, timedelta

import pytest

from audit.approvals import approval_decide, approval_of
from catalog.holds import PLACE, RELEASE, hold_release_request, hold_request, holds_sweep
from catalog.operation_views import operation_view
from tests.catalog.operations.conftest import sealed as sealed
from tests.catalog.operations.conftest import world as world
from tests.catalog.operations.world import asked, person

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def now():
    return datetime.now(UTC)


def agree(hold, kind, name):
    approval = approval_of(kind, name, tenant_id=hold.tenant_id)
    approval_decide(approval_id=approval.id, approve=True, actor=person("approver"), now=now())
    assert holds_sweep(now=now()) == 1


def test_a_hold_lets_fence_and_waits_with_erasing_until_two_persons_released_it(world):
    namespace, node, _ = world.namespace(), world.node("n1"), world.node("n2")
    world.hold(node, namespace, 1, 2)
    hold = hold_request(selector={"tenant": world.tenant.slug}, authority="Court 7", reason="case", actor=person(),
                        review_at=now() + timedelta(days=90), now=now())  # fmt: skip
    agree(hold, PLACE, str(hold.id))
    operation = asked(world)
    assert operation.fenced_at is not None
    world.acknowledged()
    world.go_on(operation, rounds=2)
    shown = operation_view(operation, now=now())
    assert (shown["state"], shown["done"]) == ("held", False)
    assert shown["observed_generation"] == shown["generation"]
    hold_release_request(hold_id=hold.id, reason="over", actor=person(), now=now())
    world.go_on(operation, rounds=2)
    assert "erase" not in {c.kind for c in node.orders}
    assert world.left(namespace) == 2
    agree(hold, RELEASE, f"{hold.id}/1")
    assert world.go_on(operation) == "completed"
    assert world.left(namespace) == 0
