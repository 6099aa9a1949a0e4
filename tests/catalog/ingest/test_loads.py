"""Load reports in heartbeats: the last one of each source is stored, and each is judged alone."""

import pytest

from catalog.models import WorkerLoad
from catalog.selectors.loads import worker_loads
from tests.catalog.ingest.rig import Rig, Sim, add, plant_namespace, plant_node

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def place(planted):
    ns = plant_namespace(planted, "a")
    rig = Rig()
    sim = Sim(plant_node(planted, "n"))
    rig.send(sim.node, sim.frame(add(ns, 1)))
    yield rig, sim
    rig.close()


def report(sim, number, **more):
    return {"source": sim.name, "number": number, "dp_rank": 0, "queue_ms": 5.0, **more}


def test_the_last_report_of_a_source_is_kept_with_its_time(place):
    rig, sim = place
    rig.send(sim.node, sim.beat(load=[report(sim, 1, age_ms=2000.0)], life="l"))
    (row,) = WorkerLoad.objects.all()
    age = rig.now - row.at.timestamp()
    assert age == pytest.approx(2.0, abs=0.2)
    rig.send(sim.node, sim.beat(load=[report(sim, 2, queue_ms=77.0, curve=[0.0, 0.02, 0.0, 3])], life="l"))
    (found,) = worker_loads()
    assert (found.node, found.source, found.dp_rank) == (sim.node, sim.name, 0)
    assert found.load.queue_ms == 77.0
    assert found.load.curve == (0.0, 0.02, 0.0, 3)
    assert found.load.decode_queue_ms is None


def test_a_late_or_malformed_report_costs_only_itself(place):
    rig, sim = place
    rig.send(sim.node, sim.beat(load=[report(sim, 5)], life="l"))
    bad = [report(sim, 6, queue_ms=-1.0), {"x": 1}, report(sim, 4, queue_ms=99.0), report(sim, 7, queue_ms=8.0)]
    rig.send(sim.node, sim.beat(load=bad, life="l"))
    assert [x.load.queue_ms for x in worker_loads()] == [8.0]
    assert rig.refused() == {"negative-size": 1, "wrong-type": 1, "load-late": 1}


def test_the_same_report_again_is_no_refusal_and_a_new_life_begins_anew(place):
    rig, sim = place
    rig.send(sim.node, sim.beat(load=[report(sim, 5)], life="l"))
    rig.send(sim.node, sim.beat(load=[report(sim, 5, queue_ms=1.0)], life="l"))
    assert [x.load.queue_ms for x in worker_loads()] == [5.0]
    rig.send(sim.node, sim.beat(load=[report(sim, 1, queue_ms=2.0)], life="m"))
    assert [x.load.queue_ms for x in worker_loads()] == [2.0]
    assert rig.refused() == {}


def test_a_source_that_never_spoke_has_no_report(place):
    rig, sim = place
    rig.send(sim.node, sim.beat(load=[report(sim, 1) | {"source": "other"}, report(sim, 1, dp_rank=3)], life="l"))
    assert worker_loads() == []
