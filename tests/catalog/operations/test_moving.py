"""Moves on the engine: offered, taken, heard, released; the old place serves until the new one is in the catalog."""

from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from catalog.cordoning import cordon_request
from catalog.models import Node, Step
from catalog.move_requests import drain_request, migration_request
from catalog.operation_bodies import OperationOut
from catalog.operation_orders import operation_change
from catalog.operation_views import operation_view
from kvconsole.infra.rest import Problem
from tests.catalog.operations.carrying import carrier, deliver, holds, where
from tests.catalog.operations.world import person

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def refused(code):
    with pytest.raises(Problem) as caught:
        yield
    assert caught.value.code == code


@pytest.fixture(autouse=True)
def _nobody(settings):
    settings.TASK_SENDER = "tests.audit.sealed.nobody"


@pytest.fixture
def fleet(world):
    """Two nodes, of which one holds five blocks of a namespace."""
    a, b = carrier(world, "a"), carrier(world, "b")
    namespace = world.namespace()
    holds(world, a, namespace, 1, 2, 3, 4, 5)
    world.acknowledged()
    return world, a, b, namespace


def migrate(world, **more):
    said = {"selector": {"tenant": world.tenant.slug, "label": "gone"}, "from_tier": "hbm", "to_tier": "dram", **more}
    return migration_request(**said, actor=person("operator"), now=datetime.now(UTC))


def kinds(side):
    return [order.kind for order in side.orders if order.kind not in ("fence", "ping")]


def test_to_another_node_it_is_released_only_when_the_catalog_has_it(fleet):
    world, a, b, namespace = fleet
    operation = migrate(world, to_node="b", reason="room")
    world.go_on(operation, rounds=4)
    assert (set(kinds(a)), set(kinds(b))) == ({"offer"}, {"take"})
    assert where(world, namespace) == {(a.node, "hbm"): (5, set())}
    shown = operation_view(operation, now=datetime.now(UTC))
    assert set(shown) == set(OperationOut().fields)
    assert (shown["state"], shown["t_fence"]) == ("moving", None)
    deliver(world)
    assert where(world, namespace) == {(a.node, "hbm"): (5, {"evicting"}), (b.node, "dram"): (5, set())}
    assert world.go_on(operation) == "completed"
    deliver(world)
    assert where(world, namespace) == {(b.node, "dram"): (5, set())}
    assert "release" in kinds(a)
    assert operation_view(operation, now=datetime.now(UTC))["progress"]["percent"] == 100
    assert Step.objects.filter(operation=operation.id, state="done").count() == 3
    _within_a_source(world, b, namespace)
    _no_room(world, a, b, namespace)
    _drained(world, a, b, namespace)


def _within_a_source(world, b, namespace):
    operation = migrate(world, from_tier="dram", to_tier="hbm")
    assert world.go_on(operation) == "completed"
    deliver(world)
    assert where(world, namespace) == {(b.node, "hbm"): (5, set())}


def _no_room(world, a, b, namespace):
    """What no room is for stays, and the operation says so."""
    a.mood = "full"
    operation = migrate(world, to_node="a")
    assert world.go_on(operation) == "completed_with_exceptions"
    a.mood = ""
    deliver(world)
    assert where(world, namespace) == {(b.node, "hbm"): (5, set())}


def state(side):
    node = Node.objects.get(id=side.sim.node)
    return node.state, node.wanted


def _drained(world, a, b, namespace):
    b.blocks = {"hbm": b.blocks["hbm"]}
    with refused("not-found"):
        drain_request(node="nobody", actor=person("operator"), now=datetime.now(UTC))
    stopped = drain_request(node="b", actor=person("operator"), now=datetime.now(UTC))
    assert state(b) == ("draining", "draining")
    with refused("node-draining"):
        drain_request(node="b", actor=person("operator"), now=datetime.now(UTC))
    with refused("node-draining"):
        cordon_request(node=b.sim.node, cordoned=False, actor=person("operator"), now=datetime.now(UTC))
    with refused("no-route"):  # nothing is sent there
        drain_request(node="a", actor=person("operator"), now=datetime.now(UTC))
    assert state(a) == ("ready", "ready")
    operation_change(operation=stopped, change="stopped", actor=person("operator"), now=datetime.now(UTC))
    assert world.go_on(stopped, rounds=1) == "stopped"
    assert state(b) == ("ready", "ready")
    operation = drain_request(node="b", actor=person("operator"), now=datetime.now(UTC))
    for _ in range(3):
        world.go_on(operation, rounds=3)
        deliver(world)
    assert where(world, namespace) == {(a.node, "hbm"): (5, set())}
    assert (operation.outcome, state(b)) == ("completed", ("cordoned", "cordoned"))
    with refused("no-route"):
        migrate(world, to_node="b")
    again = cordon_request(node=b.sim.node, cordoned=False, actor=person("operator"), now=datetime.now(UTC))
    assert (again.outcome, state(b)) == ("completed", ("ready", "ready"))
    shown = operation_view(again, now=datetime.now(UTC))
    assert (shown["state"], shown["done"], set(shown)) == ("completed", True, set(OperationOut().fields))
