"""Which steps are wanted: fence, erase, verify, purge, shred; each once, and none when nothing is missing."""

from uuid import RFC_4122

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kvcore.messages import canonical
from kvcore.plan_state import finalizers_left
from kvcore.plan_steps import DESTROYS, LOCAL, OwnerSeen, step_id, steps
from kvcore.receipts import EraseArgs
from tests.kvcore.world import TARGET, World, intent, owner

OUTCOMES = ("done", "failed", "refused", "partial")


def test_an_id_follows_from_what_the_step_is() -> None:
    found = step_id("op", 1, "erase", 3, "b1")
    assert str(found) == "cbc6576e-334d-824a-a0e2-b90fce6a54de"
    assert (found.version, found.variant) == (8, RFC_4122)
    others = [
        step_id("other", 1, "erase", 3, "b1"), step_id("op", 2, "erase", 3, "b1"), step_id("op", 1, "verify", 3, "b1"),
        step_id("op", 1, "erase", 4, "b1"), step_id("op", 1, "erase", 3, "b2"), step_id("op", 1, "erase", 3, "b1", 1),
    ]  # fmt: skip
    assert len({found, *others}) == 7


def test_the_order_of_an_operation() -> None:
    world = World([owner(1, "ssd"), owner(2, "dram", node="node-1"), owner(3, "hbm")])
    assert world.kinds() == [("erase", 1), ("erase", 2), ("erase", 3)]
    world.run()
    assert world.log == [
        ("erase", 1), ("erase", 2), ("verify", 1), ("purge", 1), ("shred", 1), ("verify", 2), ("purge", 2),
        ("erase", 3), ("verify", 3), ("purge", 3), ("keys", 0),
    ]  # fmt: skip
    assert finalizers_left(world.intent, world.seen) == ()


def test_a_node_is_looked_at_when_nothing_more_is_erased_on_it() -> None:
    """What is demoted from one tier into another while both are erased would slip through."""
    world = World([owner(1, "dram", node="n"), owner(2, "ssd", node="n"), owner(3)])
    world.answer(world.wishes[0])
    world.answer(world.wishes[1])
    assert world.kinds() == [("erase", 2), ("verify", 3)]


def test_owners_are_asked_where_nothing_is_believed_to_be() -> None:
    world = World([owner(1, blocks=0)])
    assert world.kinds() == [("erase", 1)]
    world.run()
    assert world.log == [("erase", 1), ("verify", 1), ("keys", 0)]


@pytest.mark.parametrize(
    "changes", [{"approved": False}, {"denied": True}, {"expired": True}, {"stopped": True}, {"failed": "x"}]
)
def test_nothing_is_wanted_of_what_is_over_or_not_approved(changes: dict[str, object]) -> None:
    assert World([owner(1)], intent(**changes)).wishes == []


@pytest.mark.parametrize("changes", [{"paused": True}, {"held": True}, {"grace_until": 20.0}])
def test_the_fence_does_not_wait_for_what_the_erasing_waits_for(changes: dict[str, object]) -> None:
    world = World([owner(1), owner(2, "ssd", node="node-1"), owner(3, fenced=True), owner(4, reachable=False)])
    world.intent = intent(**changes)
    assert world.kinds() == [("fence", 1)]
    world.answer(world.wishes[0])
    assert world.wishes == []


def test_nothing_that_destroys_is_wanted_before_the_order_is_in_the_log() -> None:
    world = World([owner(1)])
    world.set(order_logged=False)
    assert world.kinds() == []
    assert "fence" in DESTROYS
    world.set(fenced_at=None)
    assert world.wishes == []


def test_leased_blocks_are_waited_for_until_the_deadline_and_then_taken() -> None:
    world = World([owner(1)])
    assert not world.wishes[0].args["force"]
    world.answer(world.wishes[0], "partial", left=2, leased_until=60.0)
    (wish,) = world.wishes
    assert (wish.kind, wish.attempt, wish.not_before, wish.args["force"]) == ("erase", 1, 60.0, False)
    world.answer(wish, "partial", left=2, leased_until=500.0)
    assert world.wishes[0].not_before == world.intent.deadline
    world.set(now=100.0)
    assert world.wishes[0].args["force"]


