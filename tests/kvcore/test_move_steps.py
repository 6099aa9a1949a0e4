"""Steps of moves: planned from what was answered, in order, once, and never a release before the catalog has heard."""

import random

import msgspec
import pytest

from kvcore.move_steps import (
    MoveIntent,
    MoveObserved,
    MovePlace,
    MoveSeen,
    Route,
    conditions,
    done,
    left_behind,
    pair_number,
    progress,
    stands,
    state,
    steps,
)
from kvcore.moves import MoveArgs
from kvcore.plan_state import State

A, B, C, D = 11, 12, 13, 14
HERE = "boot", "stream"


def place(number, node="a", tier="dram", **more):
    fields = dict(boot="boot", stream="stream", seq=5, public_key="00" * 32, url=f"http://{node}", blocks=4, bytes=4096)
    return MovePlace(owner=number, node=f"id-{node}", name=node, source="reference", tier=tier, **{**fields, **more})


class World:
    """Steps and their receipts, as the rows would have them."""

    def __init__(self, *routes, now=100.0, deadline=1000.0, **more):
        self.intent = MoveIntent(
            operation="00000000-0000-7000-8000-000000000001", generation=1, kind="migration", routes=routes,
            deadline=deadline, **more,
        )  # fmt: skip
        self.places = {A: place(A), B: place(B, "b"), C: place(C, "a", "ssd"), D: place(D, "b", "ssd")}
        self.rows: dict[str, MoveSeen] = {}
        self.now, self.logged = now, True

    @property
    def observed(self):
        return MoveObserved(now=self.now, places=self.places, steps=tuple(self.rows.values()), order_logged=self.logged)

    def wishes(self):
        found = steps(self.intent, self.observed)
        for wish in found:
            self.rows.setdefault(
                wish.step,
                MoveSeen(step=wish.step, kind=wish.kind, pair=wish.args["pair"], attempt=wish.attempt,
                         offer=wish.args["offer"]),
            )  # fmt: skip
        return found

    def wish(self, kind):
        (found,) = self.wishes()
        assert found.kind == kind, found
        return found

    def answer(self, wish, outcome="done", code="", **more):
        fields = {"runs": 2, "blocks": 4, "bytes": 4096} if outcome in ("done", "partial") else {}
        self.rows[wish.step] = msgspec.structs.replace(
            self.rows[wish.step], outcome=outcome, code=code, at=self.now, position_boot="boot",
            position_stream="stream", position_seq=7, **{**fields, **more},
        )  # fmt: skip

    def heard(self, owner=B, **more):
        self.places[owner] = msgspec.structs.replace(self.places[owner], **{"seq": 7, **more})

    @property
    def stand(self):
        return stands(self.intent, self.observed)[0]


def test_between_nodes_it_is_offered_taken_heard_and_released():
    world = World(Route(source=A, target=B), tenants={"ab": "t"}, rate_bytes_per_s=5)
    offer = world.wish("offer")
    assert (offer.node, offer.owner) == ("a", A)
    args = msgspec.convert(offer.args, MoveArgs)
    assert (args.party.node, args.party.url, args.rate_bytes_per_s) == ("id-b", "http://b", 5)
    assert args.until > world.intent.deadline
    assert world.wish("offer") == offer  # until it has its receipt
    world.answer(offer)
    take = world.wish("take")
    args = msgspec.convert(take.args, MoveArgs)
    assert (take.node, args.offer, args.party.owner) == ("b", offer.step, A)
    world.answer(take, left=())
    assert world.wishes() == []
    assert world.stand.waits == "catalog"
    world.heard()
    release = world.wish("release")
    assert (release.node, release.args["offer"], release.args["left"]) == ("a", offer.step, [])
    world.answer(release)
    assert world.wishes() == []
    assert world.stand.settled
    assert left_behind([world.stand]) == {}


def test_within_a_source_it_is_one_step():
    world = World(Route(source=A, target=C))
    move = world.wish("move")
    assert (move.args["tier"], move.args["to_tier"]) == ("dram", "ssd")
    world.answer(move)
    assert done(stands(world.intent, world.observed))


