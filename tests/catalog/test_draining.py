"""What nodes take: a drain's node is shut from its request on, and what it is afterwards is what operators want."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from audit.models import Event
from audit.registry import TYPES
from audit.services import record
from catalog import fleet
from catalog.cordoning import cordon_request
from catalog.models import Node, Operation
from catalog.move_requests import drain_request
from catalog.operation_orders import operation_conclude
from catalog.services import node_retire
from kvconsole.infra.rest import Problem
from tests.catalog.operations.world import person

pytestmark = pytest.mark.django_db
NOW = datetime.now(UTC)


@pytest.fixture(autouse=True)
def _nobody(settings):
    settings.TASK_SENDER = "tests.audit.sealed.nobody"


@pytest.fixture
def node():
    made = Node.objects.create(name="n1", region="eu", state="ready", state_since=NOW, created_at=NOW, enrolled_at=NOW,
                               last_heard_at=NOW, public_key=b"k" * 32)  # fmt: skip
    record(event_type="node.changed", outcome="success", actor=person(), tenant_id=None, object_kind="node",
           object_id=str(made.id), body={"name": "n1", "changed": ["wanted"]})  # fmt: skip
    return made


def refusal(call, **more):
    with pytest.raises(Problem) as caught:
        call(actor=person("operator"), now=NOW, **more)
    return caught.value.code


def drained(node):
    return drain_request(node=str(node.id), actor=person("operator"), now=NOW)


def cordoned(node, cordoned=True):
    return cordon_request(node=node.id, cordoned=cordoned, reason="work", actor=person("operator"), now=NOW)


def state(node):
    node.refresh_from_db()
    return node.state, node.wanted


def told():
    rows = Event.objects.filter(event_type=TYPES["node.state_changed"].number).order_by("id").values_list("body")
    said = [json.loads(bytes(body))["data"] for (body,) in rows]
    return [(one["before"], one["after"], one["reason"]) for one in said]


def test_a_drain_shuts_its_node_and_leaves_it_cordoned_until_somebody_opens_it(node):
    operation = drained(node)
    assert state(node) == ("draining", "draining")
    assert refusal(drain_request, node="n1") == "node-draining"
    assert refusal(cordon_request, node=node.id, cordoned=False) == "node-draining"
    operation_conclude(operation, "completed_with_exceptions", NOW)
    assert state(node) == ("cordoned", "cordoned")
    made = cordoned(node, False)
    assert (made.kind, made.outcome, made.finalizers) == ("uncordon", "completed", [])
    assert state(node) == ("ready", "ready")
    assert told() == [
        ("ready", "draining", "drain"), ("draining", "cordoned", "drained"), ("cordoned", "ready", "uncordon")
    ]  # fmt: skip


@pytest.mark.parametrize("before", ["ready", "cordoned"])
def test_a_drain_that_is_not_done_leaves_its_node_as_it_was(node, before):
    if before == "cordoned":
        cordoned(node)
    operation = drained(node)
    operation_conclude(operation, "stopped", NOW)
    assert state(node) == (before, before)


def test_what_was_said_of_the_node_meanwhile_is_stronger(node):
    operation = drained(node)
    cordoned(node)
    operation_conclude(operation, "stopped", NOW)
    assert state(node) == ("cordoned", "cordoned")
    operation = drained(node)
    node_retire(node=node, reason="gone", actor=person("operator"), now=NOW)
    operation_conclude(operation, "completed", NOW)
    assert state(node) == ("fenced", "fenced")
    assert refusal(drain_request, node="n1") == refusal(cordon_request, node=node.id, cordoned=True) == "node-fenced"


def test_a_node_that_is_silent_is_drained_once_it_is_heard(node):
    assert drained(node)
    Node.objects.filter(id=node.id).update(state="silent")
    fleet.nodes_reconcile(now=NOW + timedelta(seconds=1), writer_lives=True)
    assert state(node) == ("draining", "draining")


@pytest.mark.parametrize("away", ["lost", "joining", "silent"])
def test_of_a_node_that_is_not_heard_nobody_says_that_it_is_empty(node, away):
    Node.objects.filter(id=node.id).update(state=away)
    assert refusal(drain_request, node="n1") == "nothing-selected"
    assert state(node) == (away, "ready")
    assert not Operation.objects.exists()
