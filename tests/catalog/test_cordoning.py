"""A cordon is true with its commit: the node, the operation that asked for it and the events say the same."""

import uuid

import pytest

from audit.models import Event
from audit.registry import TYPES
from catalog.cordoning import cordon_request
from catalog.models import Operation
from kvconsole.infra.rest import Problem
from tests.catalog.operations.world import person
from tests.catalog.test_draining import NOW, state
from tests.catalog.test_draining import _nobody as _nobody
from tests.catalog.test_draining import node as node

pytestmark = pytest.mark.django_db


def events(name):
    return Event.objects.filter(event_type=TYPES[name].number).count()


def test_a_node_takes_nothing_new_and_is_let_take_it_again(node):
    for number, (shut, kind, wanted) in enumerate([(True, "cordon", "cordoned"), (False, "uncordon", "ready")], 1):
        who = person("operator")
        asked = cordon_request(node=node.id, cordoned=shut, reason="work", actor=who, now=NOW)
        made = Operation.objects.get(id=asked.id)
        assert (made.kind, made.outcome, made.risk, made.selector) == (kind, "completed", "R0", {"node": "n1"})
        assert (made.reason, made.requested_by) == ("work", who.subject)
        assert state(node) == (wanted, wanted)
        assert events("operation.requested") == events("operation.concluded") == events("node.state_changed") == number


def test_of_no_node_nothing_is_kept():
    with pytest.raises(Problem) as refused:
        cordon_request(node=uuid.uuid4(), cordoned=True, reason="work", actor=person("operator"), now=NOW)
    assert refused.value.code == "not-found"
    assert not Operation.objects.exists()
    assert events("operation.requested") == 0
