"""What cannot go anywhere, or in time, or is pinned, is refused, and nothing is begun."""

from datetime import UTC, datetime, timedelta

import pytest

from catalog.move_requests import prefetch_request
from catalog.pins import pin_create
from tests.catalog.operations.conftest import sealed, world
from tests.catalog.operations.test_moving import _nobody, fleet, migrate, refused
from tests.catalog.operations.world import person

__all__ = ["_nobody", "fleet", "sealed", "world"]
pytestmark = pytest.mark.django_db(transaction=True)


def test_what_cannot_be_moved_is_refused_and_nothing_is_begun(fleet):
    world, _, b, namespace = fleet
    with refused("nothing-selected"):
        migrate(world, selector={"tenant": world.tenant.slug, "label": "nobody's"})
    with refused("no-route"):
        migrate(world, from_tier="dram")
    with refused("no-route"):
        migrate(world, to_tier="ssd")
    with refused("selector-unsupported"):
        migrate(world, selector={"tenant": world.tenant.slug, "older_than": 5.0})
    now = datetime.now(UTC)
    asked = dict(namespace=str(namespace.id), prefix=["ab" * 32], to_node="b", to_tier="hbm", actor=person("operator"))
    with refused("no-slack"):
        prefetch_request(**asked, need_at=now + timedelta(seconds=1), now=now)
    copied = prefetch_request(**asked, need_at=now + timedelta(minutes=1), now=now)
    world.go_on(copied, rounds=3)
    args = next(order.args for order in b.orders if order.kind == "take")
    assert (args["keep"], args["only"]) == (True, ["ab" * 16])
    hour = now + timedelta(hours=1)
    pin_create(namespace=str(namespace.id), keys=None, until=hour, reason="", actor=person(), now=now)
    with refused("all-pinned"):
        migrate(world)
