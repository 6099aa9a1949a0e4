"""Silence, loss and return of nodes; orders that are due are sent once and concluded once."""

# ruff: noqa: F811

import json
from datetime import UTC, datetime, timedelta

import pytest

from audit.models import Event
from catalog import fleet, services
from catalog.models import Node, NodeCommand
from kvconsole.infra import leases, sql
from tests.catalog.fleet_fixtures import enrolled, far, running_signer, signer  # noqa: F401

pytestmark = pytest.mark.django_db
NOW = datetime.now(UTC)


def after(seconds):
    return NOW + timedelta(seconds=seconds)


def heard(node, seconds):
    Node.objects.filter(id=node.id).update(last_heard_at=after(seconds))


def look(seconds, writer_lives=True):
    return [(c.before, c.after) for c in fleet.nodes_reconcile(now=after(seconds), writer_lives=writer_lives)]


def test_a_node_joins_is_heard_falls_silent_is_lost_and_returns(enrolled):
    node, _ = enrolled()
    assert look(0) == []
    heard(node, 0)
    assert look(1) == [("joining", "ready")]
    assert look(4.9) == []
    assert look(5.5) == [("ready", "silent")]
    assert look(9.9) == []
    assert look(10.5) == [("silent", "lost")]
    assert look(100) == []
    heard(node, 100)
    assert look(101) == [("lost", "ready")]
    events = [json.loads(bytes(e.body))["data"] for e in Event.objects.only("id", "body").filter(event_type=0x0403)]
    assert [e["after"] for e in events] == ["ready", "silent", "lost", "ready"]
    assert {e["name"] for e in events} == {node.name}


def test_who_was_not_looked_at_for_long_is_silent_first(enrolled):
    node, _ = enrolled()
    heard(node, 0)
    look(1)
    assert look(60) == [("ready", "silent")]
    assert look(61) == []
    heard(node, 61)
    assert look(62) == [("silent", "ready")]


def test_nobody_is_lost_while_nobody_could_be_heard(enrolled):
    node, _ = enrolled()
    heard(node, 0)
    look(1)
    assert look(6, writer_lives=False) == [("ready", "silent")]
    assert look(30, writer_lives=False) == []
    assert look(31) == [("silent", "lost")]


def test_a_node_that_is_heard_again_is_what_operators_want(enrolled):
    node, _ = enrolled()
    heard(node, 0)
    look(1), look(6), look(12)
    node.refresh_from_db()
    assert node.state == "lost"
    node.wanted = "cordoned"
    node.save(update_fields=["wanted"])
    heard(node, 20)
    assert look(21) == [("lost", "cordoned")]


@pytest.mark.django_db(transaction=True)
def test_whether_the_writer_lives_is_seen_from_its_connection():
    def lives():
        with sql.connect("operator") as c:
            return c.execute(sql.named("catalog", "fleet.sql")["writer_lives"]).fetchone()[0]

    def listens(seconds):
        with sql.connect("ingest") as c:
            c.execute("UPDATE catalog_shard SET listens_since = now() - %s * interval '1 second'", (seconds,))
            return lives()

    assert not lives()
    assert not listens(3), "a writer that has just taken over has heard nobody yet"
    assert listens(11)
    assert not lives()
    fleet.nodes_reconcile(now=NOW)


def test_an_enrolment_starts_over(enrolled, far):
    node, _ = enrolled()
    heard(node, 0)
    look(1)
    token = services.enrolment_token(node=node, now=datetime.now(UTC))
    from tests.catalog.test_services import enrol

    enrol(token, far())
    node.refresh_from_db()
    assert (node.state, node.last_heard_at) == ("joining", None)


# --- orders -----------------------------------------------------------------------


def send(command, seconds=1, holder="w"):
    return fleet.command_send(step=command.step, holder=holder, now=after(seconds))


def order(node, kind="ping"):
    return services.command_order(node=node, kind=kind, args={}, actor=None, now=NOW)


def test_a_due_order_is_sent_and_concluded_with_its_receipt(enrolled):
    node, side = enrolled()
    command = order(node)
    assert fleet.commands_due(now=after(1)) == [command.step]
    assert send(command) == "done"
    command.refresh_from_db()
    assert (command.state, command.receipt_hash, command.receipt_prev) == ("done", side.prev, "")
    assert command.receipt["body"]["step"] == str(command.step)
    assert fleet.commands_due(now=after(1)) == []
    assert send(command) == "done"
    assert len(side.seen) == 1
    event = Event.objects.only("id", "body").get(event_type=0x0411)
    assert json.loads(bytes(event.body))["data"]["receipt_hash"] == side.prev


@pytest.mark.parametrize(("mood", "state"), [("cannot", "failed"), ("will-not", "refused")])
def test_what_the_node_says_is_what_the_order_ends_as(enrolled, mood, state):
    node, _ = enrolled(mood)
    command = order(node)
    assert send(command) == state


def test_a_node_that_is_away_is_asked_again_later_and_in_the_end_no_more(enrolled):
    node, side = enrolled()
    command = order(node)
    side.mood = "refuses"
    assert send(command) == "waiting"
    command.refresh_from_db()
    assert (command.attempts, command.code, command.due_at) == (1, "command-signature", after(2))
    assert send(command, 1.5) == "waiting"
    assert len(side.seen) == 1
    assert fleet.commands_due(now=after(1.5)) == []
    assert fleet.commands_due(now=after(2)) == [command.step]
    assert send(command, 301) == "expired"
    assert fleet.commands_due(now=after(302)) == []


def test_what_can_never_work_ends_at_once(enrolled, settings):
    node, _ = enrolled()
    command = order(node)
    settings.AGENT_NETWORKS = ["10.0.0.0/8"]
    assert send(command) == "failed"
    command.refresh_from_db()
    assert command.code == "agent-url-refused"


def test_only_one_worker_sends(enrolled):
    node, side = enrolled()
    command = order(node)
    lease = leases.take("catalog_nodecommand", command.step, holder="other", seconds=20, now=after(1), column="step")
    assert send(command) == "busy"
    assert side.seen == []
    assert lease is not None
    assert send(command, 22) == "done"


def test_a_worker_that_was_overtaken_concludes_nothing(enrolled):
    node, _ = enrolled()
    command = order(node)
    lease = leases.take("catalog_nodecommand", command.step, holder="slow", seconds=1, now=after(0), column="step")
    assert send(command, 2) == "done"
    command.refresh_from_db()
    assert fleet._conclude(command, lease, "failed", code="x", now=after(3)) == "busy"
    assert NodeCommand.objects.get(step=command.step).state == "done"


def test_what_is_not_there_is_nothing(db):
    assert fleet.command_send(step=sql.uuid7(), holder="w", now=NOW) == "unknown"
    assert fleet.node_or_none(sql.uuid7()) is None
