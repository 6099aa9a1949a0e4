from kvcore.cards import Held
from routing.view import Space
from tests.routing.deciding import Stand, worker


def held(stand, numbers=None):
    found = stand.router.holders.look(Space(stand.digest, 1, 0), stand.prints)
    return stand.router.holders.held(found, numbers)


def test_a_slower_tier_counts_only_where_it_reaches_deeper():
    stand = Stand(worker("a", load={}), worker("b", load={}))
    stand.holds("a", 10, "hbm")
    stand.holds("a", 30, "dram")
    stand.holds("a", 20, "ssd")
    stand.holds("b", 5, "dram")
    stand.holds("b", 5, "hbm")
    assert held(stand) == (Held(0, ((10, "hbm"), (30, "dram"))), Held(1, ((5, "hbm"),)))


def test_what_a_store_of_the_node_holds_is_its_workers():
    stand = Stand(worker("a", load={}), worker("a", source="remote"))
    stand.holds("a", 30, "remote", source="remote")
    assert held(stand) == (Held(0, ((30, "remote"),)),)


def test_named_candidates_are_numbered_among_themselves():
    stand = Stand(worker("a", load={}), worker("b", load={}))
    stand.holds("a", 10)
    stand.holds("b", 20)
    b = stand.standing.fleet.candidates[1]
    assert held(stand, {(b.node, b.source, b.dp_rank): 0}) == (Held(0, ((20, "hbm"),)),)


def test_who_is_in_the_index_and_not_in_the_fleet_holds_nothing_and_is_known_when_it_comes():
    stand = Stand(worker("a", load={}))
    stand.holds("b", 20)
    assert held(stand) == ()
    stand.take(worker("a", load={}), worker("b", load={}))
    assert held(stand) == (Held(1, ((20, "hbm"),)),)


def test_without_a_view_or_a_lease_nothing_is_found():
    stand = Stand(worker("a", load={}))
    stand.holds("a", 20)
    stand.replica.leased_until = 0.0
    assert held(stand) == ()
    stand.replica.view = None
    found = stand.router.holders.look(Space(stand.digest, 1, 0), stand.prints)
    assert (found.mode, found.runs) == ("loading", [])
