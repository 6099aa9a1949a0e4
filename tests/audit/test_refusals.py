"""Refused calls of audited routes: one event at once, then one a minute with a count."""

import json

import pytest

from audit.models import Event
from audit.refusals import QUIET_SECONDS, REMEMBERED, Repetitions, refusal_record
from tests.tenants.making import principal


def test_repetitions_are_counted_and_told_once_a_minute():
    seen = Repetitions()
    assert seen.due(("a",), 0.0) == 0
    assert [seen.due(("a",), t) for t in (1.0, 2.0, 59.9)] == [None] * 3
    assert seen.due(("b",), 3.0) == 0
    assert seen.due(("a",), QUIET_SECONDS) == 3
    assert seen.due(("a",), QUIET_SECONDS + 1) is None


def test_memory_is_bounded():
    seen = Repetitions()
    for i in range(REMEMBERED + 100):
        seen.due((str(i),), 0.0)
    assert len(seen._seen) == REMEMBERED


@pytest.mark.django_db
def test_a_refusal_is_one_event():
    who = principal(None, "viewer")
    first = refusal_record(principal=who, route="nodes-api", method="POST", status=403, code="forbidden")
    again = [
        refusal_record(principal=who, route="nodes-api", method="POST", status=403, code="forbidden") for _ in "ab"
    ]
    assert (first, again) == (True, [False, False])
    event = Event.objects.defer("pii_ct", "pii_key").get(event_type=0x02F0)
    assert event.outcome == 3
    assert json.loads(bytes(event.body))["data"] == {
        "route": "nodes-api", "method": "POST", "status": 403, "code": "forbidden", "repeated": 0,
    }  # fmt: skip


@pytest.mark.django_db
def test_nobody_can_be_refused_too_and_a_missing_key_store_costs_only_the_event(settings):
    assert refusal_record(principal=None, route="x-1", method="POST", status=401, code="token-invalid")
    settings.KEYSTORE_DIR = ""
    assert not refusal_record(principal=principal(), route="x-2", method="POST", status=401, code="token-invalid")
