"""Fleets that decisions are made over: what was sent is in them, and they are the ones that would be prepared anew."""

import uuid

import pytest

from kvcore.cards import NOTHING_LEARNED, Learned
from kvcore.fleets import Fleet, moved
from kvcore.policies import built_in
from kvcore.scoring import prepare
from routing.codes import Refusal
from routing.prepared import PREPARED_SECONDS, Fleets
from tests.kvcore.workers import worker as candidate
from tests.routing.deciding import Stand, worker

IDLE = {"waiting": 0, "running": 0}


def same(one: Fleet, other: Fleet) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in Fleet.__slots__)


def test_every_decision_sees_what_the_ones_before_it_sent() -> None:
    stand = Stand(worker("a", load=IDLE), worker("b", load=IDLE))
    fleet, fleets = stand.standing.fleet, Fleets(stand.standing.fleet)
    first = fleets.ready(stand.place, built_in(), NOTHING_LEARNED, None)
    assert fleets.ready(stand.place, built_in(), NOTHING_LEARNED, None) is first
    for number in (0, 1, 0):
        fleet.sent(number, 5_000.0)
        now = fleets.ready(stand.place, built_in(), NOTHING_LEARNED, None)
        assert now.candidates == tuple(fleet.candidates)
        assert same(now.fleet, prepare(now.candidates, fleet.edges, built_in(), NOTHING_LEARNED))
    assert now.fleet.rows[0].queue > 9_000 > 4_000 > first.fleet.rows[0].queue
    assert first.fleet.rows[1].queue == 0


def test_a_burst_is_spread_over_equal_workers() -> None:
    stand = Stand(*(worker(name, load=IDLE) for name in "abcd"), blocks=2_000)
    answers = [stand.route().prefill.node for _ in range(8)]
    assert {answers.count(name) for name in "abcd"} == {2}


def test_named_ones_are_changed_at_their_own_places() -> None:
    stand = Stand(worker("a", load=IDLE), worker("b", load=IDLE), worker("c", load=IDLE))
    fleet, fleets = stand.standing.fleet, Fleets(stand.standing.fleet)
    fleets.ready(stand.place, built_in(), NOTHING_LEARNED, ("c", "a"))
    fleet.sent(0, 4_000.0)
    now = fleets.ready(stand.place, built_in(), NOTHING_LEARNED, ("c", "a"))
    assert [(c.name, c.queue_ms > 3_000) for c in now.candidates] == [("c", False), ("a", True)]
    assert same(now.fleet, prepare(now.candidates, fleet.edges, built_in(), NOTHING_LEARNED))
    with pytest.raises(Refusal, match="unknown-candidate"):
        fleets.ready(stand.place, built_in(), NOTHING_LEARNED, ("nobody",))


def test_what_stands_on_estimates_is_prepared_anew_after_some_ms() -> None:
    clock = [0.0]
    stand = Stand(worker("a", load=IDLE), worker("b"))
    fleet, fleets = stand.standing.fleet, Fleets(stand.standing.fleet, lambda: clock[0])
    first = fleets.ready(stand.place, built_in(), NOTHING_LEARNED, None)
    fleet.sent(0, 4_000.0)
    assert fleets.ready(stand.place, built_in(), NOTHING_LEARNED, None) is first
    clock[0] += PREPARED_SECONDS
    now = fleets.ready(stand.place, built_in(), NOTHING_LEARNED, None)
    assert same(now.fleet, prepare(tuple(fleet.candidates), fleet.edges, built_in(), NOTHING_LEARNED))
    assert now.fleet.rows[1].queue > 3_000, "the one that says nothing is thought to be as busy"


def test_what_is_learned_counts_where_one_moved() -> None:
    learned = Learned({"a": (1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 3.0, 5.0, 7.0)}, 1)
    old = (candidate("x"), candidate("y"))
    new = (old[0], candidate("y", 100.0, waiting=2, running=1))
    now = moved(prepare(old, {}, built_in(), learned), [1], new)
    assert now is not None
    assert same(now, prepare(new, {}, built_in(), learned))
    assert now.rows[1].queue == 2 * 100 + 3 * 2 + 5 + 7


def test_an_old_report_is_not_moved_alone() -> None:
    fleet = prepare((candidate("x"), candidate("y")), {}, built_in(), NOTHING_LEARNED)
    assert moved(fleet, [1], (candidate("x"), candidate("y", 5.0, load_age_ms=1e6))) is None


def test_a_node_of_one_tenants_own_is_not_found_by_another_though_the_first_asked_before() -> None:
    stand = Stand(worker("a", load=IDLE), worker("own", load=IDLE))
    fleet, fleets = stand.standing.fleet, Fleets(stand.standing.fleet)
    mine, other = uuid.uuid4(), uuid.uuid4()
    fleet.dedicated[fleet.candidates[fleet.by_name["own"][0]].node] = mine
    stand.place.tenant_id = mine
    assert [c.name for c in fleets.ready(stand.place, built_in(), NOTHING_LEARNED, ("own",)).candidates] == ["own"]
    stand.place.tenant_id = other
    with pytest.raises(Refusal, match="unknown-candidate"):
        fleets.ready(stand.place, built_in(), NOTHING_LEARNED, ("own",))
