"""What has no room elsewhere is let go only as a deletion would be, and what is on hold never."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from catalog.cordoning import cordon_request
from catalog.holds import PLACE, hold_request
from catalog.models import Node
from catalog.move_requests import drain_request, migration_request, prefetch_request
from catalog.operation_views import operation_view
from catalog.windows import window_create, window_remove
from kvconsole.infra.rest import Problem
from kvcore.events import Drop
from tests.catalog.ingest.rig import keys
from tests.catalog.operations.carrying import carrier, deliver, holds, where
from tests.catalog.operations.conftest import sealed as sealed
from tests.catalog.operations.conftest import world as world
from tests.catalog.operations.test_moving import _nobody, refused
from tests.catalog.operations.world import FILLED, person
from tests.catalog.test_holds_engine import agree

__all__ = ["_nobody"]
pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
SAID = {"reason": "it is sold", "confirm_phrase": "Recompute  a"}


@pytest.fixture
def full(world):
    """A node to be drained, with blocks of several tenants; the other takes nothing."""
    a, b = carrier(world, "a"), carrier(world, "b")
    namespace = world.namespace()
    holds(world, a, namespace, 1, 2, 3, 4, 5)
    world.acknowledged()
    cordon_request(node=b.sim.node, cordoned=True, actor=person("operator"), now=datetime.now(UTC))
    return world, a, b, namespace


@pytest.fixture
def alone(full):
    """The same, where all blocks are of one tenant."""
    world, a, _, _ = full
    for tier in ("hbm", "dram"):
        others = keys(*range(100, 100 + FILLED))
        dropped = world.send(a, Drop(ns=world.filler, gen=1, keys=others, tier=tier, reason="hot_move"))
        assert dropped.rejected == []
    return full


def drain(who=None, **more):
    said = {"recompute": True, "actor": who or person(), "now": datetime.now(UTC), **SAID, **more}
    return drain_request(node="a", **said)


def on_hold(world):
    now = datetime.now(UTC)
    hold = hold_request(selector={"tenant": world.tenant.slug}, authority="Court 7", reason="case", actor=person(),
                        review_at=now + timedelta(days=90), now=now)  # fmt: skip
    agree(hold, PLACE, str(hold.id))


def test_it_asks_what_a_deletion_asks_and_goes_only_then(alone):
    world, a, _, namespace = alone
    late = person()
    late = replace(late, proved_at=late.proved_at - 10_000)
    for code, who, more in (
        ("forbidden", person("operator"), {}),
        ("step-up-required", late, {}),
        ("reason-needed", None, {"reason": " "}),
        ("confirm-phrase-wrong", None, {"confirm_phrase": "recompute b"}),
    ):
        with refused(code):
            drain(who, **more)
        assert Node.objects.get(id=a.sim.node).wanted == "ready"
    shut = {"tenant": None, "cron": "* * * * *", "minutes": 5, "from_risk": "R2", "reason": "audit"}
    window = window_create(**shut, actor=person(), now=datetime.now(UTC))
    with refused("deny-window"):
        drain()
    window_remove(window_id=window.id, actor=person())
    operation = drain()
    assert operation.risk == "R2"
    world.go_on(operation, rounds=4)
    deliver(world)
    assert where(world, namespace) == {}


def test_what_would_need_a_second_person_is_refused_before_anything_begins(full):
    _, a, _, _ = full
    with pytest.raises(Problem) as caught:
        drain()
    assert caught.value.code == "recompute-too-grave"
    assert "nothing was let go" in caught.value.detail
    assert Node.objects.get(id=a.sim.node).wanted == "ready"


def test_what_is_on_hold_or_comes_on_hold_stays(alone):
    world, a, _, namespace = alone
    operation = drain()
    on_hold(world)
    for _ in range(3):
        world.go_on(operation, rounds=3)
        deliver(world)
    assert where(world, namespace) == {(a.node, "hbm"): (5, set())}
    assert operation_view(operation, now=datetime.now(UTC))["state"] == "completed_with_exceptions"


@pytest.mark.parametrize("at", [datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)])
def test_no_move_is_due_later_than_operations_may_run(at):
    said = {"actor": person("operator"), "now": datetime.now(UTC)}
    tiers = {"from_tier": "hbm", "to_tier": "ssd"}
    prefix = {"prefix": ["ab" * 32], "to_node": "a", "to_tier": "hbm"}
    asks = (
        ("/deadline", partial(drain_request, node="a", deadline=at, **said)),
        ("/deadline", partial(migration_request, selector={"tenant": "t"}, deadline=at, **tiers, **said)),
        ("/need_at", partial(prefetch_request, namespace="ab" * 32, need_at=at, **prefix, **said)),
    )
    for pointer, ask in asks:
        with pytest.raises(Problem) as caught:
            ask()
        assert (caught.value.code, caught.value.errors[0]["pointer"]) == ("validation-failed", pointer)
