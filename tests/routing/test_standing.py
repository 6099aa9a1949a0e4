import time
from datetime import UTC, datetime

import pytest
from django.db import Error

from kvconsole.infra.access import system
from routing import policies
from routing import standing as keeping
from routing.standing import Standing
from tests.catalog.ingest.rig import plant_node, superuser

pytestmark = pytest.mark.django_db(transaction=True)


def put(name, **document):
    policies.policy_put(name=name, document=document, actor=system("test"), now=datetime.now(UTC))


@pytest.fixture
def node(postgres, transactional_db):
    with superuser(postgres) as cx:
        made = plant_node(cx, "n1")
        cx.execute(
            "INSERT INTO catalog_source (id, shard, node_id, name, dp_rank, boot, stream, seq, state, since)"
            " VALUES (1, 0, %s, 'reference', 0, 'b', 's', 0, 'exact', now())", (made,)
        )  # fmt: skip
    return made


def test_workers_policies_and_ticket_keys_are_read(node):
    put("mine", kind="linear", model="m1")
    put("default", kind="least_loaded")
    standing = Standing()
    standing.read()
    assert [(c.name, c.source, c.queue_ms) for c in standing.fleet.candidates] == [("n1", "reference", None)]
    assert (standing.policy("m1").kind, standing.policy("m2").kind) == ("linear", "least_loaded")
    assert len(standing.tickets[str(node)]) == 32
    put("default", kind="random")
    standing._due["policies"] = 0.0
    standing.read()
    assert (standing.policy("m2").kind, standing.policy("m2").version) == ("random", 2)


def test_while_the_database_is_away_all_stays_as_it_was_read(node, monkeypatch):
    standing = Standing()
    standing.read()
    before = standing.fleet.candidates

    def away():
        raise Error("gone")

    monkeypatch.setattr(keeping, "workers", away)
    standing.start()
    deadline = time.monotonic() + 5
    while not standing.away and time.monotonic() < deadline:
        time.sleep(0.01)
    assert standing.away
    assert standing.fleet.candidates == before
    monkeypatch.undo()
    assert standing.ready.wait(5)
    standing.close()
