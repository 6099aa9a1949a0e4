"""Calls that changed nothing: one event at once, then one a minute with a count, and no count is lost."""

import json

import pytest

from audit import refusals
from audit.models import Event
from audit.refusals import QUIET_SECONDS, REMEMBERED, Repetitions, call_record
from kvconsole.infra.evidence import Answered
from kvconsole.infra.principals import Principal
from tests.tenants.making import principal


@pytest.fixture(autouse=True)
def nothing_seen():
    refusals._calls._seen.clear()
    yield
    refusals._calls._seen.clear()


def answered(status=403, code="forbidden", route="nodes-api", why="unchanged"):
    return Answered(route=route, method="POST", status=status, code=code, why=why)


def bodies(number=0x02F0):
    rows = Event.objects.defer("pii_ct", "pii_key").filter(event_type=number).order_by("id")
    return [json.loads(bytes(row.body))["data"] for row in rows]


def test_repetitions_are_counted_and_told_once_a_minute():
    seen = Repetitions()
    assert seen.due(("a",), 0.0) == 0
    assert [seen.due(("a",), t) for t in (1.0, 2.0, 59.9)] == [None] * 3
    assert seen.due(("b",), 3.0) == 0
    assert seen.due(("a",), QUIET_SECONDS) == 3
    assert seen.due(("a",), QUIET_SECONDS + 1) is None


def test_what_was_silent_is_told_when_its_minute_is_over_and_kept_when_that_fails():
    told, works = [], [False]

    def write(what, count):
        told.append((what, count)) if works[0] else None
        return works[0]

    seen = Repetitions(write)
    refusals._all.remove(seen)
    for t in range(5):
        seen.due(("a",), float(t), "A")
    assert seen.tell(30.0) == 0
    assert seen.tell(61.0) == 0, "PostgreSQL was away"
    works[0] = True
    assert seen.tell(1e9) == 1
    assert told == [("A", 4)]
    assert seen.tell(2e9) == 0
    assert not seen._seen, "nothing is remembered of what was told"


def test_a_million_refusals_of_one_caller_are_few_rows_and_little_memory_and_add_up():
    events = []
    seen = Repetitions(lambda what, count: events.append(count) or True)
    refusals._all.remove(seen)
    for i in range(1_000_000):
        silent = seen.due(("token", "route", "403"), i / 10_000)  # 100 s
        if silent is not None:
            events.append(silent + 1)
    seen.tell(1e9)
    assert len(events) == 3
    assert sum(events) == 1_000_000
    assert not seen._seen


def test_more_callers_than_there_is_place_for_are_told_together():
    events = []
    seen = Repetitions(lambda what, count: events.append(count) or True)
    refusals._all.remove(seen)
    for i in range(2 * REMEMBERED):
        for _ in range(2):
            if (silent := seen.due((str(i), "route"), 0.0)) is not None:
                events.append(silent + 1)
    assert len(seen._seen) <= REMEMBERED + 1
    seen.tell(1e9)
    assert sum(events) == 4 * REMEMBERED


@pytest.mark.django_db
def test_a_refusal_is_one_event():
    who = principal(None, "viewer")
    assert [call_record(principal=who, answered=answered()) for _ in "abc"] == [True, False, False]
    event = Event.objects.defer("pii_ct", "pii_key").get(event_type=0x02F0)
    assert event.outcome == 3
    said = {"route": "nodes-api", "method": "POST", "status": 403, "code": "forbidden"}
    assert bodies() == [said | {"repeated": 0, "calls": 1}]
    assert refusals.tell(everything=True) >= 1
    assert bodies()[1:] == [said | {"repeated": 2, "calls": 2}]
    assert sum(b["calls"] for b in bodies()) == 3


@pytest.mark.django_db
def test_a_call_that_changed_nothing_is_an_event_each_time():
    who = principal(None, "operator")
    assert all(call_record(principal=who, answered=answered(200, "", why="rehearsal")) for _ in "ab")
    assert [(b["why"], b["calls"]) for b in bodies(0x02F3)] == [("rehearsal", 1)] * 2


@pytest.mark.django_db
def test_what_gateways_ask_all_day_is_counted():
    who = Principal(kind="gateway", id="g", holder="g", roles=frozenset({"gateway"}))
    same = answered(200, "", route="namespaces-resolve")
    assert [call_record(principal=who, answered=same) for _ in "abc"] == [True, False, False]
    for _ in range(10):
        refusals.found_again(who, "namespaces-resolve", "POST")
    refusals.tell(everything=True)
    refusals.found_again(who, "namespaces-resolve", "POST")
    refusals.tell(everything=True)
    assert sum(b["calls"] for b in bodies(0x02F3)) == 14


@pytest.mark.django_db
def test_a_fault_of_ours_is_no_event_and_a_missing_key_store_costs_only_the_event(settings):
    assert not call_record(principal=None, answered=answered(500, "internal"))
    assert call_record(principal=None, answered=answered(401, "token-invalid", route="x-1"))
    settings.KEYSTORE_DIR = ""
    assert not call_record(principal=principal(), answered=answered(401, "token-invalid", route="x-2"))
    assert sum(said.silent for said in refusals._calls._seen.values()) == 1, "it is told later"