def test_what_was_left_is_released_as_left_and_offered_again_where_that_helps():
    world = World(Route(source=A, target=B))
    world.answer(world.wish("offer"))
    world.answer(world.wish("take"), "partial", "lease-over", left=("17-17",), refused={"lease-over": 2})
    world.heard()
    release = world.wish("release")
    assert release.args["left"] == ["17-17"]
    world.answer(release)
    again = world.wish("offer")
    assert (again.attempt, again.not_before > world.now) == (1, True)
    world.answer(again, runs=0, blocks=0, bytes=0)
    assert world.stand.settled


def test_what_no_room_is_for_stays_and_is_said():
    world = World(Route(source=A, target=B))
    world.answer(world.wish("offer"))
    world.answer(world.wish("take"), "partial", "target-full", left=("17-17",), refused={"target-full": 2})
    world.heard()
    world.answer(world.wish("release"))
    assert left_behind(stands(world.intent, world.observed)) == {"target-full": 2}
    found = conditions(world.intent, world.observed, True)
    assert state(found) is State.COMPLETED_WITH_EXCEPTIONS
    assert next(c for c in found if c.type == "Complete").reason == "target-full"


@pytest.mark.parametrize("code", ["offer-unknown"])
def test_a_source_that_began_a_new_life_offers_again(code):
    world = World(Route(source=A, target=B))
    world.answer(world.wish("offer"))
    world.answer(world.wish("take"), "failed", code)
    again = world.wish("offer")
    assert again.attempt == 1
    world.answer(again)
    world.answer(world.wish("take"))
    world.heard()
    world.answer(world.wish("release"), "refused", code)
    assert world.wish("offer").attempt == 2


def test_a_destination_that_began_a_new_life_is_not_waited_for():
    world = World(Route(source=A, target=B))
    world.answer(world.wish("offer"))
    world.answer(world.wish("take"))
    world.heard(boot="another", stream="other", seq=0)
    assert world.wish("release").kind == "release"


def test_copies_in_use_are_released_later_however_often():
    world = World(Route(source=A, target=B), deadline=101.0)
    world.answer(world.wish("offer"))
    world.answer(world.wish("take"))
    world.heard()
    for attempt in range(12):
        release = world.wish("release")
        assert release.attempt == attempt
        world.answer(release, "partial", "blocks-leased")
        world.now += 60
    world.answer(world.wish("release"))
    assert world.stand.settled


def test_nothing_is_asked_of_a_silent_node_and_after_the_deadline_it_is_left():
    world = World(Route(source=A, target=B))
    world.heard(A, reachable=False)
    assert world.wishes() == []
    found = conditions(world.intent, world.observed, False)
    assert (state(found), next(c for c in found if c.type == "NodesReachable").message) == (State.MOVING, "a")
    complete = next(c for c in found if c.type == "Complete")
    assert (complete.status, complete.reason) == ("unknown", "working"), "what may be left behind shows at the end"
    world.now = 2000.0
    assert left_behind(stands(world.intent, world.observed)) == {"node-unreachable": 0}


def test_tries_end_at_the_deadline_and_after_some_rounds():
    world = World(Route(source=A, target=B))
    world.answer(world.wish("offer"))
    for _ in range(20):
        found = world.wishes()
        if not found:
            break
        world.answer(found[0], "failed", "source-unreachable")
    assert world.stand.settled
    assert len([r for r in world.rows.values() if r.kind == "take"]) == 8


def test_to_nobody_means_let_go_after_the_others():
    world = World(Route(source=A, target=0), Route(source=A, target=B))
    offer = world.wish("offer")
    assert offer.args["party"]["node"] == "id-b"
    world.answer(offer)
    world.answer(world.wish("take"))
    world.heard()
    world.answer(world.wish("release"))
    rest = world.wish("offer")
    assert rest.args["party"]["node"] == "id-a"
    world.answer(rest)
    world.answer(world.wish("release"))
    assert done(stands(world.intent, world.observed))
    assert progress(world.intent, world.observed).percent == 100


def held(world, *namespaces):
    world.intent = msgspec.structs.replace(world.intent, spare=namespaces)


