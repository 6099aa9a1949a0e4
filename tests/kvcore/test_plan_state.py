"""Where an operation stands, at every point of its life, from what was observed alone."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcore.plan_state import (
    Condition,
    Progress,
    State,
    conditions,
    finalizers,
    finalizers_left,
    operation_state,
    progress,
)
from kvcore.plan_steps import FINALIZERS, Intent, Observed, OwnerSeen, StepSeen
from tests.kvcore.world import World, intent, owner


def state(world: World) -> State:
    return operation_state(conditions(world.intent, world.seen))


def of(world: World, type_: str) -> Condition:
    return next(one for one in conditions(world.intent, world.seen) if one.type == type_)


def test_states_of_the_api() -> None:
    running = {"planned", "awaiting_approval", "fenced", "erasing", "verifying", "moving", "held"}
    ended = {"completed", "completed_with_exceptions", "failed", "denied", "expired", "stopped"}
    assert set(State) == running | ended


def test_nothing_of_a_state_is_kept() -> None:
    """What is observed and intended holds facts with their times; the state is made of them anew each time."""
    kept = {field for form in (Intent, Observed) for field in form.__struct_fields__}
    assert not kept & {"state", "phase", "status", "conditions", "progress"}


def test_a_life() -> None:
    world = World([owner(1), owner(2)], intent(approved=False))
    world.set(fenced_at=None, order_logged=False)
    assert state(world) is State.AWAITING_APPROVAL
    world.intent = intent(grace_until=50.0)
    assert state(world) is State.PLANNED
    world.set(fenced_at=5.0)
    assert (state(world), of(world, "Erased").reason) == (State.FENCED, "order-not-logged")
    world.set(order_logged=True)
    assert (state(world), of(world, "Erased").reason) == (State.FENCED, "grace")
    world.set(now=50.0)
    assert (state(world), of(world, "Erased").reason) == (State.FENCED, "not-started")
    world.answer(world.wishes[0])
    assert (state(world), of(world, "Erased").reason) == (State.ERASING, "working")
    assert of(world, "Erased").message == "1 of 2 owners; node-2"
    world.answer(next(w for w in world.wishes if w.owner == 2))
    assert state(world) is State.VERIFYING
    assert of(world, "Erased").since == world.seen.now
    assert finalizers_left(world.intent, world.seen) == ("catalog", "keys")
    world.run()
    assert (state(world), finalizers_left(world.intent, world.seen)) == (State.VERIFYING, ())
    world.set(concluded_at=99.0)
    assert state(world) is State.COMPLETED
    world.set(exceptions=("FORCED",))
    assert state(world) is State.COMPLETED_WITH_EXCEPTIONS
    assert of(world, "Concluded").message == "FORCED"


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"denied": True, "approved": False}, State.DENIED),
        ({"expired": True}, State.EXPIRED),
        ({"stopped": True}, State.STOPPED),
        ({"failed": "order-expired"}, State.FAILED),
        ({"held": True}, State.HELD),
        ({"paused": True}, State.FENCED),
    ],
)
def test_side_exits(changes: dict[str, object], wanted: State) -> None:
    assert state(World([owner(1)], intent(**changes))) is wanted


def test_a_hold_lets_the_fence_stand() -> None:
    world = World([owner(1)], intent(held=True))
    assert of(world, "Fenced").status == "true"
    world.set(fenced_at=None)
    assert state(world) is State.PLANNED


def test_a_silent_node_is_named_and_the_operation_stays_open() -> None:
    world = World([owner(1), owner(2, reachable=False)])
    world.run()
    assert state(world) is State.ERASING
    assert (of(world, "Erased").reason, of(world, "Erased").message) == ("silent", "1 of 2 owners; node-2")
    assert of(world, "NodesReachable").message == "1 of 2 owners; node-2"
    assert finalizers_left(world.intent, world.seen) == ("catalog",)


def test_leases_and_contradictions_are_said() -> None:
    world = World([owner(1), owner(2)])
    world.answer(world.wishes[0], "partial", left=1)
    world.answer(next(w for w in world.wishes if w.owner == 2), bad=True)
    assert (of(world, "Erased").reason, of(world, "Consistent").status) == ("working", "false")
    world.answer(next(w for w in world.wishes if w.owner == 2))
    assert (of(world, "Erased").reason, of(world, "Consistent").status) == ("leased", "true")


def test_a_contradiction_keeps_the_certificate_away() -> None:
    world = World([owner(1)])
    world.answer(world.wishes[0])
    world.answer(world.wishes[0], bad=True)
    world.set(keys_destroyed=True)
    assert finalizers_left(world.intent, world.seen) == ("catalog",)
    assert of(world, "Consistent").reason == "contradicted"


def test_a_doubtful_answer_to_a_fence_is_no_end_of_it() -> None:
    """It is asked once, and the erase that follows raises the fence itself: its receipt is the one that counts."""
    world = World([owner(1)])
    world.intent = intent(paused=True)
    world.answer(world.wishes[0], bad=True)
    world.intent = intent()
    world.run()
    assert finalizers_left(world.intent, world.seen) == ()


def test_routers_and_key_leases_are_waited_for() -> None:
    world = World([owner(1)])
    world.run()
    world.set(routers_waiting=1, gateways_waiting=2, lease_ends_at=world.seen.now + 1)
    assert finalizers_left(world.intent, world.seen) == ("routing", "keys")
    assert of(world, "Unroutable").message == "1 routers, 2 gateways"
    assert of(world, "KeysDestroyed").reason == "leases-out"
    world.set(routers_waiting=0, gateways_waiting=0, now=world.seen.now + 1)
    assert finalizers_left(world.intent, world.seen) == ()


def test_finalizers_of_kinds() -> None:
    assert finalizers(intent()) == FINALIZERS == ("catalog", "routing", "keys")
    assert finalizers(intent(finer=True)) == ("catalog", "routing")
    assert finalizers(intent(kind="quota_trim")) == ("catalog",)
    world = World([], intent(kind="quota_trim", waits="deny-window"))
    assert of(world, "Unroutable").reason == "not-needed"
    assert (of(world, "Fenced").status, of(world, "Fenced").reason) == ("true", "not-needed")
    world.set(fenced_at=None)
    assert (of(world, "Fenced").status, of(world, "Fenced").reason) == ("false", "deny-window")
    assert operation_state(conditions(world.intent, world.seen)) == "planned"


def shown(found: Progress) -> list[tuple[str, int, int]]:
    return [(cell.state, cell.done_bytes, cell.total_bytes) for cell in found.cells]


def test_progress() -> None:
    world = World([owner(1), owner(2, reachable=False), owner(3, cls=2)])
    assert shown(progress(world.intent, world.seen)) == [("pending", 0, 48), ("silent", 0, 48), ("pending", 0, 48)]
    world.answer(world.wishes[0], "partial", left=1, bytes=32)
    assert shown(progress(world.intent, world.seen))[0] == ("blocked", 32, 48)
    world.answer(world.wishes[0])
    assert shown(progress(world.intent, world.seen))[0] == ("erased", 48, 48)
    world.answer(next(w for w in world.wishes if w.owner == 3), "failed")
    assert shown(progress(world.intent, world.seen))[2] == ("erasing", 0, 48)
    world.run()
    found = progress(world.intent, world.seen)
    assert shown(found) == [("verified", 48, 48), ("silent", 0, 48), ("verified", 48, 48)]
    assert (found.percent, found.cells[2].cls) == (66, 2)
    world.change(2, reachable=True)
    world.run()
    assert progress(world.intent, world.seen).percent == 100
    assert "class" in msgspec.to_builtins(found.cells[2])
    assert progress(intent(), World([]).seen) == Progress(percent=0, cells=())


@given(st.lists(st.sampled_from(["done", "failed", "partial", "bad"]), max_size=12), st.booleans())
@settings(max_examples=60, deadline=None)
def test_done_is_never_said_before_all_is_verified(answers: list[str], silent: bool) -> None:
    world = World([owner(1, "ssd"), owner(2, reachable=not silent)])
    for answer in answers:
        found = [wish for wish in world.wishes if wish.node]
        if found:
            left = int(answer == "partial")
            world.answer(found[0], "done" if answer == "bad" else answer, left=left, bad=answer == "bad")
        shown_ = progress(world.intent, world.seen)
        verified = all(cell.state == "verified" for cell in shown_.cells)
        assert (shown_.percent == 100) == verified
        assert 0 <= shown_.percent <= 100
        if "catalog" not in finalizers_left(world.intent, world.seen):
            assert verified
        assert state(world) in (State.FENCED, State.ERASING, State.VERIFYING)


SEEN = ("Fenced", "Unroutable", "Consistent", "Erased", "Verified", "Probed", "Purged", "KeysDestroyed", "Unreadable")


@pytest.mark.parametrize("blocks", [0, 3])
def test_nothing_that_rests_on_the_fence_is_said_before_it(blocks: int) -> None:
    """That the directory knows of nothing yet is no deletion."""
    world = World([owner(1, blocks=blocks), owner(2, blocks=0)], intent(approved=False))
    world.set(fenced_at=None, order_logged=True)
    told = {one: of(world, one) for one in SEEN}
    assert {name for name, one in told.items() if one.status == "true"} == set()
    assert all(one.reason for name, one in told.items() if name != "Fenced")
    assert {told[one].reason for one in ("Erased", "Verified", "Probed", "Purged")} == {"not-fenced"}


def test_each_condition_waits_for_what_it_rests_on() -> None:
    world = World([owner(1, host="a", blocks=0), owner(2, host="a", blocks=0)], intent(crypto_erase=False))
    looked = ("Erased", "Verified", "Probed", "Purged")
    assert {of(world, one).status for one in looked} == {"false"}
    assert (of(world, "Consistent").status, of(world, "Consistent").reason) == ("unknown", "no-answers")
    assert (of(world, "Probed").reason, of(world, "Purged").reason) == ("not-verified", "not-verified")
    for _ in range(2):
        world.answer(next(wish for wish in world.wishes if wish.kind == "erase"))
    assert [of(world, one).status for one in looked] == ["true", "false", "false", "false"]
    world.answer(next(wish for wish in world.wishes if wish.kind == "verify"))
    assert of(world, "Probed").message == "1 of 2 owners; node-2"
    world.run()
    assert {of(world, one).status for one in (*looked, "Consistent")} == {"true"}


def test_that_nobody_else_looked_is_said() -> None:
    world = World([owner(1)])
    world.run()
    assert (of(world, "Probed").status, of(world, "Probed").reason) == ("true", "nobody-else")


@pytest.mark.parametrize("owners", [[], [owner(1, retired=True, reachable=False, blocks=0)]])
def test_where_there_is_nobody_to_ask_nothing_was_answered(owners: list[OwnerSeen]) -> None:
    world = World(owners)
    world.run()
    told = [of(world, one) for one in ("NodesReachable", "Consistent", "Erased", "Verified", "Probed", "Purged")]
    assert {(one.status, one.reason) for one in told} == {("unknown", "no-places")}
    assert finalizers_left(world.intent, world.seen) == (), "nothing is waited for that will never come"


def test_what_lies_on_a_node_that_is_off_is_unreadable_once_its_lease_is_over_and_not_before() -> None:
    off = owner(1, "ssd", reachable=False, encrypted=True, lease_end=300.0)
    world = World([off, owner(2)], intent(crypto_erase=True))
    told = lambda: next(c for c in conditions(world.intent, world.seen) if c.type == "Unreadable")  # noqa: E731
    assert (told().status, told().reason) == ("false", "not-destroyed")
    world.run()
    keys = StepSeen(step="k", kind="keys", owner=0, boot="", outcome="done", at=20.0)
    world.set(steps=(*world.seen.steps, keys), now=299.0)
    assert (told().status, told().reason, told().since) == ("false", "leases-out", 300.0)
    world.set(now=301.0)
    assert (told().status, told().message) == ("true", "node-1 since 1970-01-01T00:05:00Z")
    assert finalizers_left(world.intent, world.seen), "the node has to come back all the same"
    world.change(1, lease_end=None)
    assert told().message == "node-1 since 1970-01-01T00:00:20Z", "it applied the fence and dropped the key"
    world.change(1, encrypted=False)
    assert (told().status, told().reason) == ("false", "not-encrypted")


def test_where_everybody_answers_nothing_has_to_be_unreadable() -> None:
    world = World([owner(1, "ssd", encrypted=True)])
    assert next(c for c in conditions(world.intent, world.seen) if c.type == "Unreadable").reason == "not-needed"