def test_what_failed_is_repeated_later_each_time_under_a_new_id() -> None:
    world, seen = World([owner(1)]), set()
    waits = []
    for _ in range(8):
        (wish,) = world.wishes
        seen.add(wish.step)
        world.answer(wish, "failed")
        waits.append(world.wishes[0].not_before - world.seen.now)
    assert waits == [2, 4, 8, 16, 32, 60, 60, 60]
    assert len(seen) == 8


def test_what_a_look_finds_is_erased_again() -> None:
    world = World([owner(1)])
    world.answer(world.wishes[0])
    world.answer(world.wishes[0], found=4)
    (wish,) = world.wishes
    assert (wish.kind, wish.attempt, wish.not_before > world.seen.now) == ("erase", 1, True)
    world.run()
    assert world.log == [("erase", 1), ("verify", 1), ("erase", 1), ("verify", 1), ("purge", 1), ("keys", 0)]


def test_what_is_announced_again_after_the_purge_is_erased_again() -> None:
    world = World([owner(1)])
    world.run()
    world.change(1, blocks=1, seq=9)
    assert world.kinds() == [("erase", 1)]
    world.run()
    assert world.log[-3:] == [("erase", 1), ("verify", 1), ("purge", 1)]


def test_a_receipt_that_contradicts_proves_nothing() -> None:
    world = World([owner(1)])
    world.answer(world.wishes[0], bad=True)
    assert [(wish.kind, wish.attempt) for wish in world.wishes] == [("erase", 1)]


def test_the_purge_waits_until_the_directory_has_heard_beyond_the_look() -> None:
    world = World([owner(1)])
    world.answer(world.wishes[0])
    world.answer(world.wishes[0], position_seq=9)
    assert "purge" not in [wish.kind for wish in world.wishes]
    world.change(1, seq=9)
    purge = next(wish for wish in world.wishes if wish.kind == "purge")
    assert purge.args["position"] == {"boot": "b1", "stream": "s1", "seq": 9}
    world.change(1, seq=0, stream="s2")
    assert "purge" in [wish.kind for wish in world.wishes]


def test_a_silent_node_waits_and_does_not_hold_up_the_others_nor_the_keys() -> None:
    world = World([owner(1, "ssd"), owner(2, "ssd", reachable=False)])
    world.run()
    assert world.log == [("erase", 1), ("verify", 1), ("purge", 1), ("shred", 1), ("keys", 0)]
    assert finalizers_left(world.intent, world.seen) == ("catalog", "keys")
    world.change(2, reachable=True)
    world.run()
    assert finalizers_left(world.intent, world.seen) == ()


def test_a_restart_gives_new_ids_and_the_look_is_asked_of_the_new_life() -> None:
    world = World([owner(1)])
    first = world.wishes[0].step
    world.change(1, boot="b2", seq=-1)
    assert world.wishes[0].step != first
    world.answer(world.wishes[0])
    world.change(1, boot="b3")
    assert [(w.kind, w.boot) for w in world.wishes] == [("verify", "b3")]


def test_who_left_for_good_is_not_asked_and_the_directory_is_cleared_of_it() -> None:
    world = World([owner(1, retired=True), owner(2, retired=True, blocks=0)])
    world.run()
    assert world.log == [("purge", 1), ("keys", 0)] or world.log == [("keys", 0), ("purge", 1)]


def test_crypto_erase_takes_the_keys_first() -> None:
    world = World([owner(1, "ssd"), owner(2, "ssd", reachable=False)], intent(crypto_erase=True))
    assert world.kinds() == [("erase", 1), ("shred", 1), ("keys", 0)]


def test_finer_selectors_keep_the_generation_and_its_key() -> None:
    world = World([owner(1, "ssd")], intent(finer=True))
    world.run()
    assert {kind for kind, _ in world.log} == {"erase", "verify", "purge"}
    assert finalizers_left(world.intent, world.seen) == ()


@pytest.mark.parametrize(
    ("kind", "does"), [("quota_trim", {"erase"}), ("residency", {"erase", "verify", "purge"})]
)  # fmt: skip
def test_what_fences_nothing_waits_for_its_start(kind: str, does: set[str]) -> None:
    world = World([owner(1)], intent(kind=kind))
    world.set(fenced_at=None)
    world.run()
    assert world.log == []
    world.set(fenced_at=1.0)
    world.run()
    assert {kind for kind, _ in world.log} == does
    assert finalizers_left(world.intent, world.seen) == ()