def test_what_is_on_hold_is_not_let_go_and_the_move_says_so():
    world = World(Route(source=A, target=0), spare=("aa",))
    offer = world.wish("offer")
    assert offer.args["spare"] == ["aa"]
    world.answer(offer, spared=3)
    held(world, "aa", "bb")  # it came while it ran
    release = world.wish("release")
    assert release.args["spare"] == ["aa", "bb"]
    world.answer(release, spared=2)
    found = stands(world.intent, world.observed)
    assert (done(found), left_behind(found)) == (True, {"legal-hold": 5})
    assert state(conditions(world.intent, world.observed, True)) is State.COMPLETED_WITH_EXCEPTIONS


def test_where_too_much_is_on_hold_nothing_is_let_go():
    many = [f"{n:064x}" for n in range(1001)]
    world = World(Route(source=A, target=0), spare=tuple(many))
    assert world.wishes() == []
    assert left_behind(stands(world.intent, world.observed)) == {"legal-hold": 4}
    world = World(Route(source=A, target=0))
    world.answer(world.wish("offer"))
    held(world, *many)
    assert world.wish("release").args["keep"]


def test_what_is_on_hold_stays_where_the_destination_may_have_lost_it():
    world = World(Route(source=A, target=B), spare=("aa",))
    world.answer(world.wish("offer"))
    world.answer(world.wish("take"))
    world.heard()
    assert world.wish("release").args["spare"] == []  # the other copy is in the catalog
    world.heard(boot="another", stream="other", seq=0)
    release = world.wish("release")
    assert release.args["spare"] == ["aa"]
    world.answer(release, spared=4)
    assert left_behind(stands(world.intent, world.observed)) == {"legal-hold": 4}


def test_without_an_order_in_the_log_or_paused_or_stopped_nothing_is_asked():
    world = World(Route(source=A, target=B))
    world.logged = False
    assert steps(world.intent, world.observed) == []
    assert state(conditions(world.intent, world.observed, False)) is State.PLANNED
    for change in ("paused", "stopped"):
        world = World(Route(source=A, target=B), **{change: True})
        assert steps(world.intent, world.observed) == []
    assert state(conditions(world.intent, world.observed, False)) is State.STOPPED
    assert World(Route(source=99, target=B)).stand.left == {"place-unknown": 0}


@pytest.mark.parametrize("seed", range(20))
def test_any_history_ends_and_releases_only_what_was_heard(seed):
    rng = random.Random(seed)
    world = World(Route(source=A, target=B), Route(source=A, target=C), Route(source=B, target=A))
    for _ in range(400):
        found = world.wishes()
        ids = [w.step for w in found]
        assert len(set(ids)) == len(ids)
        for wish in found:
            if wish.kind == "release":
                pair = wish.args["pair"]
                mine = [s for s in world.rows.values() if s.kind == "take" and s.offer == wish.args["offer"]]
                takes = [s for s in mine if s.took]
                to = next(r.target for r in world.intent.routes if pair_number(r) == pair)
                assert any(world.places[to].seq >= take.position_seq for take in takes)
            if rng.random() < 0.6:
                world.answer(wish, *rng.choice([("done",), ("partial", "blocks-leased"), ("failed", "tier-down"),
                                                ("refused", "offer-unknown")]))  # fmt: skip
        if rng.random() < 0.3:
            world.heard(rng.choice([A, B]))
        world.now += 20
        if done(stands(world.intent, world.observed)):
            return
    raise AssertionError(stands(world.intent, world.observed))


def test_what_no_room_is_for_goes_to_the_next_turn_and_is_left_behind_only_by_the_last():
    world = World(Route(source=A, target=B), Route(source=A, target=D, turn=1))
    assert [w.kind for w in world.wishes()] == ["offer"]
    world.answer(world.wish("offer"))
    world.answer(world.wish("take"), "partial", "target-full", left=("17-17",), refused={"target-full": 2})
    world.heard()
    world.answer(world.wish("release"))
    assert left_behind(stands(world.intent, world.observed)) == {}
    assert not all(s.settled for s in stands(world.intent, world.observed))
    again = world.wish("offer")
    world.answer(again, runs=1, blocks=2)
    world.answer(world.wish("take"), "partial", "target-full", left=("17-17",), refused={"target-full": 1})
    world.heard(D)
    world.answer(world.wish("release"))
    assert left_behind(stands(world.intent, world.observed)) == {"target-full": 1}
    assert all(s.settled for s in stands(world.intent, world.observed))
