"""A shred epoch ends when it has lasted its time, with its event, and not while the log is not signed."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from audit.models import Event
from audit.registry import TYPES
from kvconsole.infra.keystore import keystore, namespace_name
from kvconsole.infra.rest import Problem
from tenants import tasks
from tenants.services import shred_epoch_turn
from tests.tenants.making import a_namespace

pytestmark = pytest.mark.django_db


@pytest.fixture
def epochs(settings, tmp_path):
    settings.SHRED_DIR = str(tmp_path / "epochs")
    return keystore().epochs


def told():
    rows = Event.objects.filter(event_type=TYPES["key.destroyed"].number).order_by("id").values_list("body", flat=True)
    return [json.loads(bytes(body))["data"] for body in rows]


def test_without_epochs_there_is_nothing_to_end(settings):
    assert settings.SHRED_DIR == ""
    a_namespace()
    assert shred_epoch_turn(now=datetime.now(UTC)) is None
    assert told() == []


def test_an_epoch_that_has_lasted_its_time_is_over_and_the_trail_says_so(epochs):
    namespace = a_namespace()
    name, now = namespace_name(bytes(namespace.digest), 1), datetime.now(UTC)
    secret = keystore().secret(name)
    assert epochs.numbers() == [1]
    assert shred_epoch_turn(now=now + timedelta(hours=23)) is None
    assert shred_epoch_turn(now=now + timedelta(hours=25)) > 0
    assert epochs.numbers() == [2]
    tasks.shred_epoch_turn.run()
    assert epochs.numbers() == [2]
    shred_epoch_turn(now=now, early=True)
    assert epochs.numbers() == [3]
    assert keystore().secret(name) == secret
    assert [one["name"] for one in told()] == ["up to 1", "up to 2"]
    assert {(one["kind"], one["keys"]) for one in told()} == {("shred-epoch", 1)}


def test_no_epoch_ends_while_the_log_is_not_signed_in_time(epochs, settings):
    a_namespace()
    settings.LOG_LATE_SECONDS = -1.0
    with pytest.raises(Problem) as caught:
        shred_epoch_turn(now=datetime.now(UTC), early=True)
    assert (caught.value.code, epochs.numbers()) == ("audit-unavailable", [1])