def test_a_trim_leaves_what_is_in_use() -> None:
    world = World([owner(1)], intent(kind="quota_trim", deadline=0.0))
    world.answer(world.wishes[0], "partial", left=1)
    assert world.wishes == []
    assert finalizers_left(world.intent, world.seen) == ()
    bad = World([owner(1)], intent(kind="quota_trim", deadline=0.0))
    bad.answer(bad.wishes[0], "failed")
    assert [kind for kind, _ in bad.kinds()] == ["erase"]


def test_a_rate_is_shared_by_the_owners_of_a_node_that_are_still_at_work() -> None:
    world = World(
        [owner(1, node="a"), owner(2, node="a"), owner(3, node="b")], intent(rate_bytes_per_s=101)
    )  # fmt: skip
    assert [w.args["rate_bytes_per_s"] for w in world.wishes] == [50, 50, 101]
    world.answer(world.wishes[0])
    assert [w.args["rate_bytes_per_s"] for w in world.wishes if w.kind == "erase"] == [101, 101]
    assert World([owner(1)], intent()).wishes[0].args["rate_bytes_per_s"] is None


def test_arguments_are_those_of_the_command() -> None:
    world = World([owner(1, "ssd")], intent(rate_bytes_per_s=5))
    (wish,) = world.wishes
    args = msgspec.convert(wish.args, EraseArgs)
    assert (args.owner, args.tier, args.rate_bytes_per_s) == (1, "ssd", 5)
    assert (args.targets[0].ns, args.targets[0].gen_upto, args.targets[0].keys) == (TARGET.ns, "5", None)
    assert canonical(wish.args)
    assert args.fencing, "the node raises its fence before it erases"
    assert not World([owner(1)], intent(finer=True)).wishes[0].args["fencing"]
    assert not World([owner(1)], intent(kind="quota_trim")).wishes[0].args["fencing"]
    assert all(not w.node for w in world.wishes if w.kind in LOCAL)


FLEETS = st.lists(
    st.builds(
        owner,
        st.integers(1, 6),
        st.sampled_from(["hbm", "dram", "ssd", "remote"]),
        node=st.sampled_from(["a", "b", "c"]),
        blocks=st.integers(0, 3),
        reachable=st.booleans(),
        retired=st.booleans(),
    ),
    max_size=5,
    unique_by=lambda o: o.owner,
)


@given(FLEETS, st.data())
@settings(max_examples=150, deadline=None)
def test_whatever_happens_the_plan_of_the_result_is_empty(fleet: list[OwnerSeen], data: st.DataObject) -> None:
    world = World(fleet)
    ids: dict[str, tuple[str, int, str, int]] = {}
    for _ in range(data.draw(st.integers(0, 12))):
        wishes = world.wishes
        for wish in wishes:
            told = (wish.kind, wish.owner, wish.boot, wish.attempt)
            assert ids.setdefault(wish.step, told) == told, "one id, one step"
        assert len({wish.step for wish in wishes}) == len(wishes)
        if wishes:
            wish = data.draw(st.sampled_from(wishes))
            outcome = data.draw(st.sampled_from(OUTCOMES))
            found = data.draw(st.integers(0, 1)) if wish.kind == "verify" else 0
            left = 1 if outcome == "partial" else 0
            bad = wish.kind not in LOCAL and data.draw(st.booleans())
            world.answer(wish, outcome, found=found, left=left, bad=bad)
        if fleet:
            number = data.draw(st.sampled_from([o.owner for o in fleet]))
            boot, reachable = data.draw(st.sampled_from(["b1", "b2"])), data.draw(st.booleans())
            world.change(number, boot=boot, reachable=reachable)
    for one in fleet:
        world.change(one.owner, reachable=True)
    world.run()
    assert steps(world.intent, world.seen) == []
    assert finalizers_left(world.intent, world.seen) == ()


@given(FLEETS)
@settings(max_examples=50, deadline=None)
def test_the_plan_does_not_depend_on_the_order_in_which_it_is_observed(fleet: list[OwnerSeen]) -> None:
    world = World(fleet)
    assert steps(world.intent, replace(world.seen, owners=tuple(reversed(fleet)))) == world.wishes
