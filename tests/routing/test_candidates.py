import pytest

from kvcore.cards import Edge
from routing.candidates import Fleet
from tests.routing.deciding import worker


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_who_never_reported_has_no_queue_and_no_age(clock):
    fleet = Fleet(clock)
    fleet.take([worker("a")])
    (found,) = fleet.candidates
    assert (found.queue_ms, found.waiting, found.load_age_ms, found.curve.source) == (None, None, None, "unknown")
    fleet.sent(0, 50.0)
    assert fleet.candidates[0].queue_ms is None


def test_what_was_sent_since_the_report_is_added_and_what_time_worked_off_is_not_counted_twice(clock):
    fleet = Fleet(clock)
    fleet.take([worker("a", load={"queue_ms": 100.0, "waiting": 2}, age_ms=0.0)])
    clock.now += 0.1
    fleet.sent(0, 400.0)
    assert (fleet.candidates[0].queue_ms, fleet.candidates[0].waiting) == (pytest.approx(400.0), 3)
    clock.now += 0.2
    fleet.age()
    assert fleet.candidates[0].queue_ms == pytest.approx(200.0)
    clock.now += 10
    fleet.age()
    assert fleet.candidates[0].queue_ms == 100.0, "never shorter than it was reported"
    assert fleet.candidates[0].load_age_ms == pytest.approx(10_300.0)


def test_a_newer_report_has_what_was_sent_before_it(clock):
    fleet = Fleet(clock)
    fleet.take([worker("a", load={"queue_ms": 0.0}, age_ms=0.0)])
    clock.now += 0.1
    fleet.sent(0, 400.0)
    clock.now += 0.1
    fleet.take([worker("a", load={"queue_ms": 350.0}, age_ms=50.0)])
    assert fleet.candidates[0].queue_ms == 350.0


def test_many_requests_cost_no_more_the_more_there_were(clock):
    fleet = Fleet(clock)
    fleet.take([worker("a", load={"queue_ms": 0.0}, age_ms=0.0)])
    for _ in range(1000):
        clock.now += 0.0001
        fleet.sent(0, 1.0)
    assert fleet.candidates[0].queue_ms == pytest.approx(900.0)
    clock.now += 61
    fleet.age()
    assert (fleet.candidates[0].queue_ms, fleet.candidates[0].waiting) == (0.0, None)


def test_where_one_source_reports_the_others_of_its_node_only_store(clock):
    fleet = Fleet(clock)
    fleet.take([
        worker("a", load={}), worker("a", source="remote"), worker("b", source="x"), worker("b", source="remote"),
        worker("s", role="store"),
    ])  # fmt: skip
    assert [(c.name, c.source) for c in fleet.candidates] == [("a", "e"), ("b", "x")]
    node = fleet.candidates[0].node
    assert fleet.stores[node, "remote", 0] == (0,)


def test_edges_lead_from_whom_was_fetched_to_who_fetched(clock):
    fleet = Fleet(clock)
    one = worker("b", load={"edges": {"a": (5.0, 0.5, 3), "nobody": (1.0, 1.0, 1), "c": (0.0, 0.0, 0)}})
    fleet.take([worker("a"), one, worker("c")])
    a, b = fleet.candidates[0].node, fleet.candidates[1].node
    assert fleet.edges == {a: {b: Edge(5.0, 0.5)}}


def test_a_lost_source_is_lost_whatever_its_node_says(clock):
    fleet = Fleet(clock)
    fleet.take([worker("a", source_state="lost")])
    assert fleet.candidates[0].state == "lost"


def test_edges_are_summed_up_when_one_changed() -> None:
    edges = {"b": (10.0, 1.0, 3)}
    fleet = Fleet()
    fleet.take([worker("a", load={"edges": edges}), worker("b", load={})])
    known, wires = fleet.edges, fleet.wires
    fleet.take([worker("a", load={"edges": edges, "queue_ms": 7.0}), worker("b", load={})])
    assert fleet.wires is wires
    assert fleet.edges is known
    fleet.take([worker("a", load={"edges": {"b": (20.0, 1.0, 3)}}), worker("b", load={})])
    assert (wires.fastest, fleet.wires.fastest) == (10.0, 20.0)
    fleet.take([worker("a", load={}), worker("b", load={})])
    assert fleet.wires.edge is None
