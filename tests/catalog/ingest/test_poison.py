"""Input that makes the fold fail is found and set aside."""

import uuid

from catalog.ingest.jobs import Job
from catalog.ingest.poison import Suspects
from kvcore.events import Refused
from tests.catalog.ingest.rig import Sim, add


def jobs(*messages) -> tuple[list[Job], list]:
    outcomes: list = []
    return [Job(uuid.UUID(int=1), m, 0, outcomes.append) for m in messages], outcomes


def test_a_batch_that_fails_makes_the_next_ones_small():
    suspects, sim = Suspects(), Sim(uuid.UUID(int=1))
    many, _ = jobs(sim.frame(add(bytes(32), 1)), sim.frame(add(bytes(32), 2)))
    suspects.crashed(many)
    assert suspects.careful
    assert suspects.disarm(many) == many
    assert all(j.items is None for j in many)
    suspects.passed(many * 200)
    assert not suspects.careful


def test_what_fails_alone_carries_no_items_any_more():
    suspects, sim = Suspects(), Sim(uuid.UUID(int=1))
    (bad, good), _ = jobs(sim.frame(add(bytes(32), 1)), sim.frame(add(bytes(32), 2)))
    suspects.crashed([bad])
    assert suspects.disarm([bad, good]) == [bad, good]
    assert isinstance(bad.items[0], Refused)
    assert bad.items[0].code == "unfoldable"
    assert good.items is None


def test_what_has_no_items_is_answered_at_once():
    suspects, sim = Suspects(), Sim(uuid.UUID(int=1))
    (beat,), outcomes = jobs(sim.beat())
    suspects.crashed([beat])
    assert suspects.disarm([beat]) == []
    assert outcomes[0].code == "unfoldable"
